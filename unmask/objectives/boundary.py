"""SBO: a hidden token from the two tokens outside its span and its place in the span (SpanBERT section 3.2).

Legend: M targets, D hidden_size, E table_size, V vocab_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig, SpanBoundary
from unmask.nn.encoder import Encoder
from unmask.nn.heads import Transform
from unmask.nn.kernels.vocabulary import Logits
from unmask.objectives.base import Losses, Objective, Sum
from unmask.objectives.choose import run_starts


class SpanBoundaryObjective(Objective):
    """Goes together with MLM, whose `prepare` runs first and chooses the spans: runs of neighbouring targets.

    A span that touches an end of its sequence has no token outside on that side and is left out.
    """

    def __init__(self, config: EncoderConfig, goal: SpanBoundary):
        super().__init__()
        self.head = BoundaryHead(config, goal)
        self.goal = goal

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        assert "mlm" in batch.labels, "the mlm objective prepares a batch before the sbo objective does"
        where, value = (x.numpy() for x in batch.labels["mlm"])
        row, starts = batch.layout.rows.numpy()[where], batch.starts.numpy()
        begins = run_starts(where, row)
        run = np.cumsum(begins) - 1
        left = where[begins][run] - 1
        right = where[np.roll(begins, -1)][run] + 1  # a run ends where the next begins, and the last one at the end
        inside = (left >= starts[row]) & (right < starts[row + 1])
        labels = {
            "sbo": _targets(where[inside], value[inside]),
            "sbo_edges": _targets(left[inside], right[inside]),
        }
        return batch.with_(labels={**batch.labels, **labels})

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {"sbo": len(batch.labels["sbo"].where)}

    def reads(self, batch: PackedBatch) -> Tensor | None:
        return torch.cat(batch.labels["sbo_edges"])

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        d, e = config.hidden_size, config.table_size
        matrices = (2 * d + self.goal.position_size) * d + d * e + e * config.vocab_size
        return 2.0 * len(batch.labels["sbo"].where) * matrices

    def answers(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Logits:
        """[M, V] for the targets of the batch, not multiplied out."""
        where, (left, right) = batch.labels["sbo"].where, batch.labels["sbo_edges"]
        left_MD, right_MD = (layers[-1].index_select(0, edge) for edge in (left, right))
        out: Logits = self.head(left_MD, right_MD, where - left, encoder.token_table())
        return out

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        value = batch.labels["sbo"].value
        scored = self.answers(encoder, layers, batch).score(value, count=not self.training)
        return {"sbo": Sum.of(scored, len(value))}


class BoundaryHead(nn.Module):
    """Both states outside a span and a vector for the place in it, through two layers, to vocabulary logits."""

    def __init__(self, config: EncoderConfig, goal: SpanBoundary):
        super().__init__()
        width, inner = 2 * config.hidden_size + goal.position_size, config.hidden_size
        self.positions = nn.Embedding(goal.max_targets, goal.position_size)
        self.transforms = nn.Sequential(Transform(config, width, inner), Transform(config, inner, config.table_size))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, left_MD: Tensor, right_MD: Tensor, place_M: Tensor, embedding_VE: Tensor) -> Logits:
        """[M, V], not multiplied out; `place_M` counts from 1, and places beyond the table share its last row."""
        row_M = place_M.clamp(max=self.positions.num_embeddings) - 1
        x = self.transforms(torch.cat([left_MD, right_MD, self.positions(row_M)], -1))
        return Logits(x, embedding_VE, self.bias)


def _targets(where: np.ndarray, value: np.ndarray) -> Targets:
    return Targets(torch.from_numpy(where), torch.from_numpy(value))
