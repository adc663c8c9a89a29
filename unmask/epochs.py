"""Batches of labelled sequences, epoch after epoch: what fine-tuning reads. The order is a pure function of (seed, epoch), so a
resume from any cursor, with any number of workers, gives the same batches.

Legend: N sequences, U units (a unit is what is dealt as one).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import PackedBatch, Targets
from unmask.loader import Cursor, Prepare
from unmask.randomness import generator
from unmask.text.sequences import Sequences, ragged

DEAL = 3  # what a generator is for: keeps this use of (seed, epoch) apart from the corpus loader's
AHEAD = 4  # batches: how far ahead a batch looks for units that fit it


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
    """The endless sequence of batches of a fine-tuning run: `units` of them each, in a new random order every epoch.

    Where sequences have a `text` label (the number of their text), units that share the text of a query or a positive are
    kept apart as far as AHEAD allows: they are no negatives of each other, and a batch of them would teach little.
    """

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
            order = self._order(cursor.epoch)
            for place in range(cursor.batch, self.per_epoch):
                last = place + 1 == self.per_epoch
                after = Cursor(cursor.epoch + last, 0, 0 if last else place + 1, cursor.made + 1)
                if count % workers == worker:
                    dealt = order[place * self.units : (place + 1) * self.units]
                    yield self.prepare(pack(self.sequences, self._members(dealt)), self.seed), after
                count, cursor = count + 1, after

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """[U] in which the units are dealt; the same for every worker and after any resume."""
        order = generator(self.seed, DEAL, epoch).permutation(self.sequences.num_units)
        return np.array(list(apart(order.tolist(), self._shared, self.units)), np.int64) if self._shared else order

    @cached_property
    def _shared(self) -> dict[int, set[int]]:
        """The units that share a query's or a positive's text with another, each with those texts."""
        labels = self.sequences.labels
        if not {"text", "query", "positive"} <= labels.keys():
            return {}
        asks_N = np.diff(labels["query"].starts) > 0
        answers_N = ~asks_N
        answers_N[answers_N] = labels["positive"].value_M == 1
        units, texts = self.sequences.unit_N[asks_N | answers_N], labels["text"].value_M[asks_N | answers_N]
        pairs = np.unique(np.stack([texts, units], 1), axis=0)
        _, which, counts = np.unique(pairs[:, 0], return_inverse=True, return_counts=True)
        found: dict[int, set[int]] = {}
        for text, unit in pairs[counts[which] > 1].tolist():
            found.setdefault(unit, set()).add(text)
        return found

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """[U+1] which of the sequences belong to each unit."""
        return np.searchsorted(self.sequences.unit_N, np.arange(self.sequences.num_units + 1))

    def _members(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        return ragged(self._starts, units)[0]


def apart(order: Sequence[int], texts: Mapping[int, set[int]], size: int) -> Iterator[int]:
    """The same units, each batch of `size` without two that share one of `texts` where the next AHEAD batches allow it.

    A unit that does not fit waits for the next batch, in which those that wait come first: the oldest always fits. An order
    without such pairs stays as it is.
    """
    coming, waiting = iter(order), list[int]()
    while waiting or (waiting := list(islice(coming, size))):
        waiting += islice(coming, AHEAD * size - len(waiting))
        taken, seen, left = list[int](), set[int](), list[int]()
        for unit in waiting:
            own = texts.get(unit, set())
            if len(taken) < size and seen.isdisjoint(own):
                taken.append(unit)
                seen |= own
            else:
                left.append(unit)
        lacking = size - len(taken)
        yield from taken + left[:lacking]
        waiting = left[lacking:]


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
