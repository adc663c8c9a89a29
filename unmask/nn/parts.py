"""The smallest parts that every network is made of: norms and non-linearities."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.config import Activation, EncoderConfig


def build_norm(config: EncoderConfig, width: int) -> nn.Module:
    """Layer norm, or root-mean-square norm (Zhang and Sennrich 2019), over `width` numbers."""
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=config.layer_norm_eps)
    return nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.norm_bias)


def activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """A non-linearity; `gelu` is exact, `gelu_tanh` the approximation of the first BERT code."""
    match name:
        case "gelu":
            return F.gelu
        case "gelu_tanh":
            return lambda x: F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu
        case "silu":
            return F.silu
        case "tanh":
            return torch.tanh


class FeedForward(nn.Module):
    """Two matrices with an activation between them, at every token alike; `gated` multiplies it by a second half."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config, self.gated = config, config.gated
        self.activation = activation(config.hidden_act)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size * (1 + config.gated), bias=config.linear_bias)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.linear_bias)

    def forward(self, x_TD: Tensor) -> Tensor:
        x = self.up(x_TD)
        if self.gated:
            x, gate = x.chunk(2, -1)
            x = self.activation(x) * gate
        else:
            x = self.activation(x)
        out: Tensor = self.down(x)
        return out
