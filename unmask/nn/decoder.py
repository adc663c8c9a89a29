"""The other half of an encoder–decoder (T5): the same block, looking back only, with a look at the encoder between.

Legend: T tokens of the target side, S tokens of the source side, D hidden_size.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from unmask.batch import Layout
from unmask.config import EncoderConfig
from unmask.nn.attention import Attention, CrossAttention
from unmask.nn.kernels.dropout import Dropout
from unmask.nn.parts import FeedForward, build_norm
from unmask.nn.places import Known, Places


class Decoder(nn.Module):
    """Embedded target tokens and the encoder's output to one vector per target token: [T, D]."""

    def __init__(self, config: EncoderConfig, layers: int):
        super().__init__()
        config = replace(config, causal=True)
        self.places = Places(config)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(layers))
        self.norm = build_norm(config, config.hidden_size) if config.norm_first else nn.Identity()

    def forward(self, x_TD: Tensor, layout: Layout, source_SD: Tensor, source: Layout) -> Tensor:
        known = self.places(layout)
        for block in self.blocks:
            x_TD = block(x_TD, layout, known, source_SD, source)
        out: Tensor = self.norm(x_TD)
        return out


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.norm_first = config.norm_first
        self.attention = Attention(config)
        self.attention_norm = build_norm(config, config.hidden_size)
        self.cross = CrossAttention(config)
        self.cross_norm = build_norm(config, config.hidden_size)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = build_norm(config, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x_TD: Tensor, layout: Layout, known: Known, source_SD: Tensor, source: Layout) -> Tensor:
        x = x_TD
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), layout, known))
            x = x + self.dropout(self.cross(self.cross_norm(x), layout, source_SD, source))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, layout, known)))
        x = self.cross_norm(x + self.dropout(self.cross(x, layout, source_SD, source)))
        out: Tensor = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return out
