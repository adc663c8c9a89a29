"""Examples to batches by token budget. The order is a pure function of (seed, epoch, pool), so any number of workers, and a
resume from any cursor, give the same batches.

An epoch is a permutation of the documents, cut into pools of about POOL_TOKENS; a pool's examples are made at once, shuffled
and dealt into batches of about equal size. No batch crosses a pool, no pool an epoch, and every document is used exactly once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from unmask.batch import PackedBatch, Targets
from unmask.config import Examples
from unmask.randomness import generator
from unmask.text.examples import Pool, cut
from unmask.text.shards import Texts
from unmask.text.vocabulary import Vocabulary

POOL_TOKENS = 2**20
EPOCH, POOL = 1, 2  # what a generator is for: keeps the two uses of (seed, epoch) apart


class Source(Protocol):
    """What the loader needs of a corpus split (text.shards.Corpus)."""

    def document_tokens(self) -> NDArray[np.int64]: ...

    def read(self, documents: NDArray[np.int64]) -> Texts: ...


class Prepare(Protocol):
    """`Objective.prepare`: corrupts and labels a batch."""

    def __call__(self, batch: PackedBatch, seed: int) -> PackedBatch: ...


@dataclass(frozen=True, order=True)
class Cursor:
    """The next batch to use; all that a checkpoint keeps of the data."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0
    made: int = 0  # batches before it in this phase of the run


class Stream(Protocol):
    """An endless sequence of batches that can be begun anywhere."""

    def since(self, cursor: Cursor, worker: int = 0, workers: int = 1) -> Iterator[tuple[PackedBatch, Cursor]]: ...


@dataclass(frozen=True)
class Batches:
    """The endless sequence of batches of a run."""

    source: Source
    examples: Examples
    vocabulary: Vocabulary
    prepare: Prepare
    seed: int
    tokens: int  # budget of one batch
    total: int = 0  # batches of the whole phase, where that is known: what a mask-rate schedule is measured by
    pool_tokens: int = POOL_TOKENS

    def since(self, cursor: Cursor, worker: int = 0, workers: int = 1) -> Iterator[tuple[PackedBatch, Cursor]]:
        """Batches from `cursor` on, each with the cursor after it; a worker makes every `workers`-th of them."""
        count, made = 0, cursor.made
        while True:
            pools = self._pools(cursor.epoch)
            for number in range(cursor.pool, len(pools)):
                pool, deal = self._deal(cursor.epoch, number, pools[number])
                for place in range(cursor.batch, len(deal)):
                    if count % workers == worker:
                        here = Cursor(cursor.epoch, number, place, made)
                        yield self._batch(pool, deal[place], here, pools[number]), self._after(here, deal, pools)
                    count, made = count + 1, made + 1
                cursor = Cursor(cursor.epoch, number + 1, 0)
            cursor = Cursor(cursor.epoch + 1, 0, 0)

    def _pools(self, epoch: int) -> list[NDArray[np.int64]]:
        """The epoch's documents in random order, cut into pools."""
        tokens = self.source.document_tokens()
        order = generator(self.seed, EPOCH, epoch).permutation(len(tokens))
        pool = (tokens[order].cumsum() - tokens[order]) // self.pool_tokens
        return np.split(order, np.flatnonzero(np.diff(pool)) + 1)

    def _deal(self, epoch: int, number: int, documents: NDArray[np.int64]) -> tuple[Pool, list[NDArray[np.int64]]]:
        """The pool's examples and which of them stand in each batch."""
        rng = generator(self.seed, POOL, epoch, number)
        pool = cut(self.source.read(documents), self.examples, self.vocabulary, rng)
        lengths = pool.lengths()
        order = rng.permutation(len(pool))
        count = max(1, round(int(lengths.sum()) / self.tokens))  # equal batches: no runt at the end of a pool
        before = lengths[order].cumsum() - lengths[order]
        batch = before * count // int(lengths.sum())
        dealt = np.split(order, np.flatnonzero(np.diff(batch)) + 1)
        return pool, [members[np.lexsort((members, lengths[members]))] for members in dealt]

    def _batch(self, pool: Pool, chosen: NDArray[np.int64], at: Cursor, documents: NDArray[np.int64]) -> PackedBatch:
        assert len(pool) < 1 << 24 and at.pool < 1 << 20, (
            "example numbers have 24 bits for the place and 20 for the pool"
        )
        ids, starts, segments, word_starts = map(torch.from_numpy, pool.pack(chosen))
        paired = np.flatnonzero(pool.label[chosen] >= 0)
        batch = PackedBatch(
            ids,
            starts,
            segments,
            word_starts,
            torch.from_numpy((np.int64(at.epoch) << 44) | (np.int64(at.pool) << 24) | chosen),
            torch.from_numpy(documents[pool.document[chosen]]),
            {"pair": Targets(torch.from_numpy(paired), torch.from_numpy(pool.label[chosen][paired]))},
            progress=min(1.0, at.made / self.total) if self.total else 0.0,
        )
        return self.prepare(batch, self.seed)

    @staticmethod
    def _after(at: Cursor, deal: list[NDArray[np.int64]], pools: list[NDArray[np.int64]]) -> Cursor:
        if at.batch + 1 < len(deal):
            return Cursor(at.epoch, at.pool, at.batch + 1, at.made + 1)
        if at.pool + 1 < len(pools):
            return Cursor(at.epoch, at.pool + 1, 0, at.made + 1)
        return Cursor(at.epoch + 1, 0, 0, at.made + 1)


class _Dataset(IterableDataset[tuple[PackedBatch, Cursor]]):
    def __init__(self, batches: Stream, cursor: Cursor):
        self.batches, self.cursor = batches, cursor

    def __iter__(self) -> Iterator[tuple[PackedBatch, Cursor]]:
        info = get_worker_info()
        if info is None:
            return self.batches.since(self.cursor)
        return self.batches.since(self.cursor, info.id, info.num_workers)


def _leave_signals_to_the_run(worker: int) -> None:
    """A signal to the whole group must not kill the workers: the run finishes its step with them, then ends them itself."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def load(batches: Stream, cursor: Cursor, *, workers: int, pin: bool = False) -> Iterator[tuple[PackedBatch, Cursor]]:
    """The batches from `cursor` on, made ahead of use by `workers` processes (0: in this one, when asked for)."""
    stream = _Dataset(batches, cursor)
    return iter(
        DataLoader(
            stream,
            batch_size=None,
            num_workers=workers,
            prefetch_factor=4 if workers else None,
            pin_memory=pin,
            multiprocessing_context="fork"
            if workers
            else None,  # workers share the corpus and the settings as they are
            worker_init_fn=_leave_signals_to_the_run,
            generator=torch.Generator(),  # else starting a loader would draw from the state that dropout draws from
        )
    )
