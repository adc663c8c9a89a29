"""Vectors as they come out of a file, block after block: one array that grows in place, and the words it belongs to.

Legend: V words, D dimension, R rows of a block.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from unmask.static.formats.report import VectorReport
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts

_WHITE = re.compile(r"[^\S\n]")


class Rows:
    """Takes rows until `limit` of them are kept (0: all); words that were there already and empty ones are left out."""

    def __init__(self, dimension: int, report: VectorReport, limit: int):
        self._matrix = np.empty((0, dimension), np.float32)
        self._words: list[str] = []
        self._known: set[str] = set()
        self._report, self._limit = report, limit

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._matrix.shape[1]

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return 0 < self._limit == len(self._words)

    @property
    def left(self) -> int:
        """How many rows the limit still allows; 0: there is no limit."""
        return self._limit - len(self._words) if self._limit else 0

    def room(self, rows: int, expected: float) -> NDArray[np.float32]:
        """[rows, D] Where the next rows go. `expected` guesses how many there will be in all.

        The memory is that of the whole array and moves when this is called again: use it before.
        """
        begin, end = len(self._words), len(self._words) + rows
        if end > len(self._matrix):
            guess = int(expected * 1.02) if not len(self._matrix) else len(self._matrix) * 5 // 4
            guess = min(guess, self._limit) if self._limit else guess
            self._matrix.resize((max(end, guess), self.dimension), refcheck=False)
        return self._matrix[begin:end]

    def add(self, names: bytes, rows: int) -> None:
        """Keeps the first `rows` of what was written into the room; `names` are their words, parted by line feeds."""
        begin = len(self._words)
        words = self._decoded(names)
        assert len(words) == rows, "a word for each row"
        self._report.rows += rows
        different = set(words)
        if len(different) == rows and "" not in different and different.isdisjoint(self._known):
            self._known |= different
        else:
            kept = self._new(words)
            self._matrix[begin : begin + len(kept)] = self._matrix[begin : begin + rows][kept]
            words = [words[row] for row in kept]
        self._words += words

    def vectors(self) -> Vectors:
        """What was kept; how often the words occur is not known."""
        self._matrix.resize((len(self._words), self.dimension), refcheck=False)
        return Vectors(WordCounts(self._words, np.zeros(len(self._words), np.int64)), self._matrix)

    def _new(self, words: list[str]) -> list[int]:
        """The rows whose words are neither known nor empty."""
        kept = []
        for row, word in enumerate(words):
            if not word:
                self._report.nameless += 1
            elif word in self._known:
                self._report.duplicates += 1
            else:
                self._known.add(word)
                kept.append(row)
        return kept

    def _decoded(self, names: bytes) -> list[str]:
        try:
            text = names.decode()
        except UnicodeDecodeError:
            text = names.decode(errors="replace")
            parts = zip(names.split(b"\n"), text.split("\n"), strict=True)
            self._report.broken += sum(word.encode() != name for name, word in parts)
        if _WHITE.search(text):
            self._report.spaced += sum(_WHITE.search(word) is not None for word in text.split("\n"))
        return text.split("\n")
