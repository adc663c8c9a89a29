"""How well does a text answer a query? One number for the two read together: a cross-encoder.

A batch has these labels, each at the first token of its sequences:

    rank   of all sequences: how well the text answers, from 0 to 1
    unit   of all sequences: the number of their query
    query  of the first sequence of each query: its number

Legend: B sequences, Q queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, Ranking
from unmask.config.tasks import HeadShape
from unmask.nn.encoder import Encoder
from unmask.nn.heads import SequenceHead
from unmask.objectives.base import Losses, Objective, Sum


class RankObjective(Objective):
    """A `SequenceHead` of one output, whose losses are made of the raw output, never of its sigmoid."""

    def __init__(self, config: EncoderConfig, task: Ranking, shape: HeadShape):
        super().__init__()
        self.task = task
        self.head = SequenceHead(config, 1, shape)

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {"rank": len(batch.labels["rank" if self.task.loss == "pointwise" else "query"].where)}

    def reads(self, batch: PackedBatch) -> Tensor | None:
        return self.head.reads(batch)

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        return 2.0 * batch.num_sequences * sum(p.numel() for p in self.head.parameters())

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        score_B, value_B = self._scores(layers, batch), batch.labels["rank"].value.float()
        if self.task.loss == "pointwise":
            total = F.binary_cross_entropy_with_logits(score_B, value_B, reduction="sum")
            correct = ((score_B > 0) == (value_B > 0.5)).sum()
        else:
            own_QB = batch.labels["query"].value[:, None] == batch.labels["unit"].value
            total, correct = _listwise(score_B, value_B, own_QB)
        return {"rank": Sum(total, self.counts(batch)["rank"], None if self.training else correct)}

    def outputs(self, layers: Sequence[Tensor], batch: PackedBatch) -> dict[str, Tensor]:
        """`score` [B], which its sigmoid makes a probability where the loss was pointwise."""
        return {"score": self._scores(layers, batch)}

    def _scores(self, layers: Sequence[Tensor], batch: PackedBatch) -> Tensor:
        out: Tensor = self.head(layers[-1], batch).float().squeeze(-1)
        return out


def _listwise(score_B: Tensor, value_B: Tensor, own_QB: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of the softmax over a query's texts, whose values, scaled to a sum of 1, say what it should be (ListNet,
    Cao et al. 2007, with one text at a time); and for how many queries the best text has the best score."""
    among_QB = score_B.expand_as(own_QB).masked_fill(~own_QB, -torch.inf)
    wanted_QB = value_B.expand_as(own_QB).masked_fill(~own_QB, 0.0)
    share_QB = wanted_QB / wanted_QB.sum(1, keepdim=True)
    total = -(share_QB * among_QB.log_softmax(1).masked_fill(~own_QB, 0.0)).sum()
    chosen_Q1 = among_QB.argmax(1, keepdim=True)
    return total, (wanted_QB.gather(1, chosen_Q1).squeeze(1) == wanted_QB.amax(1)).sum()
