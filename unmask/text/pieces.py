"""Many texts to pieces at once, without special tokens, each with the user's characters it stands for where that is asked.

Legend: T tokens end to end, N texts, C characters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.text.frame import Frame, Slices, pair_frame, text_frame
from unmask.text.graphemes import clusters
from unmask.text.tokenizer import Tokenizer
from unmask.text.tokenizer_json import CHECK_TEXT, build, has_charsmap, without_panic
from unmask.text.words import PUNCTUATION, SPACE, character_classes, code_points

Ints = NDArray[np.int64]

AT_ONCE = 1024  # texts per call of the tokenizer: what it returns takes some ten times the memory of the ids
_NOTHING = (
    np.zeros(0, np.int32),
    np.zeros(0, np.int64),
    np.zeros((0, 2), np.int64),
)  # ids, counts, offsets of no texts


@dataclass(frozen=True, eq=False)
class Pieces:
    """Different texts as ids end to end; text n of those asked for is number `index_N[n]` of them."""

    ids_T: NDArray[np.int32]
    starts: Ints
    index_N: Ints
    offsets_T2: Ints | None = None  # begin and end in the text

    def offsets(self, where: Ints) -> Ints:
        """[M, 2] begin and end in its text of the tokens at `where` in `ids_T`."""
        assert self.offsets_T2 is not None
        return self.offsets_T2[where]

    def slices(self, size_N: Ints) -> Slices:
        """The first tokens of each text."""
        return Slices(self.ids_T, self.begins(), size_N)

    def begins(self) -> Ints:
        """[N] where the tokens of each text begin."""
        return self.starts[self.index_N]

    def sizes(self) -> Ints:
        """[N] tokens of each text."""
        return np.diff(self.starts)[self.index_N]


class PieceEncoder:
    """A tokenizer's own instance of the tokenizers library, set up once: no call changes it, so threads may share it.

    The spelling of a special token inside a text is ordinary text; with `lowercase` texts are made lower-case first.
    """

    def __init__(self, tokenizer: Tokenizer, *, lowercase: bool = False):
        """UnmaskError where it gives no text an ordinary token."""
        self.lowercase = lowercase
        content, _ = tokenizer.documents()
        self._plain = build(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
        self._plain.encode_special_tokens = True
        self._vocabulary = tokenizer.vocabulary()
        self._is_special = self._vocabulary.is_special()
        if self._vocabulary.unk_token_id is not None:
            self._is_special[self._vocabulary.unk_token_id] = False
        normalizer = self._plain.normalizer
        self._removed = _removed_signs(content, normalizer)
        self._joins_quotes = normalizer is not None and normalizer.normalize_str("``") == '"'  # ALBERT
        self.alone: Frame = text_frame(self._in_frame, tokenizer)
        self.pair: Frame | None = pair_frame(self._in_frame, tokenizer, self.alone)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """As the library gives them: a vocabulary that can spell a special token with nothing else does so."""
        return [encoding.ids for encoding in self._batch(self._plain.encode_batch_fast, texts)]

    def without_forged(self, ids_T: NDArray[np.int32]) -> NDArray[np.int32]:
        """The ids, special ones changed into the unknown one in place; UnmaskError where there is none."""
        forged = self._is_special[ids_T]
        if forged.any():
            ids_T[forged] = self._vocabulary.require("unk")
        return ids_T

    def encode(self, texts: Sequence[str], *, aligned: bool = False) -> Pieces:
        """Ids of texts, equal ones encoded once; with offsets if `aligned`.

        Offsets cut out whole characters as a reader sees them, without white space at the edges; a token of white space
        alone gets an empty span where that ends.
        """
        distinct, index_N = _distinct(texts)
        chunks = (distinct[at : at + AT_ONCE] for at in range(0, len(distinct), AT_ONCE))
        parts = [_NOTHING, *(self._part(chunk, aligned) for chunk in chunks)]
        ids_T, counts, offsets_T2 = (np.concatenate(column) for column in zip(*parts, strict=True))
        starts = np.r_[0, counts.cumsum()]
        return Pieces(self.without_forged(ids_T), starts, index_N, offsets_T2 if aligned else None)

    def _part(self, texts: list[str], aligned: bool) -> tuple[NDArray[np.int32], Ints, Ints]:
        """Ids, how many tokens each text has, and offsets if `aligned`."""
        if not aligned:
            ids_T, counts = _flat(self.ids(texts))
            return ids_T, counts, _NOTHING[2]
        given = [self._given(text) for text in texts]
        encodings = self._batch(self._plain.encode_batch, [text for text, _ in given])
        ids_T, counts = _flat([encoding.ids for encoding in encodings])
        spans = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
        offsets_T2 = np.fromiter(spans, np.int64, 2 * len(ids_T)).reshape(-1, 2)
        ends = counts.cumsum()
        for (_, owner_C), begin, end in zip(given, ends - counts, ends, strict=True):
            if owner_C is not None:
                offsets_T2[begin:end] = _of_owners(offsets_T2[begin:end], owner_C)
        return ids_T, counts, self._whole_characters(texts, offsets_T2, counts)

    def _given(self, text: Any) -> tuple[str, Ints | None]:
        """A text that the library aligns rightly, and the character of the user's that each of what it sees is."""
        if not isinstance(text, str):
            return text, None  # the library refuses it
        owner_C = None
        if not self._removed.isdisjoint(text):
            shorter = "".join(sign for sign in text if sign not in self._removed)
            same, other = self.ids([text, shorter])
            if same == other:
                owner_C = np.array([at for at, sign in enumerate(text) if sign not in self._removed], np.int64)
                text = shorter
        if self.lowercase and not text.isascii() and len(text.lower()) != len(text):
            letter_C = np.repeat(np.arange(len(text)), [len(letter.lower()) for letter in text])
            owner_C = letter_C if owner_C is None else owner_C[letter_C]
        return text, owner_C

    def _whole_characters(self, texts: list[str], offsets_T2: Ints, count_N: Ints) -> Ints:
        """Offsets made as wide as a reader sees them; all texts at once, as one with a line break after each."""
        sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
        shift_T1 = np.repeat(sizes.cumsum() - sizes, count_N)[:, None]
        text, offsets_T2 = "".join(text + "\n" for text in texts), offsets_T2 + shift_T1
        if self._joins_quotes:
            _take_in_quotes(text, offsets_T2)
        return whole_characters(text, offsets_T2) - shift_T1

    def _batch(self, encode: Any, texts: Sequence[str]) -> list[Any]:
        """One call of the library; where it fails, the error shows the text that it fails at."""
        try:
            return self._call(encode, texts)
        except UnmaskError:
            for text in texts:
                try:
                    self._call(encode, [text])
                except UnmaskError as error:
                    raise UnmaskError(error.what, where=f"the text {_shown(text)}", do=error.do) from error
            raise

    def _call(self, encode: Any, texts: Sequence[str]) -> list[Any]:
        with without_panic("This text can't be tokenised", CHECK_TEXT):
            given = [text.lower() for text in texts] if self.lowercase else list(texts)
            return list(encode(given, add_special_tokens=False))

    def _in_frame(self, text: str, pair: str | None = None) -> Any:
        if self.lowercase:
            text, pair = text.lower(), None if pair is None else pair.lower()
        with without_panic("The tokenizer puts no frame around a text"):
            return self._plain.encode(text, pair, add_special_tokens=True)


