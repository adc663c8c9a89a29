"""Texts as a network takes them, end to end, with what is to be learned at which of their tokens: the common form of all tasks.

Legend: T tokens in all, N sequences, M labelled places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Labels:
    """What is scored, sequence by sequence: `place_M` tokens counted inside their own sequence, `value_M` [M] or [M, C]."""

    starts: NDArray[np.int64]  # [N+1] which of the M belong to each sequence
    place_M: NDArray[np.int64]
    value_M: NDArray[Any]

    @classmethod
    def one_each(cls, values: NDArray[Any]) -> Labels:
        """One label for each sequence, at its first token."""
        return cls(np.arange(len(values) + 1), np.zeros(len(values), np.int64), values)

    @classmethod
    def of(cls, places: Sequence[Sequence[int]], values: Sequence[Sequence[Any]], dtype: Any = np.int64) -> Labels:
        """From lists, one of each a sequence."""
        starts = np.cumsum([0, *map(len, places)])
        flat = [place for row in places for place in row]
        return cls(starts, np.array(flat, np.int64), np.array([value for row in values for value in row], dtype))


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences with their special tokens. Those of one `unit` (the windows of a document, a query with its passages) are
    only ever dealt together; `example_N` says which record a sequence was made of."""

    ids_T: NDArray[np.int32]
    starts: NDArray[np.int64]  # [N+1]
    example_N: NDArray[np.int64]
    unit_N: NDArray[np.int64]  # ascending, from 0 without gaps
    token_type_ids_T: NDArray[np.int8] | None = None
    labels: Mapping[str, Labels] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def num_units(self) -> int:
        return int(self.unit_N[-1]) + 1 if len(self.unit_N) else 0

    def lengths(self) -> NDArray[np.int64]:
        """[N] tokens of each."""
        return np.diff(self.starts)

    def gather(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of some sequences: where their tokens stand in `ids_T`, and the cumulative lengths of what that gathers."""
        return ragged(self.starts, chosen)


def ragged(starts: NDArray[np.int64], chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows `chosen` of a ragged array: the places of their members, and cumulative sizes."""
    sizes = np.diff(starts)[chosen]
    ends = sizes.cumsum()
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[chosen] - (ends - sizes), sizes)
    return places, np.r_[0, ends]
