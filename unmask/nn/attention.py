"""Attention with its matrices: self-attention under every way of knowing places, and a decoder's look at its encoder.

Legend: T tokens, M of them that ask, D hidden_size, H heads, K head size, X = heads · K or 3 times
that, N rows of a table of relative places.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from unmask.batch import Layout
from unmask.config import Disentangled, EncoderConfig
from unmask.nn.attend import attend, attend_across, attend_from
from unmask.nn.kernels.linear import Linear, linear
from unmask.nn.kernels.plain import Offsets
from unmask.nn.kernels.rotary import turn
from unmask.nn.places import Known, Relative, Turns


class Attention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.inner = config.num_attention_heads * config.key_size
        fused_bias = config.linear_bias and config.key_bias
        self.qkv = Linear(config.hidden_size, 3 * self.inner, bias=fused_bias)
        if config.linear_bias and not config.key_bias:
            self.query_bias = nn.Parameter(torch.zeros(self.inner))
            self.value_bias = nn.Parameter(torch.zeros(self.inner))
        self.out = Linear(self.inner, config.hidden_size, bias=config.linear_bias)
        match config.positions:
            case Disentangled(shared_projections=False) as d:
                if d.content_to_position:
                    self.position_key = Linear(config.hidden_size, self.inner, bias=fused_bias)
                if d.position_to_content:
                    self.position_query = Linear(config.hidden_size, self.inner, bias=config.linear_bias)

    def forward(self, x_TD: Tensor, layout: Layout, known: Known, *, window: int = 0) -> Tensor:
        """[T, D]"""
        y_TX = self._attend(linear(x_TD, self.qkv.weight, self._bias()), layout, known, window, None)
        out: Tensor = self.out(y_TX)
        return out

    def answer(
        self, query_MD: Tensor, where_M: Tensor, keys_TD: Tensor, layout: Layout, known: Known, *, window: int = 0
    ) -> Tensor:
        """[M, D]: the tokens at `where_M` alone ask, with states of their own; `keys_TD` gives keys and values."""
        weight, bias, n = self.qkv.weight, self._bias(), self.inner
        q_MX = linear(query_MD, weight[:n], None if bias is None else bias[:n])
        kv_TX = linear(keys_TD, weight[n:], None if bias is None else bias[n:])
        q_TX = q_MX.new_zeros(len(kv_TX), n).index_copy(0, where_M, q_MX)
        out: Tensor = self.out(self._attend(torch.cat([q_TX, kv_TX], -1), layout, known, window, where_M))
        return out

    def _attend(self, qkv_TX: Tensor, layout: Layout, known: Known, window: int, where_M: Tensor | None) -> Tensor:
        heads = self.config.num_attention_heads
        scale: float | None = None if self.config.scale_attention else 1.0
        relative: Offsets | None = None
        match known:
            case Turns():
                qkv_TX = turn(qkv_TX, heads, *(known.local if window else known.everywhere))
            case Offsets():
                relative = known
            case Relative():
                scale = self._relative_scale()
                relative = self._offsets(known)
        kernel = attend if where_M is None else partial(attend_from, where_M=where_M)
        y_THK = kernel(
            qkv_TX.unflatten(-1, (3, heads, -1)),
            layout,
            window=window,
            causal=self.config.causal,
            scale=scale,
            relative=relative,
            dropout=self.config.attention_probs_dropout_prob if self.training else 0.0,
        )
        return y_THK.flatten(-2)

    def _bias(self) -> Tensor | None:
        if self.config.linear_bias and not self.config.key_bias:
            return torch.cat([self.query_bias, torch.zeros_like(self.query_bias), self.value_bias])
        return self.qkv.bias

    def _relative_scale(self) -> float:
        """1/√(K × kinds of scores): DeBERTa section 3.1 gives 1/√(3K) for all three."""
        d = self.config.positions
        assert isinstance(d, Disentangled)
        return 1 / math.sqrt(self.config.key_size * (1 + d.content_to_position + d.position_to_content))

    def _offsets(self, known: Relative) -> Offsets:
        """The table as keys that contents look for, and as queries that look for contents (DeBERTa equation 4)."""
        d = self.config.positions
        assert isinstance(d, Disentangled)
        return Offsets(
            known.rows,
            keys_HNK=self._position_heads("key", known.table_ND) if d.content_to_position else None,
            queries_HNK=self._position_heads("query", known.table_ND) if d.position_to_content else None,
        )

    def _position_heads(self, role: str, table_ND: Tensor) -> Tensor:
        """[H, N, K] the relative places as keys or queries."""
        d = self.config.positions
        assert isinstance(d, Disentangled)
        if not d.shared_projections:
            projected = self.position_key(table_ND) if role == "key" else self.position_query(table_ND)
        else:
            begin = 0 if role == "query" else self.inner
            bias = self._bias()
            own = None if bias is None else bias[begin : begin + self.inner]
            projected = linear(table_ND, self.qkv.weight[begin : begin + self.inner], own)
        out: Tensor = projected.unflatten(-1, (self.config.num_attention_heads, -1)).transpose(0, 1)
        return out


class CrossAttention(nn.Module):
    """A decoder's tokens ask, the encoder's answer (Vaswani et al. 2017, section 3.2.3)."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        inner = config.num_attention_heads * config.key_size
        self.query = Linear(config.hidden_size, inner, bias=config.linear_bias)
        self.key_value = Linear(config.hidden_size, 2 * inner, bias=config.linear_bias)
        self.out = Linear(inner, config.hidden_size, bias=config.linear_bias)

    def forward(self, x_TD: Tensor, layout: Layout, source_TD: Tensor, source: Layout) -> Tensor:
        heads = self.config.num_attention_heads
        y = attend_across(
            self.query(x_TD).unflatten(-1, (heads, -1)),
            self.key_value(source_TD).unflatten(-1, (2, heads, -1)),
            layout,
            source,
            scale=None if self.config.scale_attention else 1.0,
            dropout=self.config.attention_probs_dropout_prob if self.training else 0.0,
        )
        out: Tensor = self.out(y.flatten(-2))
        return out
