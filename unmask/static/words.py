"""The words that have vectors, the most frequent first, and how often each occurs.

Legend: V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class WordCounts:
    """`words` are all different, the most frequent first; `counts` [V] says how often each occurs (0: not known).

    What was counted by us has no white space in its words. What comes from other people's files may have.
    """

    words: Sequence[str]
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        assert self.counts.shape == (len(self.words),), "one count for each word"

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """The place of each word, made when first asked for."""
        return dict(zip(self.words, range(len(self.words)), strict=True))

    @cached_property
    def folded_index(self) -> dict[str, int]:
        """The place of each word written without capitals; of words that differ only in these, the most frequent."""
        places = range(len(self.words) - 1, -1, -1)  # backwards, so that the first of equal ones is what stays
        return {word.casefold(): place for word, place in zip(reversed(self.words), places, strict=True)}

    def first(self, number: int) -> WordCounts:
        """The `number` most frequent words."""
        return WordCounts(list(islice(self.words, number)), self.counts[:number])
