"""Which words occur together how often, counted within a fixed memory: what GloVe is trained on.

Two words d places apart in a line add 1/d (Pennington et al. 2014, section 4.2). Counts are kept as whole multiples of one
small unit, so they are exact and don't depend on when memory was full: then the table is sorted and put aside on the disk, and
in the end all that was put aside is merged, a band of words at a time.

Legend: N words of the corpus, P pairs that occur (a pair and its mirror image are one), Q tiles, V words.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unmask.files import explained
from unmask.progress import Progress, quiet
from unmask.randomness import generator
from unmask.static.memory import mapped
from unmask.static.pair_loops import count_pairs, dense_entries, sort_and_sum, table_entries
from unmask.static.tokens import Tokens

TILE = 256  # words of a tile's side: a place in it is two bytes, and its rows stay in the processor's cache
STEP = 1 << 20  # words counted between two signs of progress
_SCRAMBLE = 0x70616972  # what the random order within a tile is drawn for
_IN_TILE = np.uint64(TILE * TILE - 1)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs that occur, by tile; within a tile in random order. `high` is the rarer of two words, or the same."""

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
        same = sum(
            int(np.count_nonzero(self.high[a:b] == self.low[a:b]))
            for (a, b), (row, column) in zip(self._bounds(), self.corners.tolist(), strict=True)
            if row == column
        )
        return 2 * len(self.high) - same

    def _bounds(self) -> Iterator[tuple[int, int]]:
        return zip(self.tiles[:-1].tolist(), self.tiles[1:].tolist(), strict=True)


def unit_of(window: int) -> int:
    """How many units are 1: every 1/d of the window is a whole number of them where that is possible, else nearly so."""
    return min(math.lcm(*range(1, window + 1)), 2**28)


def count(
    tokens: Tokens, folder: Path, *, window: int, memory: int, seed: int = 0, progress: Progress = quiet
) -> Pairs:
    """Counts all pairs into files in `folder`, which must outlive the result, with tables of `memory` bytes at most; sorting
    what they hold takes about as much again.

    Raises DiskError when the disk is full.
    """
    with explained(folder):
        scrambled = generator(seed, _SCRAMBLE).permutation(TILE * TILE).astype(np.uint64)
        runs = list(_runs(tokens, folder, window, memory, scrambled, progress))
        return _merged(runs, folder, unit_of(window), memory, np.argsort(scrambled).astype(np.uint64), progress)


@dataclass(frozen=True, eq=False)
class _Run:
    """Sorted keys, all different, and their sums."""

    keys: NDArray[np.uint64]
    sums: NDArray[np.int64]

    @classmethod
    def of(cls, keys: NDArray[np.uint64], sums: NDArray[np.int64], scrambled: NDArray[np.uint64]) -> _Run:
        """From entries in no order. The places within a tile are scrambled: neighbours in a row, one after the other, would
        pull the same vector again and again."""
        return cls(*sort_and_sum((keys & ~_IN_TILE) | scrambled[keys & _IN_TILE], sums))

    def put_aside(self, path: Path) -> _Run:
        for name, array in (("keys", self.keys), ("sums", self.sums)):
            with open(f"{path}.{name}", "wb") as file:
                file.write(np.ascontiguousarray(array).data)  # tofile says nothing of a full disk
        return _Run(np.memmap(f"{path}.keys", np.uint64, "r"), np.memmap(f"{path}.sums", np.int64, "r"))


