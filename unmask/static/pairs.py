"""Which words occur together how often, counted within a fixed memory: what GloVe is trained on.

Two words d places apart in a line add 1/d (Pennington et al. 2014, section 4.2). Counts are kept as whole multiples of one
small unit, so they are exact in any order. A corpus too large for the memory is counted a stretch at a time; what each gives is
put aside on the disk and merged in the end, a few tiles at a time.

Legend: N words of the corpus, P pairs that occur (a pair and its mirror image are one), Q tiles, V words.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.files import explained
from unmask.progress import Progress, quiet
from unmask.randomness import keys
from unmask.static.memory import mapped
from unmask.static.pair_loops import count_rows, index_words, into_tiles, merge_tiles, shuffle_tiles
from unmask.static.tokens import Tokens

TILE = 256  # words of a tile's side: a place in it is two bytes, and its rows stay in the processor's cache
STEP = 1 << 20  # numbers looked at, at once
_SHUFFLE = 0x70616972  # what randomness is for: the order within a row
_COLUMN = 32  # bits of a tile's column in its corner
_LAST = 2**63 - 1  # no tile's corner
_RUN = {"tiles": np.int64, "corners": np.int64, "places": np.uint16, "sums": np.int64}
_PAIRS = {"tiles": np.int64, "corners": np.int32, "high": np.uint8, "low": np.uint8, "counts": np.float32}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs that occur, by tile and row, a row in random order. `high` is the rarer of two words, or the same."""

    high: NDArray[np.uint8]  # [P] the place in the tile's rows
    low: NDArray[np.uint8]  # [P] and in its columns
    counts: NDArray[
        np.float32
    ]  # [P] how often, each occurrence weighed by 1 / distance; a pair of equal words counts twice
    tiles: NDArray[np.int64]  # [Q+1] where tiles begin
    corners: NDArray[np.int32]  # [Q, 2] the first word of each tile's rows and columns

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal pairs in equal order."""
        digest = hashlib.sha256()
        for array in (self.high, self.low, self.counts, self.tiles, self.corners):
            for begin in range(0, len(array), STEP):
                digest.update(np.ascontiguousarray(array[begin : begin + STEP]).data)
        return digest.hexdigest()

    @property
    def num_ordered(self) -> int:
        """Pairs as the paper counts them, (i, j) and (j, i) apart."""
        diagonal = np.flatnonzero(self.corners[:, 0] == self.corners[:, 1])
        bounds = zip(self.tiles[diagonal].tolist(), self.tiles[diagonal + 1].tolist(), strict=True)
        return 2 * len(self.high) - sum(int(np.count_nonzero(self.high[a:b] == self.low[a:b])) for a, b in bounds)


def unit_of(window: int) -> int:
    """How many units are 1: every 1/d of the window is a whole number of them where that is possible, else nearly so."""
    return min(math.lcm(*range(1, window + 1)), 2**28)


def count(
    tokens: Tokens, folder: Path, *, window: int, memory: int, seed: int = 0, progress: Progress = quiet
) -> Pairs:
    """Counts all pairs into files in `folder`, which must outlive the result, with `memory` bytes at most, beside 16 bytes for
    each distinct word and what a few tiles take.

    Raises DiskError when the disk is full.
    """
    # A word takes 8 bytes of index and 4 of text, a pair 28 on its way: three quarters are for the ones, one for the others.
    stretch, room = max(1, memory // 16), max(TILE * TILE, memory // 128)
    with explained(folder):
        begins = range(0, len(tokens.ids), stretch)
        parts = [_counted(tokens, begin, begin + stretch, window, room, progress) for begin in begins]
        if len(parts) > 1:
            runs = (_Run.put_aside(tiles, folder / f"run-{number}") for number, tiles in enumerate(parts))
            parts = [_merged(list(runs), room, progress)]
        key, unit = keys(seed, _SHUFFLE)[0], unit_of(window)
        arrays = _written(chain.from_iterable(parts), folder, _PAIRS, lambda tiles: _shuffled(tiles, key, unit))
        for run in folder.glob("run-*"):
            shutil.rmtree(run)
    return Pairs(**{**arrays, "corners": arrays["corners"].reshape(-1, 2)})


@dataclass(frozen=True, eq=False)
class _Tiles:
    """Tiles in ascending order. In a tile, pairs stand by row, and in a row as they first came in the text."""

    corners: NDArray[np.int64]  # [Q] which row of tiles, and in the lower half which column
    lengths: NDArray[np.int64]  # [Q] pairs of each
    places: NDArray[np.uint16]  # [P] 256 · row + column
    sums: NDArray[np.int64]  # [P] in units


def _counted(tokens: Tokens, begin: int, end: int, window: int, room: int, progress: Progress) -> Iterator[_Tiles]:
    """The pairs whose rarer word stands between two places of the text: a row of tiles at a time, or `room` pairs of it."""
    ids, words, weights = tokens.ids.view(np.uint32), len(tokens.words), _weights(window)
    begins, places = index_words(ids, tokens.lines, begin, min(end, len(ids)), window, words)
    most = np.minimum(np.diff(begins) * 2 * window, np.arange(1, words + 1))  # pairs in the row of a word
    most = np.minimum(np.add.reduceat(most, np.arange(0, words, TILE)), room + 1)
    dense, low, sums = np.zeros(words, np.int64), np.empty(most.max() + 1, np.uint32), np.empty(most.max(), np.int64)
    for row in range(len(most)):
        rows = row * TILE, min((row + 1) * TILE, words)
        step = rows[1] if most[row] <= room else room // TILE // TILE * TILE
        for column in range(0, rows[1], step):
            columns = column, column + step
            ends = count_rows(
                ids, ids.view(np.float32), begins, places, weights, rows, columns, dense, low, sums
            )  # fmt: skip
            lengths = np.zeros(row + 1, np.int64)
            parts = into_tiles(ends, low, sums, lengths)
            occurring = np.flatnonzero(lengths)
            yield _Tiles((row << _COLUMN) | occurring, lengths[occurring], *parts)
        progress("counting pairs, words", begin + int(begins[rows[1]]), len(ids))


def _weights(window: int) -> NDArray[np.int64]:
    """What two words add that stand -window to window places apart, in units."""
    unit = unit_of(window)
    after = [round(unit / distance) for distance in range(1, window + 1)]
    return np.array([*reversed(after), 0, *after], np.int64)


def _shuffled(tiles: _Tiles, key: np.uint64, unit: int) -> tuple[NDArray[Any], ...]:
    """What `_PAIRS` asks for."""
    corners = np.stack([tiles.corners >> _COLUMN, tiles.corners & (2**_COLUMN - 1)], 1) * TILE
    return corners.astype(np.int32), *shuffle_tiles(key, tiles.corners, tiles.lengths, tiles.places, tiles.sums, unit)


def _written(
    parts: Iterable[_Tiles],
    folder: Path,
    names: dict[str, type[Any]],
    content: Callable[[_Tiles], tuple[NDArray[Any], ...]],
) -> dict[str, NDArray[Any]]:
    """Files of these names, and numbers of these types: where tiles begin, and what `content` makes of them."""
    with ExitStack() as stack:
        files = [stack.enter_context(open(folder / name, "wb")) for name in names]
        files[0].write(np.zeros(1, np.int64).data)
        done = 0
        for tiles in parts:
            for file, array in zip(files, (done + np.cumsum(tiles.lengths), *content(tiles)), strict=True):
                file.write(np.ascontiguousarray(array).data)  # tofile says nothing of a full disk
            done += len(tiles.places)
    return {name: mapped(folder / name, dtype, (folder / name).stat().st_size, "r") for name, dtype in names.items()}


@dataclass(frozen=True, eq=False)
class _Run:
    """The tiles of a stretch of the text, on the disk."""

    tiles: NDArray[np.int64]  # [Q+1] where they begin
    corners: NDArray[np.int64]  # [Q]
    places: NDArray[np.uint16]  # [P]
    sums: NDArray[np.int64]  # [P]

    @classmethod
    def put_aside(cls, parts: Iterable[_Tiles], folder: Path) -> _Run:
        folder.mkdir()
        return cls(**_written(parts, folder, _RUN, lambda tiles: (tiles.corners, tiles.places, tiles.sums)))

    def end(self, first: int, most: int) -> int:
        """The corner before which, from a tile on, there are `most` pairs at most, or that tile alone."""
        end = max(first + 1, int(np.searchsorted(self.tiles, self.tiles[first] + most, "right")) - 1)
        return int(self.corners[end]) if end < len(self.corners) else _LAST


def _merged(runs: list[_Run], room: int, progress: Progress) -> Iterator[_Tiles]:
    """The tiles of all runs, equal pairs summed: as many at a time as hold `room` pairs, or one of each run."""
    firsts, total, done = [0] * len(runs), sum(len(run.places) for run in runs), 0
    while done < total:
        end = min(run.end(first, room // len(runs)) for run, first in zip(runs, firsts, strict=True))
        lasts = [int(np.searchsorted(run.corners, end)) for run in runs]
        bounds = list(zip(runs, firsts, lasts, strict=True))
        corners = np.concatenate([run.corners[a:b] for run, a, b in bounds])
        lengths = np.concatenate([np.diff(run.tiles[a : b + 1]) for run, a, b in bounds])
        places = np.concatenate([run.places[run.tiles[a] : run.tiles[b]] for run, a, b in bounds])
        sums = np.concatenate([run.sums[run.tiles[a] : run.tiles[b]] for run, a, b in bounds])
        order, ends = np.argsort(corners, kind="stable"), np.cumsum(lengths)
        yield _Tiles(*merge_tiles(corners[order], (ends - lengths)[order], ends[order], places, sums))
        firsts, done = lasts, done + len(places)
        progress("merging pairs, entries", done, total)
