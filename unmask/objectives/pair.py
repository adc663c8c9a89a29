"""Does B follow A? NSP (BERT section 3.1) and SOP (ALBERT section 3.1) are the same question about different negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.nn.encoder import Encoder
from unmask.nn.heads import PairHead
from unmask.objectives.base import Losses, Objective, Sum

FOLLOWS, DOES_NOT = 0, 1  # BERT's class order, kept by every checkpoint


class SentencePairObjective(Objective):
    """The sampler made the pairs and their labels; this reads the first token of each sequence."""

    def __init__(self, config: EncoderConfig, name: Literal["nsp", "sop"]):
        super().__init__()
        self.head = PairHead(config)
        self.name = name

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {self.name: len(batch.labels["pair"].where)}

    def reads(self, batch: PackedBatch) -> Tensor | None:
        return batch.starts[:-1].long()[batch.labels["pair"].where]

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        return 2.0 * len(batch.labels["pair"].where) * (config.hidden_size + 2) * config.hidden_size

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        where, value = batch.labels["pair"]
        logits = self.head(layers[-1].index_select(0, batch.starts[:-1].long()[where]))
        correct = None if self.training else (logits.argmax(-1) == value).sum()
        return {self.name: Sum(F.cross_entropy(logits.float(), value, reduction="sum"), len(value), correct)}
