"""Curves of any length in bounded memory: records are merged into buckets that keep the mean, the lowest and the highest value.

Early buckets are narrow and later ones wide, so that a curve of a million steps can still be looked at on a logarithmic axis,
where its first hundred steps matter most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SPAN = 40  # a logarithmic axis up to the largest step has ln(2**53) = 37 e-folds; each gets its share of the buckets
_ROWS_BETWEEN_MERGES = 4096


@dataclass(frozen=True)
class Curve:
    """One figure over the steps: `steps`, `mean`, `low` and `high` have equal length; NaN where nothing was recorded."""

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass
class _Column:
    total: NDArray[np.float64]
    count: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Thinned:
    """A table of figures by step. Takes rows one at a time, holds at most `limit` buckets, forgets no extreme."""

    def __init__(self, limit: int = 1200):
        self._limit = limit
        self._width = 1.0
        self._rows: list[tuple[int, Mapping[str, float]]] = []
        self._columns: dict[str, _Column] = {}
        self.last_step = -1

    def add(self, step: int, values: Mapping[str, float], *, beside: bool = False) -> bool:
        """Takes the finite `values` of one step. A step at or below the last one replaces what came after it; True says so.

        `beside` lets an equal step stand: where a phase begins, the same weights are measured in two ways.
        """
        again = step < self.last_step or (step == self.last_step and not beside)
        if again:
            self.cut(step - 1)
        self.last_step = step
        self._rows.append((step, values))
        if len(self._rows) >= _ROWS_BETWEEN_MERGES:
            self._merge()
        return again

    def cut(self, step: int) -> None:
        """Forgets everything after `step`: a run that was killed and resumed does those steps again."""
        self._merge()
        if "step" in self._columns:
            kept = int(np.searchsorted(self._columns["step"].low, step, side="right"))
            for name, column in self._columns.items():
                self._columns[name] = _Column(*(part[:kept] for part in _parts(column)))
        self.last_step = min(self.last_step, step)

    def names(self) -> list[str]:
        """The figures recorded at least once, in order of appearance."""
        self._merge()
        return [name for name, column in self._columns.items() if name != "step" and column.count.any()]

    def curve(self, name: str) -> Curve:
        """The figure `name` as recorded so far; an unknown name gives an empty curve."""
        self._merge()
        if name not in self._columns:
            nothing = np.zeros(0)
            return Curve(nothing, nothing, nothing, nothing)
        step, column = self._columns["step"], self._columns[name]
        mean = np.divide(column.total, column.count, out=np.full(len(column.total), np.nan), where=column.count > 0)
        return Curve(step.total / step.count, mean, column.low, column.high)

    def _merge(self) -> None:
        """Moves the waiting rows into the table, then makes buckets wider until they fit."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        names = dict.fromkeys(["step", *self._columns, *(name for _, values in rows for name in values)])
        old = len(self._columns["step"].total) if self._columns else 0
        for name in names:
            before = self._columns.get(name) or _empty(old)
            fresh = [float(step) if name == "step" else values.get(name, np.nan) for step, values in rows]
            self._columns[name] = _joined(before, _exact(np.array(fresh)))
        first = self._columns["step"].low
        while (groups := len(np.unique(_bucket(first, self._width, self._limit / _SPAN)))) > self._limit:
            self._width *= 2
        if groups < len(first) > self._limit:
            starts = np.flatnonzero(np.diff(_bucket(first, self._width, self._limit / _SPAN), prepend=-1))
            self._columns = {name: _reduced(column, starts) for name, column in self._columns.items()}


def _bucket(step: NDArray[np.float64], width: float, per_fold: float) -> NDArray[np.int64]:
    """The bucket number of a step, where a bucket at step s is clip(s / per_fold, 1, width) steps wide."""
    early, late = per_fold, width * per_fold
    middle = early + per_fold * np.log(np.clip(step, early, late) / early)
    number = np.where(step <= early, step, middle + np.maximum(step - late, 0) / width)
    return np.floor(number).astype(np.int64)


def _parts(column: _Column) -> tuple[NDArray[np.float64], ...]:
    return column.total, column.count, column.low, column.high


def _empty(length: int) -> _Column:
    return _exact(np.full(length, np.nan))


def _exact(values: NDArray[np.float64]) -> _Column:
    """Buckets of one value each; NaN makes an empty one."""
    there = ~np.isnan(values)
    return _Column(np.where(there, values, 0.0), there.astype(np.float64), values, values)


def _joined(one: _Column, other: _Column) -> _Column:
    return _Column(*(np.concatenate(pair) for pair in zip(_parts(one), _parts(other), strict=True)))


def _reduced(column: _Column, starts: NDArray[np.int64]) -> _Column:
    return _Column(
        np.add.reduceat(column.total, starts),
        np.add.reduceat(column.count, starts),
        np.fmin.reduceat(column.low, starts),
        np.fmax.reduceat(column.high, starts),
    )
