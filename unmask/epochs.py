"""Batches of labelled sequences, epoch after epoch: what fine-tuning reads. The order is a pure function of (seed, epoch), so a
resume from any cursor, with any number of workers, gives the same batches.

Legend: N sequences, U units (a unit is what is dealt as one).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import PackedBatch, Targets
from unmask.loader import Cursor, Prepare
from unmask.randomness import generator
from unmask.text.sequences import Sequences, ragged

DEAL = 3  # what a generator is for: keeps this use of (seed, epoch) apart from the corpus loader's


def pack(sequences: Sequences, chosen: NDArray[np.int64]) -> PackedBatch:
    """Some sequences as a batch, shortest first (fewer groups for attention); `examples` are their numbers."""
    chosen = chosen[np.lexsort((chosen, sequences.lengths()[chosen]))]
    tokens, starts = sequences.gather(chosen)
    types = sequences.token_type_ids_T
    labels = {}
    for name, part in sequences.labels.items():
        members, counts = ragged(part.starts, chosen)
        where = part.place_M[members] + np.repeat(starts[:-1], np.diff(counts))
        labels[name] = Targets(torch.from_numpy(where), torch.from_numpy(part.value_M[members]))
    return PackedBatch(
        torch.from_numpy(sequences.ids_T[tokens].astype(np.int64)),
        torch.from_numpy(starts.astype(np.int32)),
        None if types is None else torch.from_numpy(types[tokens].astype(np.int64)),
        examples=torch.from_numpy(chosen),
        documents=torch.from_numpy(sequences.example_N[chosen]),
        labels=labels,
    )


@dataclass(frozen=True)
class Epochs:
    """The endless sequence of batches of a fine-tuning run: `units` of them each, in a new random order every epoch."""

    sequences: Sequences
    prepare: Prepare
    seed: int
    units: int

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch; the last one may be smaller."""
        return -(-self.sequences.num_units // self.units)

    def since(self, cursor: Cursor, worker: int = 0, workers: int = 1) -> Iterator[tuple[PackedBatch, Cursor]]:
        """Batches from `cursor` on, each with the cursor after it; a worker makes every `workers`-th of them."""
        assert cursor.batch < self.per_epoch, "a cursor of other data"
        count = 0
        while True:
            order = generator(self.seed, DEAL, cursor.epoch).permutation(self.sequences.num_units)
            for place in range(cursor.batch, self.per_epoch):
                last = place + 1 == self.per_epoch
                after = Cursor(cursor.epoch + last, 0, 0 if last else place + 1, cursor.made + 1)
                if count % workers == worker:
                    dealt = order[place * self.units : (place + 1) * self.units]
                    yield self.prepare(pack(self.sequences, self._members(dealt)), self.seed), after
                count, cursor = count + 1, after

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """[U+1] which of the sequences belong to each unit."""
        return np.searchsorted(self.sequences.unit_N, np.arange(self.sequences.num_units + 1))

    def _members(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        return ragged(self._starts, units)[0]


def token_budget(sequences: Sequences, tokens: int, *, whole_units: bool = False) -> Iterator[PackedBatch]:
    """Every sequence once, for evaluation and prediction: near-equal lengths together, about `tokens` a batch, and one
    sequence at least. With `whole_units` no batch parts a unit."""
    lengths = sequences.lengths()
    if not len(lengths):
        return
    if whole_units:
        key = np.zeros(sequences.num_units, np.int64)
        np.maximum.at(key, sequences.unit_N, lengths)
        order = np.lexsort((np.arange(len(lengths)), sequences.unit_N, key[sequences.unit_N]))
        begins = np.flatnonzero(np.diff(sequences.unit_N[order], prepend=-1))
    else:
        order, begins = np.argsort(lengths, kind="stable"), np.arange(len(lengths))
    first, spent = 0, 0
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        size = int(lengths[order[begin:end]].sum())
        if spent and spent + size > tokens:
            yield pack(sequences, order[first:begin])
            first, spent = int(begin), 0
        spent += size
    yield pack(sequences, order[first:])
