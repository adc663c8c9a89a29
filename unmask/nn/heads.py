"""What turns hidden states into answers. Legend: M scored places, D hidden_size, V vocab_size, B sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.config import EncoderConfig
from unmask.nn.encoder import activation


class TokenHead(nn.Module):
    """Hidden state to vocabulary logits through the input embedding's own matrix (BERT's MLM head)."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = activation(config.hidden_act)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_MD: Tensor, embedding_VD: Tensor) -> Tensor:
        """Logits [M, V]. The tied matrix is an argument, so that it is stored and optimised once, in the encoder."""
        return F.linear(self.norm(self.activation(self.dense(hidden_MD))), embedding_VD, self.bias)


class PairHead(nn.Module):
    """First token to two classes: BERT's pooler (dense, tanh) and a linear layer."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, 2)

    def forward(self, first_BD: Tensor) -> Tensor:
        """Logits [B, 2]."""
        out: Tensor = self.out(torch.tanh(self.dense(first_BD)))
        return out
