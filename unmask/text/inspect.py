"""How well a tokenizer fits a text: unknown rate, tokens per word and per character, longest pieces, coverage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unmask.progress import Progress, quiet
from unmask.text.byte_letters import BYTE_OF
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import SPACE, WordSplitter, character_classes

_BATCH = 1 << 18  # characters tokenised at once
_LONGEST = 20  # pieces shown


@dataclass(frozen=True)
class Statistics:
    """A tokenizer on a text. Rates are shares of 1; characters are counted without white space."""

    kind: str
    vocab_size: int
    texts: int
    characters: int
    words: int
    tokens: int
    unknown_tokens: int
    unknown_rate: float  # of the tokens
    coverage: float  # of the characters: those outside unknown tokens
    tokens_per_word: float
    tokens_per_character: float
    used_pieces: float  # share of the vocabulary that the text uses
    single_character_pieces: float  # share of the vocabulary that spells one character
    single_character_tokens: float  # share of the tokens of the text that stand for one character
    longest_pieces: list[str]  # of the vocabulary

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def inspect(
    tokenizer: Tokenizer, texts: Iterable[str], words: WordSplitter | None = None, progress: Progress = quiet
) -> Statistics:
    """Tokenises the texts once, as a stream; a word is what whole-word masking would hide."""
    words = words or WordSplitter()
    counts = np.zeros(7, np.int64)  # in the order of _count
    used = np.zeros(tokenizer.vocab_size, np.bool_)
    for batch in _batches(texts):
        counts += _count(tokenizer, batch, words, used)
        progress("tokenising, characters", int(counts[1]), None)
    total, characters, number_of_words, tokens, unknown, lost, single = (int(count) for count in counts)
    progress("tokenising, characters", characters, characters)
    spelled = {piece: piece_text(tokenizer, piece) for piece in tokenizer.pieces()}
    ordinary = {piece: text for piece, text in spelled.items() if piece and not _is_special(tokenizer, piece)}
    return Statistics(
        kind=tokenizer.kind,
        vocab_size=tokenizer.vocab_size,
        texts=total,
        characters=characters,
        words=number_of_words,
        tokens=tokens,
        unknown_tokens=unknown,
        unknown_rate=unknown / max(1, tokens),
        coverage=1 - lost / max(1, characters),
        tokens_per_word=tokens / max(1, number_of_words),
        tokens_per_character=tokens / max(1, characters),
        used_pieces=float(used.mean()),
        single_character_pieces=sum(len(text) == 1 for text in ordinary.values()) / max(1, len(ordinary)),
        single_character_tokens=single / max(1, tokens),
        longest_pieces=sorted(ordinary, key=lambda piece: (-len(ordinary[piece]), piece))[:_LONGEST],
    )


def piece_text(tokenizer: Tokenizer, piece: str) -> str:
    """What a piece stands for in a text, without its marks of place; "\ufffd" for part of a character."""
    match tokenizer.kind:
        case "wordpiece":
            return piece.removeprefix("##") or piece
        case "unigram":
            return piece.removeprefix("▁")
        case "bpe":
            data = bytes(BYTE_OF.get(character, 0x3F) for character in piece)
            return data.decode("utf-8", "replace").removeprefix(" ")


def _is_special(tokenizer: Tokenizer, piece: str) -> bool:
    return piece in {tokenizer.token(id) for id in tokenizer.special_ids}


def _count(tokenizer: Tokenizer, texts: list[str], words: WordSplitter, used: np.ndarray) -> np.ndarray:
    counts = np.zeros(7, np.int64)
    for text, encoded in zip(texts, tokenizer.encode(texts, words), strict=True):
        visible = character_classes(text) != SPACE
        unknown = encoded.ids == tokenizer.unk_token_id
        lost = sum(int(visible[start:stop].sum()) for start, stop in encoded.offsets[unknown])
        single = (encoded.offsets[:, 1] - encoded.offsets[:, 0] == 1) & ~unknown
        number_of_words = encoded.word_starts.sum()
        counts += [1, visible.sum(), number_of_words, len(encoded.ids), unknown.sum(), lost, single.sum()]
        used[encoded.ids] = True
    return counts


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
