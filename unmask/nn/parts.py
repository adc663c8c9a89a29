"""The smallest parts that every network is made of: norms and the feed-forward."""

from __future__ import annotations

from torch import Tensor, nn

from unmask.config import EncoderConfig
from unmask.nn.kernels.activation import activation
from unmask.nn.kernels.gated import gated
from unmask.nn.kernels.linear import Linear, activated


def build_norm(config: EncoderConfig, width: int) -> nn.Module:
    """Layer norm, or root-mean-square norm (Zhang and Sennrich 2019), over `width` numbers."""
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=config.layer_norm_eps)
    return nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.norm_bias)


class FeedForward(nn.Module):
    """Two matrices with an activation between them, at every token alike; `gated` multiplies it by a second half."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.up = Linear(config.hidden_size, config.up_size, bias=config.linear_bias)
        self.down = Linear(config.intermediate_size, config.hidden_size, bias=config.linear_bias)

    def forward(self, x_TD: Tensor) -> Tensor:
        act = self.config.hidden_act
        if self.config.gated:
            x = gated(self.up(x_TD), act, activation(act))
        else:
            x = activated(x_TD, self.up.weight, self.up.bias, act)
        out: Tensor = self.down(x)
        return out
