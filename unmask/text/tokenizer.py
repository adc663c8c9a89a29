"""A tokenizer as the rest of unmask sees it: text to ids and word starts, and a folder that Hugging Face loads.

It wraps one private instance of `tokenizers.Tokenizer` that nobody changes after loading, so threads may share it.
The value behind it is two JSON documents (tokenizer.json, tokenizer_config.json); everything else follows from them.

Legend: T tokens of one text.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.files import make_folder, write_file
from unmask.text.tokenizer_files import read_folder
from unmask.text.tokenizer_json import (
    CHECK_TEXT,
    KINDS,
    ModelKind,
    build,
    sentinel_tokens,
    special_tokens,
    token_text,
    without_panic,
)
from unmask.text.vocabulary import Role, Vocabulary
from unmask.text.words import WordSplitter

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")  # what `save` writes


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text as tokens: `word_starts` marks where a token begins a word, `offsets` cut the token out of the text."""

    ids: NDArray[np.uint32]  # [T]
    word_starts: NDArray[np.bool_]  # [T]
    offsets: NDArray[np.int32]  # [T, 2], in characters


class Tokenizer:
    """A WordPiece, byte-level BPE or unigram tokenizer with its special tokens; the id of one it does not have is None."""

    def __init__(self, content: dict[str, Any], config: dict[str, Any]):
        """From the documents of tokenizer.json and tokenizer_config.json; raises UnmaskError if they make no tokenizer."""
        names = special_tokens(content, config)
        self._content, self._config, self._names = content, config, names
        self._json = json.dumps(content, ensure_ascii=False, indent=2).encode("utf-8", "replace")
        self._plain = build(self._json)
        self._plain.encode_special_tokens = True  # "[MASK]" in a text is five characters, not an order to us
        self._marked: tokenizers.Tokenizer | None = None
        self.kind: ModelKind = KINDS[content["model"]["type"]]
        self.fingerprint = hashlib.sha256(self._json).hexdigest()
        ids = self._plain.get_vocab(with_added_tokens=True)
        self.vocab_size = 1 + max(ids.values())
        self.pad_token_id, self.unk_token_id, self.cls_token_id = (self._id(name) for name in ("pad", "unk", "cls"))
        self.sep_token_id, self.mask_token_id = self._id("sep"), self._id("mask")
        self.sentinel_ids = tuple(ids[token] for token in sentinel_tokens(ids))
        added = self._plain.get_added_tokens_decoder()
        self.special_ids = tuple(sorted(id for id, token in added.items() if token.special))
        self._is_forbidden = np.zeros(self.vocab_size, np.bool_)
        self._is_forbidden[[id for id in self.special_ids if id != self.unk_token_id]] = True

    def vocabulary(self) -> Vocabulary:
        """Its size and special ids, as the rest of the program takes them."""
        return Vocabulary(
            size=self.vocab_size,
            pad_token_id=self.pad_token_id,
            unk_token_id=self.unk_token_id,
            cls_token_id=self.cls_token_id,
            sep_token_id=self.sep_token_id,
            mask_token_id=self.mask_token_id,
            special_ids=self.special_ids,
            sentinel_ids=self.sentinel_ids,
        )

    def encode(self, texts: Sequence[str], words: WordSplitter | None = None) -> list[Encoded]:
        """Texts as they are: no special tokens are added, and the spelling of one inside a text is ordinary text.

        Where a vocabulary could only spell such a text with the special token itself, it becomes the unknown token;
        UnmaskError where there is none.
        """
        with without_panic("This text can't be tokenised", CHECK_TEXT):
            encodings = self._plain.encode_batch(list(texts), add_special_tokens=False)
        return self._encoded(texts, encodings, words or WordSplitter(), forbid=True)

    def encode_marked(self, text: str) -> Encoded:
        """A text of ours in which "[MASK]" and the like *are* special; none are added around it."""
        if self._marked is None:
            self._marked = build(self._json)
        with without_panic("This text can't be tokenised", CHECK_TEXT):
            encoding = self._marked.encode(text, add_special_tokens=False)
        encoded = self._encoded([text], [encoding], WordSplitter(), forbid=False)[0]
        special = np.isin(encoded.ids, self.special_ids)
        starts = encoded.word_starts | special
        starts[1:] |= special[:-1]
        return Encoded(encoded.ids, starts, encoded.offsets)

    def encode_words(self, words: Sequence[str]) -> Encoded:
        """Text that comes in words already: each begins exactly one word, and its offsets count inside that word.

        Where the vocabulary tells "word" from " word" (byte-level BPE), every word gets its space, the first one too: so a
        word has the same pieces at every place (what transformers does with `add_prefix_space`). A word without any piece
        (a zero-width space, say) becomes the unknown token, or a space where there is none: nothing shifts.
        """
        lead = [int(self.kind == "bpe" and not word.startswith(" ")) for word in words]
        spaced = [" " * space + word for space, word in zip(lead, words, strict=True)]
        parts = [_empty()]
        for word, space, encoded in zip(words, lead, self.encode(spaced), strict=True):
            offsets = np.maximum(encoded.offsets - space, 0)
            if not len(encoded.ids):
                encoded, offsets = replace(encoded, ids=self._nothing()), np.array([[0, len(word)]], np.int32)
            parts.append(Encoded(encoded.ids, np.arange(len(encoded.ids)) == 0, offsets))
        return Encoded(*(np.concatenate(column) for column in zip(*map(_columns, parts), strict=True)))

    def decode(self, ids: Sequence[int] | NDArray[np.integer]) -> str:
        """Text of ids, special tokens shown; white space is not always what it was."""
        with without_panic("These ids can't be decoded", "Give ids of this tokenizer only."):
            return str(self._plain.decode([int(id) for id in ids], skip_special_tokens=False))

    def token(self, id: int) -> str:
        """The piece as its vocabulary spells it ("##ing", "Ġthe"); "" for an id that the vocabulary skips."""
        return self._plain.id_to_token(int(id)) or ""

    def pieces(self) -> list[str]:
        """Every piece, by id."""
        return [self.token(id) for id in range(self.vocab_size)]

    def pre_tokens(self, text: str) -> list[str]:
        """The parts that are cut into pieces one by one, after normalisation and in the model's own letters."""
        with without_panic("This text can't be tokenised", CHECK_TEXT):
            plain = self._plain.normalizer.normalize_str(text) if self._plain.normalizer else text
            parts = self._plain.pre_tokenizer.pre_tokenize_str(plain) if self._plain.pre_tokenizer else [(plain, ())]
        return [part for part, _ in parts]

    def model_ids(self, pre_token: str) -> list[int]:
        """The pieces of one of `pre_tokens`."""
        with without_panic("This text can't be tokenised", CHECK_TEXT):
            return [token.id for token in self._plain.model.tokenize(pre_token)]

    def documents(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Copies of tokenizer.json and tokenizer_config.json, to derive another tokenizer from."""
        return json.loads(self._json), json.loads(json.dumps(self._config))

    def save(self, folder: Path) -> None:
        """Writes the files Hugging Face looks for; existing ones are replaced."""
        make_folder(folder)
        write_file(folder / "tokenizer.json", self._json)
        write_file(folder / "tokenizer_config.json", _pretty(self._config))
        write_file(folder / "special_tokens_map.json", _pretty(self._special_tokens_map()))
        if self.kind == "wordpiece":
            write_file(folder / "vocab.txt", "".join(piece + "\n" for piece in self.pieces()))

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """From a folder with tokenizer.json, or the vocabulary files of BERT, RoBERTa, GPT-2, or a SentencePiece model."""
        try:
            return cls(*read_folder(Path(folder)))
        except UnmaskError as error:
            raise type(error)(error.what, where=error.where or str(folder), do=error.do) from error.__cause__

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[dict[str, Any], dict[str, Any]]]:
        """Travels between processes as its two documents."""
        return type(self), (self._content, self._config)

    def _id(self, role: Role) -> int | None:
        return self._plain.token_to_id(self._names[role]) if role in self._names else None

    def _nothing(self) -> NDArray[np.uint32]:
        """What stands for a word without any piece."""
        return self.encode([" "])[0].ids[:1] if self.unk_token_id is None else np.array([self.unk_token_id], np.uint32)

    def _special_tokens_map(self) -> dict[str, Any]:
        """As configured; a folder that configures nothing gets the tokens that were found."""
        keys = [f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
        declared = {key: text for key in keys if (text := token_text(self._config.get(key))) is not None}
        return declared or {f"{role}_token": token for role, token in self._names.items()}

    def _encoded(
        self, texts: Sequence[str], encodings: Sequence[Any], splitter: WordSplitter, *, forbid: bool
    ) -> list[Encoded]:
        """All texts at once, as one text with line breaks between: word by word work is done by arrays."""
        pieces = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        ids = np.fromiter(chain.from_iterable(pieces), np.uint32, int(lengths.sum()))
        if forbid and self._is_forbidden[ids].any():
            ids[self._is_forbidden[ids]] = self.vocabulary().require("unk")
        spans = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
        offsets = np.fromiter(spans, np.int32, 2 * len(ids)).reshape(-1, 2)
        edges = np.r_[0, lengths.cumsum()].tolist()
        for text, begin, end in zip(texts, edges, edges[1:], strict=False):
            if begin < end and not text.isascii() and not unicodedata.is_normalized("NFC", text):
                _take_in_marks(text, offsets[begin:end])
        begins = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
        starts = splitter.token_starts("\n".join(texts), offsets + np.repeat(begins, lengths)[:, None])
        starts[[begin for begin, end in zip(edges, edges[1:], strict=False) if begin < end]] = True
        return [
            Encoded(ids[begin:end], starts[begin:end], offsets[begin:end])
            for begin, end in zip(edges, edges[1:], strict=False)
        ]


def _take_in_marks(text: str, offsets: NDArray[np.int32]) -> None:
    """A token whose letter was composed of several characters spans them all; the library counts the first only."""
    limits = [*offsets[1:, 0], len(text)]
    for token, limit in enumerate(limits):
        end = offsets[token, 1]
        while end < limit and (unicodedata.category(text[end])[0] == "M" or "\u1160" <= text[end] <= "\u11ff"):
            end += 1
        offsets[token, 1] = end


def _empty() -> Encoded:
    return Encoded(np.zeros(0, np.uint32), np.zeros(0, np.bool_), np.zeros((0, 2), np.int32))


def _columns(encoded: Encoded) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    return encoded.ids, encoded.word_starts, encoded.offsets


def _pretty(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
