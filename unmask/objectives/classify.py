"""One answer for a whole text or pair of texts: a label, several labels, or a number.

Legend: B sequences, C labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import Classification, EncoderConfig, Regression
from unmask.config.tasks import HeadShape
from unmask.nn.encoder import Encoder
from unmask.nn.heads import SequenceHead
from unmask.objectives.base import Losses, Objective, Sum


class ClassifyObjective(Objective):
    """Reads a sequence through a `SequenceHead`; the batch's `label` targets hold one value for each sequence.

    Values are a class [B], 0 or 1 for each of several labels [B, C], or a number [B]. `weights_C` weigh the classes; of a
    single-label task only.
    """

    def __init__(
        self,
        config: EncoderConfig,
        task: Classification | Regression,
        shape: HeadShape,
        weights_C: Sequence[float] | None = None,
    ):
        super().__init__()
        self.task = task
        self.head = SequenceHead(config, 1 if isinstance(task, Regression) else len(task.labels), shape)
        weights = None if weights_C is None else torch.tensor(weights_C)
        self.register_buffer("weights", weights, persistent=False)

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        """Of several labels each is a term of its own, as in torch's mean over a matrix."""
        return {self.task.kind: batch.labels["label"].value.numel()}

    def reads(self, batch: PackedBatch) -> Tensor | None:
        return self.head.reads(batch)

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        return 2.0 * batch.num_sequences * sum(p.numel() for p in self.head.parameters())

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        logits, value = self.head(layers[-1], batch).float(), batch.labels["label"].value
        correct = None
        match self.task:
            case Regression():
                total = F.mse_loss(logits.squeeze(-1), value.float(), reduction="sum")
            case Classification(multi_label=True):
                total = F.binary_cross_entropy_with_logits(logits, value.float(), reduction="sum")
                correct = None if self.training else ((logits > 0) == (value > 0.5)).sum()
            case Classification():
                weights = self.weights if isinstance(self.weights, Tensor) else None
                total = F.cross_entropy(logits, value, weight=weights, reduction="sum")
                correct = None if self.training else (logits.argmax(-1) == value).sum()
        return {self.task.kind: Sum(total, value.numel(), correct)}

    def outputs(self, layers: Sequence[Tensor], batch: PackedBatch) -> dict[str, Tensor]:
        """`logits` [B, C]."""
        return {"logits": self.head(layers[-1], batch).float()}