def whole_characters(text: str, offsets_T2: Ints) -> Ints:
    """Spans [T, 2] without the white space at their edges, and wide enough to cut out whole characters."""
    if not text:
        return offsets_T2
    begin_C, end_C = clusters(code_points(text))
    places = np.flatnonzero(character_classes(text) != SPACE)
    if not len(places):
        return np.repeat(offsets_T2[:, 1:], 2, axis=1)
    first_T = np.searchsorted(
        places, offsets_T2[:, 0]
    )  # the first character that is no space, and the one after the last
    after_T = np.searchsorted(places, offsets_T2[:, 1])
    blank_T = first_T >= after_T
    begin_T = begin_C[places[np.minimum(first_T, len(places) - 1)]]
    end_T = end_C[places[np.maximum(after_T - 1, 0)]]
    return np.where(blank_T[:, None], offsets_T2[:, 1:], np.stack([begin_T, end_T], 1))


def _removed_signs(content: dict[str, Any], normalizer: Any) -> frozenset[str]:
    """The control characters that SentencePiece's table removes: the library miscounts them in front of a text, of what
    follows an added token, and after signs that become several. Empty where there is no such table."""
    if not has_charsmap(content):
        return frozenset()
    return frozenset(chr(code) for code in range(0xA0) if not normalizer.normalize_str(chr(code)))


def _of_owners(offsets_T2: Ints, owner_C: Ints) -> Ints:
    """Spans of characters as spans of their owners."""
    begin_T, end_T = offsets_T2.T
    begins = np.r_[owner_C, owner_C[-1:] + 1][begin_T]
    return np.stack([begins, np.where(begin_T == end_T, begins, owner_C[end_T - 1] + 1)], 1)


def _take_in_quotes(text: str, offsets_T2: Ints) -> None:
    """Of two marks that became one, the library counts the last only: a token takes in the marks before it that are left."""
    borders = np.zeros(len(text) + 1, np.int64)
    np.add.at(borders, offsets_T2[:, 0], 1)
    np.add.at(borders, offsets_T2[:, 1], -1)
    left_C = (borders.cumsum()[:-1] == 0) & (character_classes(text) == PUNCTUATION)
    last_C = np.maximum.accumulate(np.where(left_C, -1, np.arange(len(text))))  # the last character that is not left
    begin_T = offsets_T2[:, 0]
    offsets_T2[:, 0] = np.where(begin_T > 0, last_C[begin_T - 1] + 1, 0)


def _flat(rows: list[list[int]]) -> tuple[NDArray[np.int32], Ints]:
    """All ids end to end, and how many each row has."""
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(counts.sum())), counts


def _distinct(texts: Sequence[str]) -> tuple[list[str], Ints]:
    """The different ones, and which of them each is."""
    numbers: dict[str, int] = {}
    index = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), np.array(index, np.int64)


def _shown(text: Any) -> str:
    return repr(text) if len(repr(text)) < 80 else repr(text)[:80] + " …"
