"""The contract of everything a network can be trained to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.nn.embeddings import Tables
from unmask.nn.encoder import MULTIPLE, Encoder
from unmask.nn.kernels.vocabulary import Scored


@dataclass(frozen=True)
class Sum:
    """A loss as a sum and how many terms it has, never a mean: (a/m + b/n) is not (a + b)/(m + n)."""

    total: Tensor
    count: int
    correct: Tensor | None = None  # right answers, counted in evaluation only
    weight: float = 1.0

    @classmethod
    def of(cls, scored: Scored, count: int) -> Sum:
        """A loss over the vocabulary."""
        return cls(scored.total, count, scored.correct)


Losses = Mapping[str, Sum]


class Objective(nn.Module):
    """Owns everything about one goal: how it corrupts a batch, its heads, its loss."""

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        """Corrupts and labels; pure (a function of the batch and the seed) and on the CPU, so it runs in a loader worker."""
        return batch

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        """How many terms each loss will have on this batch; known before the forward pass, so that micro-batches can be
        divided by the count of the whole step."""
        raise AssertionError("every objective counts its terms")

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        """Arithmetic of one forward pass beyond the encoder's own: heads, a generator, a decoder."""
        return 0.0

    def depth(self, config: EncoderConfig) -> int:
        """How many of the encoder's layers `loss` reads; the rest are not run."""
        return config.num_hidden_layers

    def reads(self, batch: PackedBatch) -> Tensor | None:
        """[M] the tokens of a prepared batch whose last states `loss` looks at, in any order; None: all of them."""
        return None

    def begin(self, encoder: Encoder, batch: PackedBatch) -> tuple[PackedBatch, Losses]:
        """What happens on the device before the encoder's pass: ELECTRA's generator fills the blanks."""
        return batch, {}

    def tables(self) -> tuple[Tables, ...]:
        """Embedding tables added to the encoder's own."""
        return ()

    def states(self, encoder: Encoder, batch: PackedBatch) -> list[Tensor]:
        """The embedded tokens and the state after each layer, as far as `loss` reads them."""
        return encoder.layers(batch, *self.tables(), until=self.depth(encoder.config), read_M=batch.read)

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        """Sums with counts from what `states` gave, or from all of the encoder's layers."""
        raise AssertionError("every objective has a loss")

    def outputs(self, layers: Sequence[Tensor], batch: PackedBatch) -> dict[str, Tensor]:
        """What a task answers, from what `states` gave: fp32, in the batch's order; only tasks that people ask have this."""
        raise AssertionError("this objective answers nothing")

    def predict(self, encoder: Encoder, batch: PackedBatch) -> dict[str, Tensor]:
        """`outputs` of a batch."""
        batch = batch.with_(read=self.reads(batch))
        return self.outputs(self.states(encoder, batch), batch)

    def judge(self, encoder: Encoder, batch: PackedBatch) -> tuple[Losses, dict[str, Tensor]]:
        """Losses and `outputs` of a task's prepared batch, of one pass through the encoder."""
        layers = self.states(encoder, batch)
        return self.loss(encoder, layers, batch), self.outputs(layers, batch)

    def settle(self, encoder: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The encoder's tensors as they are used once training is over."""
        return dict(encoder)

    def forward(self, encoder: Encoder, batch: PackedBatch) -> Losses:
        batch, losses = self.begin(encoder, batch)
        return {**losses, **self.loss(encoder, self.states(encoder, batch), batch)}


class Joint(Objective):
    """Several objectives on one pass through the encoder."""

    def __init__(self, parts: Mapping[str, Objective]):
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def members(self) -> dict[str, Objective]:
        """The objectives by kind."""
        return {kind: part for kind, part in self.parts.items() if isinstance(part, Objective)}

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        for part in self.members().values():
            batch = part.prepare(batch, seed)
        return self.with_reads(batch)

    def with_reads(self, batch: PackedBatch) -> PackedBatch:
        """The prepared batch, which knows the tokens that any loss looks at."""
        found = [part.reads(batch) for part in self.members().values()]
        read = [where for where in found if where is not None]
        return batch.with_(read=_rounded(torch.cat(read), len(batch.input_ids)) if len(read) == len(found) else None)

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {name: count for part in self.members().values() for name, count in part.counts(batch).items()}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        return sum(part.flops(config, batch) for part in self.members().values())

    def depth(self, config: EncoderConfig) -> int:
        return max(part.depth(config) for part in self.members().values())

    def begin(self, encoder: Encoder, batch: PackedBatch) -> tuple[PackedBatch, Losses]:
        losses: dict[str, Sum] = {}
        for part in self.members().values():
            batch, found = part.begin(encoder, batch)
            losses |= found
        return batch, losses

    def tables(self) -> tuple[Tables, ...]:
        return tuple(tables for part in self.members().values() for tables in part.tables())

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        return {name: s for part in self.members().values() for name, s in part.loss(encoder, layers, batch).items()}

    def settle(self, encoder: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for part in self.members().values():
            encoder = part.settle(encoder)
        return dict(encoder)


def _rounded(where: Tensor, tokens: int) -> Tensor:
    """[M] in order, each once, and as many tokens that no one reads as make M a multiple of MULTIPLE: see there why."""
    unread = torch.ones(tokens, dtype=torch.bool)
    unread[where] = False
    missing = (int(unread.sum()) - tokens) % MULTIPLE
    unread[unread.nonzero().squeeze(1)[:missing]] = False
    return (~unread).nonzero().squeeze(1)


def combine(losses: Losses, counts: Mapping[str, int]) -> Tensor:
    """One number to differentiate: each term over its count in the whole optimizer step (all micro-batches, all ranks)."""
    terms = [s.weight * s.total / max(1, counts[name]) for name, s in losses.items()]
    return torch.stack(terms).sum()
