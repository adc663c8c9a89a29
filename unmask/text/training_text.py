"""The text a tokenizer learns from: a bounded, order-free sample, made ready for the trainers of `tokenizers`.

Those trainers keep every different word in memory. So words over a length cap are left out and counted, rare characters
part words, and runs of hanzi are cut into dictionary words (which has learned pieces end where Chinese words do).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.progress import Progress, quiet
from unmask.text.words import PUNCTUATION, SPACE, character_classes, code_points

CUT = "\x00"  # parts words in training text; normalised text has none of its own
_SLICE = 1 << 16  # characters of a document that are kept or left out together
_RUN_OF_HANZI = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{2,}")


@dataclass
class Sample:
    """Slices of documents, at most `max_bytes` of UTF-8, each chosen by the hash of its own text.

    So the same texts give the same sample in any order, and a stream of any length takes the same memory.
    """

    max_bytes: int
    texts: int = 0
    characters: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    _limit: int = 1 << 64
    _slices: list[tuple[int, bytes]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Takes in one document."""
        self.texts += 1
        self.characters += len(text)
        for slice_ in _slices(text):
            data = slice_.encode("utf-8", "replace")
            self.bytes_read += len(data)
            key = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
            if key < self._limit:
                self._slices.append((key, data))
                self.bytes_kept += len(data)
        while self.bytes_kept > self.max_bytes and len(self._slices) > 1:
            self._limit = self._limit * 3 // 4
            self._slices = [item for item in self._slices if item[0] < self._limit]
            self.bytes_kept = sum(len(data) for _, data in self._slices)

    def __iter__(self) -> Iterator[str]:
        """The slices in the order of their hashes."""
        self._slices.sort()
        return (data.decode() for _, data in self._slices)


def collect(texts: Iterable[str], max_bytes: int, progress: Progress = quiet) -> Sample:
    """Reads all texts into a sample."""
    sample = Sample(max_bytes)
    for text in texts:
        sample.add(text)
        progress("reading text, characters", sample.characters, None)
    progress("reading text, characters", sample.characters, sample.characters)
    return sample


@dataclass(frozen=True)
class Characters:
    """How often each code point occurs in normalised text, at the beginning of a word and inside one."""

    initial: NDArray[np.int64]  # [0x110000]
    inner: NDArray[np.int64]  # [0x110000]

    def ranked(self) -> list[int]:
        """Code points that occur, the most frequent first; ties by code point."""
        total = self.initial + self.inner
        seen = np.flatnonzero(total)
        return [int(code) for code in seen[np.lexsort((seen, -total[seen]))]]

    def coverage(self, kept: Iterable[int]) -> float:
        """Share of the characters in the text that these code points make up."""
        total = self.initial + self.inner
        return float(total[list(kept)].sum() / max(1, total.sum()))


def count_characters(texts: Iterable[str]) -> Characters:
    """Counts every character that is no white space. A word here ends at white space and around each punctuation mark."""
    counts = Characters(np.zeros(0x110000, np.int64), np.zeros(0x110000, np.int64))
    for text in texts:
        codes, kinds = code_points(text), character_classes(text)
        breaks = (kinds == SPACE) | (kinds == PUNCTUATION)
        begins = np.ones(len(codes), np.bool_)
        begins[1:] = breaks[1:] | breaks[:-1]
        for table, chosen in ((counts.initial, begins), (counts.inner, ~begins)):
            values, times = np.unique(codes[chosen & (kinds != SPACE)], return_counts=True)
            table[values] += times
    return counts


@dataclass
class Preparation:
    """Turns normalised text into training text and counts what it leaves out."""

    max_word_length: int
    rare: set[int]  # code points that part words
    cut_hanzi: bool
    long_words: int = 0

    def __post_init__(self) -> None:
        self._table = dict.fromkeys(self.rare, CUT)
        self._long = re.compile(rf"[^\s{CUT}]{{{self.max_word_length + 1},}}")

    def __call__(self, text: str) -> str:
        """One slice made ready."""
        text = text.replace(CUT, " ")
        if self.cut_hanzi:
            text = cut_hanzi(text)
        if self._table:
            text = text.translate(self._table)
        text, dropped = self._long.subn(CUT, text)
        self.long_words += dropped
        return text


def prepared(sample: Sample, normalise: Callable[[str], str], prepare: Callable[[str], str]) -> Iterator[str]:
    """The whole sample, ready for a trainer."""
    return (prepare(normalise(text)) for text in sample)


def cut_hanzi(text: str) -> str:
    """Marks where dictionary words end inside runs of hanzi."""
    return _RUN_OF_HANZI.sub(lambda run: CUT.join(_dictionary().cut(run[0], False)), text)


@cache
def _dictionary() -> Any:
    import rjieba

    return rjieba.Jieba()


def _slices(text: str) -> Iterator[str]:
    """Parts of at most _SLICE characters, cut at white space where there is some."""
    start = 0
    while len(text) - start > _SLICE:
        stop = max(text.rfind(" ", start, start + _SLICE), text.rfind("\n", start, start + _SLICE)) + 1
        stop = stop if stop > start else start + _SLICE
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]
