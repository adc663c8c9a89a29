"""The token table of a new encoder from static vectors: words begin near those that stand in the same company.

Legend: V tokens, E table_size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from unmask.errors import UnmaskError
from unmask.nn.encoder import Encoder
from unmask.static.load import load_vectors
from unmask.static.words import WordCounts
from unmask.text.inspect import piece_text
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import HANZI, character_classes

# Of a token that goes on with a word (WordPiece), or of one that begins a word (the others).
_MARKS = {"wordpiece": "##", "unigram": "▁", "bpe": "Ġ"}
_MANY = 0.1  # of the tokens with a mark; a word of other people's may look like one by chance


@torch.no_grad()
def begin_with_vectors(encoder: Encoder, tokenizer: Tokenizer, source: Path) -> str:
    """Puts the vectors of a file or folder into the rows of their tokens, and says how many there were.

    A token that begins a word has the vector of that word, with other capitals if need be; one that goes on with a word
    ("##ing") has none. Of vectors that were learned from such tokens, each has that of its own spelling. All vectors are
    multiplied by one number, so that the taken rows have the size (root mean square) that they began with, and places,
    segments and the other rows stay of one size with them: directions, and which is longer, do not change. UnmaskError where
    the vectors are not as wide as the table, or no token has one.
    """
    vectors, _ = load_vectors(source)
    table_VE = encoder.token_table()
    width = table_VE.shape[1]
    if vectors.dimension != width:
        do = f"train vectors with --dimension {width}, or set encoder.embedding_size={vectors.dimension}: a table as wide as these"
        what = f"the vectors have {vectors.dimension} numbers, but a row of the token table {width}"
        raise UnmaskError(what, where=str(source), do=do)
    found = dict(_rows(tokenizer, vectors.words))
    rows = torch.tensor(list(found), dtype=torch.long)
    taken = torch.from_numpy(np.ascontiguousarray(vectors.matrix[list(found.values())], np.float32))
    if not taken.abs().sum() > 0:
        do = "learn vectors from text in the corpus' language"
        raise UnmaskError("no token of the corpus' tokenizer has a vector here", where=str(source), do=do)
    factor = table_VE[rows].square().mean().sqrt() / taken.square().mean().sqrt()
    table_VE[rows] = taken.to(table_VE.device) * factor
    return f"{len(rows):,} of {tokenizer.vocab_size:,} rows of the token table begin as vectors of {source}, times {factor:.3g}"


def _rows(tokenizer: Tokenizer, words: WordCounts) -> Iterator[tuple[int, int]]:
    """A token's id and the row of its vector, for those that have one; special tokens never."""
    pieces = tokenizer.pieces()
    spelled = _of_tokens(tokenizer, pieces, words)
    for id, piece in enumerate(pieces):
        if id in tokenizer.special_ids:
            continue
        word = piece if spelled else _word(tokenizer, piece)
        row = words.index.get(word) if spelled else words.index.get(word, words.folded_index.get(word.casefold()))
        if word and row is not None:
            yield id, row


def _of_tokens(tokenizer: Tokenizer, pieces: Sequence[str], words: WordCounts) -> bool:
    """Whether the vectors were learned from this tokenizer's tokens: then many of the spellings that no word has are there."""
    marked = [piece for piece in pieces if piece.startswith(_MARKS[tokenizer.kind])]
    return sum(piece in words.index for piece in marked) > _MANY * len(marked)


def _word(tokenizer: Tokenizer, piece: str) -> str:
    """The word that a token is or begins; "" for one that goes on with a word. Hanzi need no sign that they begin one."""
    text = piece_text(tokenizer, piece)
    begins = piece.startswith(_MARKS[tokenizer.kind]) != (tokenizer.kind == "wordpiece")
    return text if begins or (text and bool((character_classes(text) == HANZI).all())) else ""
