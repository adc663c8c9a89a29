"""Where in a context does the answer to a question begin, and where does it end? (BERT section 4.2)

Legend: T tokens, B windows, L tokens of the longest, D hidden_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import PackedBatch, Targets
from unmask.config import Answering, EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TaskHead
from unmask.objectives.base import Losses, Objective, Sum

SIDES = ("start", "end")


class AnswerObjective(Objective):
    """Two numbers for each token, how well an answer begins and ends there; softmax over the tokens of a window.

    The labels `start` and `end` name one token of each window: of its answer, or the first ([CLS]) where it holds none. Every
    token of a window is in the softmax, those of the question too, as in BERT's code: what can't be an answer is learned.
    """

    def __init__(self, config: EncoderConfig, task: Answering, shape: HeadShape):
        super().__init__()
        self.task = task
        self.head = TaskHead(config, len(SIDES), shape)

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {side: len(batch.labels[side].where) for side in SIDES}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        return 2.0 * len(batch.input_ids) * sum(p.numel() for p in self.head.parameters())

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        logits = self._logits(layers[-1])
        return {side: self._score(logits[side], batch, batch.labels[side]) for side in SIDES}

    def outputs(self, layers: Sequence[Tensor], batch: PackedBatch) -> dict[str, Tensor]:
        """`start` and `end` [T], not normalised."""
        return self._logits(layers[-1])

    def _logits(self, hidden_TD: Tensor) -> dict[str, Tensor]:
        """In fp32 also under autocast: in half the bits, neighbouring tokens would often be equally good."""
        with torch.autocast(hidden_TD.device.type, enabled=False):
            start_T, end_T = self.head.answer(hidden_TD.float()).unbind(-1)
        return {"start": start_T, "end": end_T}

    def _score(self, logits_T: Tensor, batch: PackedBatch, targets: Targets) -> Sum:
        layout = batch.layout
        grid_BL = layout.pad(logits_T).masked_fill(~layout.valid(), -torch.inf)
        row, place = layout.rows[targets.where], layout.position_ids[targets.where]
        total = F.cross_entropy(grid_BL[row], place, reduction="sum")
        correct = None if self.training else (grid_BL[row].argmax(-1) == place).sum()
        return Sum(total, len(place), correct, weight=0.5)  # BERT's code takes the mean of the two
