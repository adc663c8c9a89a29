"""The contract of everything a network can be trained to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.nn.encoder import Encoder


@dataclass(frozen=True)
class Sum:
    """A loss as a sum and how many terms it has, never a mean: (a/m + b/n) is not (a + b)/(m + n)."""

    total: Tensor
    count: int
    correct: Tensor | None = None  # right answers, counted in evaluation only
    weight: float = 1.0


Losses = Mapping[str, Sum]


class Objective(nn.Module):
    """Owns everything about one goal: how it corrupts a batch, its heads, its loss."""

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        """Corrupts and labels; pure (a function of the batch and the seed) and on the CPU, so it runs in a loader worker."""
        return batch

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        """How many terms each loss will have on this batch; known before the forward pass, so that micro-batches can be
        divided by the count of the whole step."""
        return {name: len(targets.where) for name, targets in batch.labels.items()}

    def vocabulary_rows(self, batch: PackedBatch) -> int:
        """Places at which logits over the whole vocabulary are made: what the head costs."""
        return 0

    def loss(self, encoder: Encoder, hidden_TD: Tensor, batch: PackedBatch) -> Losses:
        """Sums with counts from the encoder's output."""
        raise AssertionError("every objective has a loss")

    def forward(self, encoder: Encoder, batch: PackedBatch) -> Losses:
        return self.loss(encoder, encoder(batch), batch)


class Joint(Objective):
    """Several objectives on one pass through the encoder."""

    def __init__(self, parts: Mapping[str, Objective]):
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def _objectives(self) -> Sequence[Objective]:
        return [part for part in self.parts.values() if isinstance(part, Objective)]

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        for part in self._objectives():
            batch = part.prepare(batch, seed)
        return batch

    def vocabulary_rows(self, batch: PackedBatch) -> int:
        return sum(part.vocabulary_rows(batch) for part in self._objectives())

    def loss(self, encoder: Encoder, hidden_TD: Tensor, batch: PackedBatch) -> Losses:
        return {name: s for part in self._objectives() for name, s in part.loss(encoder, hidden_TD, batch).items()}


def combine(losses: Losses, counts: Mapping[str, int]) -> Tensor:
    """One number to differentiate: each term over its count in the whole optimizer step (all micro-batches, all ranks)."""
    terms = [s.weight * s.total / max(1, counts[name]) for name, s in losses.items()]
    return torch.stack(terms).sum()
