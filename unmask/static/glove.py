"""Trains GloVe vectors on counted pairs: epochs of tiles in random order, on all cores, resumable between stretches of tiles.

With one thread everything is bit-identical, however often it was interrupted. With several, threads change the same vectors
without waiting for each other, and no two runs are quite equal.

Legend: V words, D dimension, E the dimension filled up to a multiple of 8, Q tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import Glove
from unmask.errors import UnmaskError
from unmask.progress import Progress, quiet
from unmask.randomness import generator
from unmask.static.checkpoint import MINUTES, Checkpoint, Identity, told
from unmask.static.glove_loops import BIASES, train_tiles
from unmask.static.memory import aligned, padded
from unmask.static.pairs import Pairs

STRETCH = 1 << 21  # pairs trained between two looks at the clock
_BEGIN, _DEAL = 0x676C6F76, 0x74696C65  # what randomness is for: the first vectors, the order of tiles
_CHUNK = 1 << 14  # rows drawn at once


@dataclass(frozen=True, eq=False)
class GloveResult:
    """What training gives: the sum of a word's two vectors, and the second alone, as (w + w̃) - w̃ is w."""

    vectors: NDArray[np.float32]  # [V, D]
    context: NDArray[np.float32]  # [V, D]
    costs: list[float]
    """Of each epoch: the mean over pairs, (i, j) and (j, i) apart, of the cost before each update."""
    finished: bool
    """False when `stop` ended it before."""


@dataclass(eq=False)
class _State:
    """Rows as `train_tiles` has them, for both sides; how many stretches are done."""

    main: NDArray[np.float32]  # [V, 2E + 16]
    context: NDArray[np.float32]
    stretches: int
    sums: list[float]  # of the cost, by epoch

    def tables(self) -> dict[str, NDArray[np.float32]]:
        return {"main": self.main, "context": self.context}

    def is_finite(self) -> bool:
        return all(np.isfinite(rows.sum(dtype=np.float64)) for rows in self.tables().values())


def train(
    pairs: Pairs,
    num_words: int,
    settings: Glove,
    *,
    threads: int = 1,
    checkpoint: Path | None = None,
    minutes: float = MINUTES,
    stop: Callable[[], bool] = bool,
    progress: Progress = quiet,
) -> GloveResult:
    """Trains and returns the vectors of `num_words` words.

    With a `checkpoint` folder, training begins where that was written, and writes it anew every `minutes`, at the end of an
    epoch where one went by, and when `stop`, asked between stretches, says so. Raises UnmaskError for a checkpoint of other
    pairs or settings, and when the cost is no number any more; the checkpoint before that stays.
    """
    if not len(pairs.high):
        raise UnmaskError("no two words stand together in any line", do="give text with more than one word in a line")
    plan = _Plan(pairs, settings)
    state = _begun(num_words, settings)
    saved = Checkpoint(checkpoint, partial(_identity, pairs, num_words, settings), state.tables(), minutes)
    if held := saved.load():
        state.stretches, state.sums = held["stretches"], held["sums"]
    stopped = False
    with ThreadPoolExecutor(threads) as pool:
        while state.stretches < len(plan) and not stopped:
            epoch, chosen = plan[state.stretches]
            cost = _train(pool, threads, pairs, chosen, state, settings)
            if not np.isfinite(cost):
                raise _diverged(epoch, checkpoint, settings)
            state.sums[epoch] += cost
            state.stretches += 1
            ended = state.stretches % plan.per_epoch == 0
            stopped = stop()
            due = stopped or saved.is_due(at_end_of_epoch=ended)
            if (ended or due) and not state.is_finite():
                raise _diverged(epoch, checkpoint, settings)  # the cost is that of before each update
            if due:
                saved.save({"stretches": state.stretches, "sums": state.sums})
            progress("training, epochs", state.stretches / plan.per_epoch, settings.epochs)
    return _result(state, settings.dimension, pairs.num_ordered, state.stretches == len(plan))


def _identity(pairs: Pairs, num_words: int, settings: Glove) -> Identity:
    return {
        "settings": told(settings),
        "pairs": {"words": num_words, "pairs": len(pairs.high), "fingerprint": pairs.fingerprint[:16]},
        "stretches": {"pairs": STRETCH},
    }


def _diverged(epoch: int, checkpoint: Path | None, settings: Glove) -> UnmaskError:
    return UnmaskError(
        f"the vectors have grown beyond all bounds in epoch {epoch + 1}",
        where=str(checkpoint or "training"),
        do=f"set a learning_rate below {settings.learning_rate:g}"
        + (", and delete this checkpoint" if checkpoint and checkpoint.exists() else ""),
    )


class _Plan:
    """Which tiles make up each stretch, epoch after epoch."""

    def __init__(self, pairs: Pairs, settings: Glove) -> None:
        self._lengths = np.diff(pairs.tiles)
        self._epochs, self._seed = settings.epochs, settings.seed
        self.per_epoch = -(-len(pairs.high) // STRETCH)
        self._order: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def __len__(self) -> int:
        return self._epochs * self.per_epoch

    def __getitem__(self, stretch: int) -> tuple[int, NDArray[np.int64]]:
        """The epoch of a stretch, and its tiles in order."""
        epoch, part = divmod(stretch, self.per_epoch)
        if self._order[0] != epoch:
            order = generator(self._seed, _DEAL, epoch).permutation(len(self._lengths))
            ends = np.cumsum(self._lengths[order])
            cuts = np.searchsorted(ends, np.arange(1, self.per_epoch) * ends[-1] / self.per_epoch, "right")
            self._order = (epoch, np.split(order, cuts))
        return epoch, self._order[1][part]


def _train(
    pool: ThreadPoolExecutor,
    threads: int,
    pairs: Pairs,
    chosen: NDArray[np.int64],
    state: _State,
    settings: Glove,
) -> float:
    """One stretch, of which each thread takes every so many-th tile; its cost."""

    def work(thread: int) -> float:
        return train_tiles(
            chosen[thread::threads], pairs.tiles, pairs.corners, pairs.high, pairs.low, pairs.counts,
            state.main, state.context, settings.x_max, settings.power, settings.learning_rate,
        )[0]  # fmt: skip

    return sum(pool.map(work, range(threads)))


def _begun(num_words: int, settings: Glove) -> _State:
    draw = generator(settings.seed, _BEGIN)
    main, context = (_table(num_words, settings.dimension, draw) for _ in range(2))
    return _State(main, context, 0, [0.0] * settings.epochs)


def _table(num_words: int, dimension: int, draw: np.random.Generator) -> NDArray[np.float32]:
    """Vectors and biases drawn evenly from ±0.5 / D, sums from 1 on, as the authors' program begins."""
    width = padded(dimension)
    length = 2 * width + BIASES
    rows = aligned(num_words * length).reshape(num_words, length)
    for first in range(0, num_words, _CHUNK):
        part = rows[first : first + _CHUNK]
        drawn = (draw.random((len(part), dimension + 1), np.float32) - np.float32(0.5)) / np.float32(dimension)
        part[:, :dimension], part[:, 2 * width] = drawn[:, :-1], drawn[:, -1]
        part[:, width : 2 * width], part[:, 2 * width + 1] = 1, 1
    return rows


def _result(state: _State, dimension: int, ordered: int, finished: bool) -> GloveResult:
    main, context = state.main[:, :dimension], state.context[:, :dimension]
    return GloveResult(main + context, context.copy(), [total / ordered for total in state.sums], finished)
