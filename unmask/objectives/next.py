"""Causal language modelling: every token is guessed from those before it (GPT: Radford et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig
from unmask.nn.cost import token_head_flops
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead
from unmask.nn.kernels.vocabulary import Logits
from unmask.objectives.base import Losses, Objective, Sum


class NextTokenObjective(Objective):
    """Each place of a sequence but the last answers with the token after it, an end of text included; nothing is hidden."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.head = TokenHead(config)

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        followed = torch.ones(len(batch.input_ids), dtype=torch.bool)
        followed[batch.starts[1:].long() - 1] = False  # what stands behind a border is a stranger
        where = followed.nonzero().squeeze(1)
        return batch.with_(labels={**batch.labels, "causal": Targets(where, batch.input_ids[where + 1])})

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {"causal": len(batch.labels["causal"].where)}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        return token_head_flops(config, len(batch.labels["causal"].where))

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        where, value = batch.labels["causal"]
        logits: Logits = self.head(layers[-1].index_select(0, where), encoder.token_table())
        return {"causal": Sum.of(logits.score(value, count=not self.training), len(value))}
