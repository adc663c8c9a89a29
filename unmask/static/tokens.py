"""A corpus as word numbers on the disk: what static vectors are trained on, whatever its size.

One pass numbers each distinct word as it comes and writes the numbers down. When more distinct words have come than memory
should hold, they are put aside, sorted, and numbering begins anew; at the end the sorted lists are merged, so counts are exact
and memory holds only words that stay. A second pass over the numbers, in place, leaves out the rare words.

Legend: N words of the corpus, S lines, V distinct words that have a vector, P distinct words as they were first numbered.
"""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import Words
from unmask.errors import UnmaskError
from unmask.files import explained
from unmask.progress import Progress, quiet
from unmask.static.memory import mapped
from unmask.static.words import WordCounts
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer

DISTINCT = 4_000_000  # distinct words held in memory, some 120 bytes each
CHUNK = 1 << 20  # numbers written, or read again, at once
_RARE = -1


@dataclass(frozen=True, eq=False)
class Tokens:
    """The words of a corpus in order. Rare words are left out before windows are made, as word2vec's program does."""

    ids: NDArray[np.int32]  # [N] places in `words`, mapped from the disk
    lines: NDArray[np.int64]  # [S+1] where lines begin in `ids`, mapped too; windows never cross them
    words: WordCounts
    read: int
    """Words of the text; those that are not in `ids` were rare."""

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal words in equal order: what a checkpoint is compared with."""
        digest = hashlib.sha256("\n".join(self.words.words).encode("utf-8", "surrogatepass"))
        for numbers in (self.ids, self.lines):
            for begin in range(0, len(numbers), CHUNK):
                digest.update(np.ascontiguousarray(numbers[begin : begin + CHUNK]).data)
        return digest.hexdigest()


def tokens_of_lines(
    lines: Iterable[Sequence[str]],
    folder: Path,
    settings: Words,
    *,
    distinct: int = DISTINCT,
    progress: Progress = quiet,
) -> Tokens:
    """Numbers the words of lines (`Splitting.lines`) into files in `folder`, which must be empty and outlive the result.

    Raises UnmaskError when no word is frequent enough, and DiskError when the disk is full.
    """
    with explained(folder):
        with _Numbered(folder, distinct) as numbered:
            for line in lines:
                if numbered.add(line):
                    progress("reading, words", numbered.read, None)
            numbered.finish()
        progress("reading, words", numbered.read, numbered.read)
        words, place_P = _vocabulary(numbered, settings)
        return _kept(folder, numbered.read, words, place_P, progress)


def tokens_of_corpus(corpus: Corpus, folder: Path, settings: Words, *, progress: Progress = quiet) -> Tokens:
    """The tokens of a corpus of shards as words, its sentences as lines; special tokens never get a vector."""
    pieces = Tokenizer.load(corpus.tokenizer_folder).pieces()
    ends_D = np.cumsum(corpus.document_tokens())
    cuts = np.searchsorted(ends_D, np.arange(CHUNK, corpus.num_tokens + CHUNK, CHUNK)) + 1
    counts_P, special_P = np.zeros(len(pieces), np.int64), corpus.vocabulary.is_special()
    with explained(folder), open(folder / "numbers", "wb") as numbers, open(folder / "lines", "wb") as lines:
        first, read = 0, 0
        lines.write(np.zeros(1, np.int64).data)
        for end in np.unique(np.minimum(cuts, corpus.num_documents)).tolist():
            texts = corpus.read(np.arange(first, end))
            numbers.write(texts.tokens.astype(np.uint32).data)
            lines.write((texts.sentences[1:] + read).data)
            counts_P += np.bincount(texts.tokens, minlength=len(pieces))
            first, read = end, read + len(texts.tokens)
            progress("reading, words", read, corpus.num_tokens)
        counts_P[special_P] = 0
        entries = [(-n, at, pieces[at], [at]) for at, n in enumerate(counts_P.tolist()) if n >= settings.min_count]
    words, place_P = _places(entries, settings, len(pieces), read)
    return _kept(folder, read, words, place_P, progress)


class _Numbered:
    """Words to numbers, in files: "numbers" uint32 [N], "lines" int64 [S+1], and the sorted lists of distinct words."""

    def __init__(self, folder: Path, distinct: int) -> None:
        self.read, self.lists = 0, list[Path]()
        self.num_distinct = 0  # P so far, those put aside included
        self._folder, self._distinct = folder, distinct
        self._numbers: BinaryIO = open(folder / "numbers", "wb")
        self._lines: BinaryIO = open(folder / "lines", "wb")
        self._pending: list[int] = []
        self._pending_lines = array("q", [0])
        self._begin()

    def add(self, line: Sequence[str]) -> bool:
        """True when so much has come together that it was written down."""
        self._pending += map(self._number_of, line)
        self.read += len(line)
        self._pending_lines.append(self.read)
        if len(self._pending) < CHUNK:
            return False
        self._write()
        if len(self._number) > self._distinct:
            self._put_aside()
            self._begin()
        return True

    def finish(self) -> None:
        self._write()
        self._put_aside()

    def __enter__(self) -> _Numbered:
        return self

    def __exit__(self, *_: object) -> None:
        self._numbers.close()
        self._lines.close()

    def _begin(self) -> None:
        self._first = self.num_distinct
        self._number: defaultdict[str, int] = defaultdict()
        self._number.default_factory = self._number.__len__
        self._number_of = self._number.__getitem__
        self._counts = np.zeros(0, np.int64)

    def _write(self) -> None:
        local = np.array(self._pending, np.int64)
        counts = np.bincount(local, minlength=len(self._number))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        if self._first + len(self._number) > 2**32:
            raise UnmaskError(
                "There are more than 4 billion distinct words.", do="Is this text? Check how words are split."
            )
        self._numbers.write((local + self._first).astype(np.uint32).data)
        self._lines.write(self._pending_lines)
        self._pending, self._pending_lines = [], array("q")

    def _put_aside(self) -> None:
        """The distinct words with their counts and numbers, sorted by code points: one line each."""
        path = self._folder / f"words-{len(self.lists)}"
        counts = self._counts.tolist()
        with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
            for word, number in sorted(self._number.items()):
                file.write(f"{word} {counts[number]} {self._first + number}\n")
        self.lists.append(path)
        self.num_distinct += len(self._number)
        self._number.clear()  # it refers to itself, so nothing else would free its words soon


_Entry = tuple[int, int, str, list[int]]  # -count, first number, the word, all of its numbers


def _vocabulary(numbered: _Numbered, settings: Words) -> tuple[WordCounts, NDArray[np.int32]]:
    """The words that stay, and the place of each number among them [P]."""
    merged = heapq.merge(*map(_entries, numbered.lists), key=itemgetter(0))
    kept: list[_Entry] = []
    for word, group in groupby(merged, key=itemgetter(0)):
        found = list(group)
        count = sum(entry[1] for entry in found)
        if count >= settings.min_count:
            kept.append((-count, min(entry[2] for entry in found), word, [entry[2] for entry in found]))
    for path in numbered.lists:
        path.unlink()
    return _places(kept, settings, numbered.num_distinct, numbered.read)


def _entries(path: Path) -> Iterator[tuple[str, int, int]]:
    with open(path, encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for line in file:
            word, count, number = line.rsplit(" ", 2)
            yield word, int(count), int(number)


def _places(entries: list[_Entry], settings: Words, numbers: int, read: int) -> tuple[WordCounts, NDArray[np.int32]]:
    entries.sort()
    entries = entries[: settings.max_words] if settings.max_words else entries
    if not entries:
        raise UnmaskError(
            f"No word occurs {settings.min_count} times among {read:,} words of text.",
            do="Give more text, or a smaller words.min_count.",
        )
    place_P = np.full(numbers, _RARE, np.int32)
    for place, entry in enumerate(entries):
        place_P[entry[3]] = place
    counts_V = np.array([-entry[0] for entry in entries], np.int64)
    return WordCounts([entry[2] for entry in entries], counts_V), place_P


def _kept(folder: Path, read: int, words: WordCounts, place_P: NDArray[np.int32], progress: Progress) -> Tokens:
    """Puts places for numbers and leaves out what is rare; moves where lines begin, and leaves out lines that became empty:
    both in the same file, behind what was read."""
    numbers = mapped(folder / "numbers", np.uint32, read, "r+")
    lines = mapped(folder / "lines", np.int64, (folder / "lines").stat().st_size, "r+")
    ids = numbers.view(np.int32)
    kept, line, filled = 0, 1, 1
    for begin in range(0, read, CHUNK):
        place = place_P[numbers[begin : begin + CHUNK]]
        stays = place != _RARE
        before = np.concatenate([[0], np.cumsum(stays)]) + kept
        last = line + int(np.searchsorted(lines[line:], begin + len(place), "right"))
        ends = before[lines[line:last] - begin]
        ends = ends[np.diff(ends, prepend=lines[filled - 1]) > 0]
        lines[filled : filled + len(ends)] = ends
        place = place[stays]
        ids[kept : kept + len(place)] = place
        kept, line, filled = kept + len(place), last, filled + len(ends)
        progress("leaving out rare words, words", begin + len(stays), read)
    return Tokens(ids[:kept], lines[:filled], words, read)
