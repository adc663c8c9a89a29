"""How good are static vectors? Word similarity as people judge it, and analogies. Imports no torch.

Both are defined as in gensim and in the word2vec program: capitals are ignored, of words that differ only in these the most
frequent one is meant, what is not among the `limit` most frequent words is unknown, and pairs and analogies with an unknown
word are left out and counted. Legend: N pairs or questions, R words that may answer, D dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.measure.correlation import spearman
from unmask.measure.word_sets import Analogy, WordPair
from unmask.progress import Progress, quiet
from unmask.static.nearest import unit_rows
from unmask.static.vectors import Method, Vectors, answers

MOST_FREQUENT = 300_000  # gensim's limit; word2vec's own compute-accuracy is used with 30,000
_QUESTIONS = 1024  # answered between two signs of progress


@dataclass(frozen=True)
class WordSimilarity:
    """Spearman's correlation of cosines with people's scores; nan where fewer than two pairs, or only equal ones, are left."""

    spearman: float
    pairs: int
    used: int
    unknown: tuple[str, ...]
    """The words that have no vector, each once, as they first occur."""

    @property
    def unknown_pairs(self) -> int:
        """Pairs left out because a word has no vector."""
        return self.pairs - self.used


@dataclass(frozen=True)
class AnalogySection:
    """One kind of analogy: how many were asked, how many had all four words, how many were right."""

    name: str
    questions: int
    used: int
    correct: int

    @property
    def accuracy(self) -> float:
        """The share of the used ones; nan where there are none."""
        return self.correct / self.used if self.used else math.nan


@dataclass(frozen=True)
class AnalogyScore:
    """The sections of a set, and all of them together."""

    sections: tuple[AnalogySection, ...]

    @property
    def total(self) -> AnalogySection:
        """All questions; each counts the same."""
        return self._sum("total", self.sections)

    @property
    def semantic(self) -> AnalogySection:
        """Of Google's set: what is not `syntactic`."""
        return self._sum("semantic", [section for section in self.sections if not section.name.startswith("gram")])

    @property
    def syntactic(self) -> AnalogySection:
        """Of Google's set: the sections whose names begin with gram."""
        return self._sum("syntactic", [section for section in self.sections if section.name.startswith("gram")])

    @staticmethod
    def _sum(name: str, sections: Sequence[AnalogySection]) -> AnalogySection:
        counts = [(part.questions, part.used, part.correct) for part in sections]
        return AnalogySection(name, *(sum(count[column] for count in counts) for column in range(3)))


def word_similarity(
    vectors: Vectors, pairs: Sequence[WordPair], *, ignore_case: bool = True, limit: int = MOST_FREQUENT
) -> WordSimilarity:
    """Are words that people find alike near each other? A word of two equal vectors counts as 1, a zero vector as 0.

    Unlike gensim, vectors with n-grams also take part with words they don't know. `limit` 0: all words.
    """
    places = _places(vectors, ignore_case, limit)
    known, unknown = dict[str, NDArray[np.float32]](), list[str]()
    for word in dict.fromkeys(word for pair in pairs for word in (pair.one, pair.other)):
        place = places.get(_folded(word, ignore_case))
        if place is not None:
            known[word] = vectors.matrix[place]
        elif vectors.ngrams is None or (vector := vectors.ngrams.vector(word)) is None:
            unknown.append(word)
        else:
            known[word] = vector
    used = [pair for pair in pairs if pair.one in known and pair.other in known]
    ones, others = (
        unit_rows(np.array([known[word] for word in side], np.float32).reshape(-1, vectors.dimension)).astype(
            np.float64
        )
        for side in ([pair.one for pair in used], [pair.other for pair in used])
    )
    cosines = np.einsum("nd,nd->n", ones, others)
    return WordSimilarity(spearman([pair.score for pair in used], cosines), len(pairs), len(used), tuple(unknown))


def word_analogies(
    vectors: Vectors,
    questions: Sequence[Analogy],
    *,
    method: Method = "add",
    ignore_case: bool = True,
    limit: int = MOST_FREQUENT,
    progress: Progress = quiet,
) -> AnalogyScore:
    """Is the nearest word to b - a + c ("add"), or the best by 3CosMul ("mul"), the right one? See `Vectors.analogy`.

    Only one word of those that differ in capitals is ever an answer; gensim takes any of them for it, and has no evaluation
    by 3CosMul (the function it is given for that is not used). `limit` 0: all words.
    """
    places = _places(vectors, ignore_case, limit)
    row_of = {word: row for row, word in enumerate(places)}
    units_RD = unit_rows(vectors.matrix[np.fromiter(places.values(), np.int64, len(places))])
    words = [[row_of.get(_folded(word, ignore_case), -1) for word in question[1:]] for question in questions]
    row_N4 = np.array(words, np.int64).reshape(-1, 4)
    used_N = np.all(row_N4 >= 0, axis=1)
    right_N = np.zeros(len(row_N4), np.bool_)
    right_N[used_N] = _right(units_RD, row_N4[used_N], method, progress)
    return AnalogyScore(_by_section(questions, used_N, right_N))


def _right(
    units_RD: NDArray[np.float32], row_N4: NDArray[np.int64], method: Method, progress: Progress
) -> NDArray[np.bool_]:
    right_N = np.zeros(len(row_N4), np.bool_)
    for begin in range(0, len(row_N4), _QUESTIONS):
        progress("answering, analogies", begin, len(row_N4))
        part = row_N4[begin : begin + _QUESTIONS]
        a, b, c = (units_RD[part[:, column]] for column in range(3))
        best, _ = answers(units_RD, a, b, c, 1, part[:, :3].tolist(), method)
        right_N[begin : begin + _QUESTIONS] = best[:, 0] == part[:, 3]
    progress("answering, analogies", len(row_N4), len(row_N4))
    return right_N


def _by_section(
    questions: Sequence[Analogy], used_N: NDArray[np.bool_], right_N: NDArray[np.bool_]
) -> tuple[AnalogySection, ...]:
    names = list(dict.fromkeys(question.section for question in questions))
    number = {name: place for place, name in enumerate(names)}
    section_N = np.array([number[question.section] for question in questions], np.int64)
    counts = [np.bincount(section_N[chosen], minlength=len(names)) for chosen in (slice(None), used_N, right_N)]
    return tuple(AnalogySection(name, *map(int, row)) for name, row in zip(names, np.stack(counts, 1), strict=True))


def _places(vectors: Vectors, ignore_case: bool, limit: int) -> dict[str, int]:
    """The places of the words that count, by how they are looked up; the most frequent first."""
    if limit < 0:
        raise UnmaskError(f"the limit is {limit}", where="measuring vectors", do="give a number of words; 0 takes all")
    places = dict[str, int]()
    for place, word in enumerate(islice(vectors.words.words, limit or None)):
        places.setdefault(_folded(word, ignore_case), place)
    return places


def _folded(word: str, ignore_case: bool) -> str:
    return word.casefold() if ignore_case else word
