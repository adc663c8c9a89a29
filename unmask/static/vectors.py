"""Words and their vectors, ready for use: similarity, neighbours, analogies.

Likeness is the cosine. Legend: V words, D dimension, Q queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.static.nearest import Nearest, nearest, nearest_by_product, unit_rows
from unmask.static.ngrams import Ngrams
from unmask.static.words import WordCounts

Method = Literal["add", "mul"]


class Neighbor(NamedTuple):
    """An answer and how good it is: a cosine, or 3CosMul's quotient."""

    word: str
    score: float


@dataclass(frozen=True, eq=False)
class Vectors:
    """`matrix` [V, D] holds the vectors of `words`, in their order; `ngrams`, where there are any, give others theirs.

    The rule for a word that is not among them: its vector is the mean of its n-grams' vectors; where there are no n-grams,
    or it is too short for one, it has none, and asking for it raises UnmaskError. A zero vector is like nothing: 0.
    """

    words: WordCounts
    matrix: NDArray[np.float32]
    ngrams: Ngrams | None = None

    def __post_init__(self) -> None:
        assert self.matrix.ndim == 2 and len(self.matrix) == len(self.words), "a row for each word"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self.matrix.shape[1]

    @cached_property
    def unit(self) -> NDArray[np.float32]:
        """[V, D] The vectors at length 1 (zero ones stay zero); made when first asked for, and kept."""
        return unit_rows(self.matrix)

    def find(self, word: str) -> NDArray[np.float32] | None:
        """[D] The vector of a word, from its n-grams if need be; None where it has none."""
        place = self.words.index.get(word)
        if place is not None:
            return self.matrix[place]
        return self.ngrams.vector(word) if self.ngrams else None

    def vector(self, word: str) -> NDArray[np.float32]:
        """[D] The vector of a word, from its n-grams if need be. UnmaskError where it has none."""
        found = self.find(word)
        if found is None:
            raise self._unknown(word)
        return found

    def similarity(self, one: str, other: str) -> float:
        """The cosine of two words."""
        left, right = self._units([one, other]).astype(np.float64)
        return float(left @ right)

    def neighbors(self, query: str | NDArray[np.float32], k: int = 10, *, limit: int = 0) -> list[Neighbor]:
        """The `k` words most like a word (but not itself) or a vector [D]; with `limit`, of the most frequent so many."""
        return self.neighbors_of([query] if isinstance(query, str) else query[None], k, limit=limit)[0]

    def neighbors_of(
        self, queries: Sequence[str] | NDArray[np.float32], k: int = 10, *, limit: int = 0
    ) -> list[list[Neighbor]]:
        """`neighbors` of many words, or of many vectors [Q, D], at once."""
        self._require(k, limit)
        if isinstance(queries, np.ndarray):
            if queries.ndim != 2 or queries.shape[1] != self.dimension or not np.isfinite(queries).all():
                raise UnmaskError(
                    f"queries must be finite vectors of {self.dimension} numbers, not {queries.shape}",
                    where="neighbors",
                )
            units, excluded = unit_rows(np.asarray(queries, np.float32)), [list[int]() for _ in queries]
        else:
            units, excluded = self._units(queries), [self._places([word], limit) for word in queries]
        return self._named(nearest(self._among(limit), units, k, excluded))

    def analogy(self, a: str, b: str, c: str, k: int = 10, *, method: Method = "add", limit: int = 0) -> list[Neighbor]:
        """What is to `c` as `b` is to `a`? The three themselves are no answers.

        "add" is 3CosAdd (Mikolov et al. 2013, "Linguistic Regularities"): the greatest cosine to b - a + c, all at length 1;
        "mul" is 3CosMul (Levy and Goldberg 2014).
        """
        self._require(k, limit)
        a_1D, b_1D, c_1D = self._units([a, b, c])[:, None]
        excluded = [self._places([a, b, c], limit)]
        return self._named(answers(self._among(limit), a_1D, b_1D, c_1D, k, excluded, method))[0]

    def _units(self, words: Sequence[str]) -> NDArray[np.float32]:
        """[Q, D]"""
        return unit_rows(np.array([self.vector(word) for word in words], np.float32).reshape(-1, self.dimension))

    def _places(self, words: Sequence[str], limit: int) -> list[int]:
        places = [self.words.index[word] for word in words if word in self.words.index]
        return [place for place in places if not limit or place < limit]

    def _among(self, limit: int) -> NDArray[np.float32]:
        return self.unit[: limit or None]

    def _named(self, found: Nearest) -> list[list[Neighbor]]:
        words, rows = self.words.words, zip(*(part.tolist() for part in found), strict=True)
        return [
            [Neighbor(words[place], score) for place, score in zip(ids, scores, strict=True) if place >= 0]
            for ids, scores in rows
        ]

    def _require(self, k: int, limit: int) -> None:
        if k < 1 or limit < 0:
            raise UnmaskError(
                f"k is {k} and limit {limit}", where="neighbors", do="ask for 1 or more; limit 0 means all"
            )

    def _unknown(self, word: str) -> UnmaskError:
        similar = self.words.folded_index.get(word.casefold())
        why = "it is too short for an n-gram" if self.ngrams else "there are no n-grams to make one from"
        return UnmaskError(
            f"{word!r} has no vector: it is not among the {len(self.words):,} words, and {why}",
            where="the vectors",
            do="ask for another word" if similar is None else f"did you mean {self.words.words[similar]!r}?",
        )


def answers(
    unit_VD: NDArray[np.float32],
    a_QD: NDArray[np.float32],
    b_QD: NDArray[np.float32],
    c_QD: NDArray[np.float32],
    k: int,
    excluded: Sequence[Sequence[int]],
    method: Method,
) -> Nearest:
    """Many analogies at once, from vectors at length 1: the rows that answer, and their scores."""
    if method == "mul":
        return nearest_by_product(unit_VD, a_QD, b_QD, c_QD, k, excluded)
    return nearest(unit_VD, unit_rows(b_QD - a_QD + c_QD), k, excluded)
