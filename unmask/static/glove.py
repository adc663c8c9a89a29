"""Trains GloVe vectors on counted pairs: epochs of tiles in random order, on all cores, resumable between stretches of tiles.

With one thread everything is bit-identical, however often it was interrupted. With several, threads change the same vectors
without waiting for each other, and no two runs are quite equal.

Legend: V words, D dimension, E the dimension filled up to a multiple of 8, Q tiles.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import Glove
from unmask.errors import UnmaskError
from unmask.files import MANIFEST, check_sizes, read_manifest, write_folder
from unmask.progress import Progress, quiet
from unmask.randomness import generator
from unmask.settings import plain
from unmask.static.glove_loops import train_tiles
from unmask.static.memory import padded
from unmask.static.pairs import Pairs
from unmask.static.tensor_file import map_tensors, write_tensors

STRETCH = 1 << 21  # pairs trained between two looks at the clock
SAVE_EVERY = 300.0  # seconds between checkpoints, at most
_BEGIN, _DEAL = 0x676C6F76, 0x74696C65  # what randomness is for: the first vectors, the order of tiles
_FORMAT, _TENSORS = "unmask glove checkpoint", "state.safetensors"


@dataclass(frozen=True, eq=False)
class GloveResult:
    """What training gives: the sum of a word's two vectors, and the second alone, as (w + w̃) - w̃ is w."""

    vectors: NDArray[np.float32]  # [V, D]
    context: NDArray[np.float32]  # [V, D]
    costs: list[float]
    """Of each epoch: the mean over pairs, (i, j) and (j, i) apart, of the cost before each update."""


@dataclass(eq=False)
class _State:
    """Rows of vector [E], sums of squared steps [E], bias and its sum, for both sides; how many stretches are done."""

    main: NDArray[np.float32]  # [V, 2E + 2]
    context: NDArray[np.float32]
    stretches: int
    sums: list[float]  # of the cost, by epoch


def train(
    pairs: Pairs,
    num_words: int,
    settings: Glove,
    *,
    threads: int = 1,
    checkpoint: Path | None = None,
    save_every: float = SAVE_EVERY,
    progress: Progress = quiet,
) -> GloveResult:
    """Trains and returns the vectors of `num_words` words.

    With a `checkpoint` folder, training begins where that was written, and writes it anew after each `save_every` seconds and
    each epoch. Raises UnmaskError for a checkpoint of other pairs or settings, and when the cost is no number any more; the
    checkpoint before that stays.
    """
    if not len(pairs.high):
        raise UnmaskError("no two words stand together in any line", do="give text with more than one word in a line")
    plan = _Plan(pairs, settings)
    told = {name: value for name, value in plain(settings).items() if name != "memory"}  # which changes nothing
    identity = {"pairs": pairs.fingerprint, "words": num_words, "settings": told, "stretch": STRETCH}
    state = _resumed(checkpoint, identity) or _begun(num_words, settings)
    saved = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        while state.stretches < len(plan):
            epoch, chosen = plan[state.stretches]
            cost = _train(pool, threads, pairs, chosen, state, settings)
            if not np.isfinite(cost):
                raise _diverged(epoch, checkpoint, settings)
            state.sums[epoch] += cost
            state.stretches += 1
            ended = state.stretches % plan.per_epoch == 0
            if ended and not all(np.isfinite(rows.sum(dtype=np.float64)) for rows in (state.main, state.context)):
                raise _diverged(epoch, checkpoint, settings)  # the cost is that of before each update
            if checkpoint and (ended or time.monotonic() - saved > save_every):
                _save(checkpoint, identity, state)
                saved = time.monotonic()
            progress("training, epochs", state.stretches / plan.per_epoch, settings.epochs)
    return _result(state, settings.dimension, pairs.num_ordered)


def _diverged(epoch: int, checkpoint: Path | None, settings: Glove) -> UnmaskError:
    return UnmaskError(
        f"the vectors have grown beyond all bounds in epoch {epoch + 1}",
        where=str(checkpoint or "training"),
        do=f"set a learning_rate below {settings.learning_rate:g}"
        + (", and delete this checkpoint" if checkpoint else ""),
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
    """Vectors and biases drawn evenly from ±0.5 / D, sums from 1 on, as the authors' program begins."""
    width = padded(settings.dimension)
    draw = generator(settings.seed, _BEGIN)
    sides = np.zeros((2, num_words, 2 * width + 2), np.float32)
    for side in sides:
        side[:, : settings.dimension] = (draw.random((num_words, settings.dimension)) - 0.5) / settings.dimension
        side[:, width : 2 * width] = 1
        side[:, 2 * width] = (draw.random(num_words) - 0.5) / settings.dimension
        side[:, 2 * width + 1] = 1
    return _State(sides[0], sides[1], 0, [0.0] * settings.epochs)


def _result(state: _State, dimension: int, ordered: int) -> GloveResult:
    main, context = state.main[:, :dimension], state.context[:, :dimension]
    return GloveResult(main + context, context.copy(), [total / ordered for total in state.sums])


# --- checkpoints -----------------------------------------------------------------------------------------------------------
def _save(folder: Path, identity: dict[str, Any], state: _State) -> None:
    about = {"format": _FORMAT, "of": identity, "stretches": state.stretches, "sums": state.sums}
    with write_folder(folder, replace=True, about=about) as temporary:
        write_tensors(temporary / _TENSORS, {"main": state.main, "context": state.context})


def _resumed(folder: Path | None, identity: dict[str, Any]) -> _State | None:
    """What the checkpoint holds; None where there is none."""
    if folder is None or not (folder / MANIFEST).is_file():
        return None
    check_sizes(folder)
    about = read_manifest(folder)["about"]
    if about.get("format") != _FORMAT or about["of"] != identity:
        raise UnmaskError(
            "this checkpoint is of other text or other settings",
            where=str(folder),
            do="give what it was begun with, or delete it to begin anew",
        )
    arrays = map_tensors(folder / _TENSORS)
    return _State(arrays["main"].copy(), arrays["context"].copy(), about["stretches"], list(about["sums"]))
