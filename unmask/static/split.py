"""Text to lines of words: what a static vector can stand for."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from unmask.errors import UnmaskError
from unmask.text.documents import Document
from unmask.text.words import WordSplitter

SLICE = 1 << 20  # characters taken at once: a file may be a single line


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """Where words begin and end.

    `rule` words takes running text: words as whole-word masking has them, hanzi joined by the segmenter if there is one, without
    punctuation and without symbols at their ends. `rule` spaces takes text that is split already: whatever stands between white
    space (Unicode's) is a word. A line is a context of its own: no window reaches beyond it.
    """

    rule: Literal["words", "spaces"] = "words"
    lowercase: bool = True
    words: WordSplitter = field(default_factory=WordSplitter)

    def __post_init__(self) -> None:
        if self.rule not in ("words", "spaces"):
            raise UnmaskError(f"unknown rule {self.rule!r}", do="give words or spaces")
        if self.rule == "spaces" and self.words != WordSplitter():
            raise UnmaskError(
                "a segmenter finds words in running text", do="leave out the segmenter, or take rule words"
            )

    def lines(self, documents: Iterable[Document]) -> Iterator[list[str]]:
        """The words of each line that has any. A very long line comes in several parts, cut at white space if it has some."""
        for document in documents:
            for text in _slices(document.text):
                text = text.lower() if self.lowercase else text
                yield from (words for words in self._split(text) if words)

    def _split(self, text: str) -> Iterator[list[str]]:
        if self.rule == "spaces":
            return (line.split() for line in text.split("\n"))
        return self._running(text)

    def _running(self, text: str) -> Iterator[list[str]]:
        """All words of the text at once, then dealt to its lines: short lines would cost an array operation each."""
        breaks = [at for at, character in enumerate(text) if character == "\n"] if "\n" in text else []
        bounds = [*np.flatnonzero(self.words.starts(text)).tolist(), len(text)]
        found = [text[a:b].strip() for a, b in pairwise(bounds)]
        line_W = np.searchsorted(
            breaks, np.asarray(bounds[1:]) - 1
        )  # of a word's last character: white space comes first
        first = 0
        for end in np.searchsorted(line_W, np.arange(1, len(breaks) + 2)).tolist():
            yield [bare for word in found[first:end] if (bare := word if word.isalnum() else _bare(word))]
            first = end


def _bare(word: str) -> str:
    """The word from its first letter or digit to its last, marks on letters included; empty where it has none.

    What the rule of words leaves on its ends are symbols and invisible characters: £500, a byte order mark, an emoji.
    """
    at = [place for place, character in enumerate(word) if unicodedata.category(character)[0] in "LNM"]
    begin = next((place for place in at if word[place].isalnum()), None)
    return "" if begin is None else word[begin : at[-1] + 1]


def _slices(text: str) -> Iterator[str]:
    """The text in parts of some `SLICE` characters that end at white space, or anywhere in a word that is longer."""
    begin = 0
    while len(text) - begin > SLICE:
        end = text.rfind("\n", begin, begin + SLICE) + 1 or begin + SLICE
        while end > begin and not text[end - 1].isspace():
            end -= 1
        end = end if end > begin else begin + SLICE
        yield text[begin:end]
        begin = end
    yield text[begin:]