def _runs(
    tokens: Tokens, folder: Path, window: int, memory: int, scrambled: NDArray[np.uint64], progress: Progress
) -> Iterator[_Run]:
    frequent, places = _sizes(tokens, memory)
    dense = np.zeros(frequent * (frequent + 1) // 2, np.int64)
    keys, sums = np.zeros(places, np.uint64), np.zeros(places, np.int64)
    unit = unit_of(window)
    weights = np.array([0, *(round(unit / distance) for distance in range(1, window + 1))], np.int64)
    at, used, number, most = 0, 0, 0, places * 7 // 10 - window
    while at < len(tokens.ids):
        end = min(at + STEP, len(tokens.ids))
        at, used = count_pairs(tokens.ids[:end], tokens.lines, at, weights, frequent, dense, keys, sums, used, most)
        progress("counting pairs, words", at, len(tokens.ids))
        if used > most:
            yield _Run.of(*table_entries(keys, sums, used), scrambled).put_aside(folder / f"run-{number}")
            used, number = 0, number + 1
    yield _Run.of(*table_entries(keys, sums, used), scrambled)
    del keys, sums
    yield _Run.of(*dense_entries(dense, frequent), scrambled)


def _sizes(tokens: Tokens, memory: int) -> tuple[int, int]:
    """Words of the triangle, which takes a quarter of the memory at most, and places of the table, which takes half.

    Both are smaller for a small corpus: what stays in the processor's cache is faster, and little is put aside there.
    """
    words = len(tokens.ids)
    frequent = math.isqrt(min(memory, max(16 * words, 1 << 24)) // 16)
    places = min(memory, max(8 * words, 1 << 24)) // 32
    return min(len(tokens.words), max(1, frequent)), 1 << places.bit_length() - 1


def _merged(
    runs: list[_Run], folder: Path, unit: int, memory: int, ordered: NDArray[np.uint64], progress: Progress
) -> Pairs:
    """Sums equal keys of all runs, a band of rows of tiles at a time, and writes the tiles."""
    lengths, corners, done = list[NDArray[np.int64]](), list[NDArray[np.uint64]](), 0
    total = sum(len(run.keys) for run in runs)
    with (
        open(folder / "high", "wb") as high,
        open(folder / "low", "wb") as low,
        open(folder / "counts", "wb") as counts,
    ):
        for bounds in _bands(runs, min(memory // 64, STEP)):
            keys = np.concatenate([run.keys[a:b] for run, (a, b) in zip(runs, bounds, strict=True)])
            sums = np.concatenate([run.sums[a:b] for run, (a, b) in zip(runs, bounds, strict=True)])
            done += len(keys)
            keys, sums = sort_and_sum(keys, sums)
            first = np.flatnonzero(np.diff(keys >> np.uint64(16), prepend=~np.uint64(0)))
            lengths.append(np.diff(first, append=len(keys)))
            corners.append(keys[first] >> np.uint64(16))
            places = ordered[keys & _IN_TILE]
            same = ((places >> np.uint64(8)) == (places & np.uint64(0xFF))) & (
                (keys >> np.uint64(40)) == ((keys >> np.uint64(16)) & np.uint64(0xFFFFFF))
            )
            high.write((places >> np.uint64(8)).astype(np.uint8).data)
            low.write((places & np.uint64(0xFF)).astype(np.uint8).data)
            counts.write((sums * (1.0 + same) / unit).astype(np.float32).data)
            progress("merging pairs, entries", done, total)
    del runs
    for path in folder.glob("run-*"):
        path.unlink()
    tiles = (
        np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64) if lengths else np.zeros(1, np.int64)
    )
    corner = np.concatenate(corners) if corners else np.zeros(0, np.uint64)
    rows, columns = (corner >> np.uint64(24)) * TILE, (corner & np.uint64(0xFFFFFF)) * TILE
    pairs = int(tiles[-1])
    return Pairs(
        mapped(folder / "high", np.uint8, pairs, "r"),
        mapped(folder / "low", np.uint8, pairs, "r"),
        mapped(folder / "counts", np.float32, pairs, "r"),
        tiles,
        np.stack([rows, columns], 1).astype(np.int32),
    )


def _bands(runs: list[_Run], most: int) -> Iterator[list[tuple[int, int]]]:
    """Stretches of each run that hold the same rows of tiles, as many rows as keep within `most` entries, one at least."""
    last = max((int(run.keys[-1]) >> 40 for run in runs if len(run.keys)), default=-1)
    edges = np.arange(last + 2, dtype=np.uint64) << np.uint64(40)
    places = [np.searchsorted(run.keys, edges) for run in runs]
    ends = np.sum(places, axis=0)
    row = 0
    while row <= last:
        until = max(row + 1, int(np.searchsorted(ends, ends[row] + most, "right")) - 1)
        yield [(int(place[row]), int(place[until])) for place in places]
        row = until
