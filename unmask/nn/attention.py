"""Attention with its matrices: self-attention under every way of knowing places, and a decoder's look at its encoder.

Legend: T tokens, D hidden_size, H heads, K head size, S sequences of a group, L longest, R rows of a relative table.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.batch import Layout
from unmask.config import Disentangled, EncoderConfig
from unmask.nn.attend import ExtraScores, attend, attend_across
from unmask.nn.places import Bias, Known, Relative, Turns, rotate


class Attention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.inner = config.num_attention_heads * config.key_size
        fused_bias = config.linear_bias and config.key_bias
        self.qkv = nn.Linear(config.hidden_size, 3 * self.inner, bias=fused_bias)
        if config.linear_bias and not config.key_bias:
            self.query_bias = nn.Parameter(torch.zeros(self.inner))
            self.value_bias = nn.Parameter(torch.zeros(self.inner))
        self.out = nn.Linear(self.inner, config.hidden_size, bias=config.linear_bias)
        match config.positions:
            case Disentangled(shared_projections=False) as d:
                if d.content_to_position:
                    self.position_key = nn.Linear(config.hidden_size, self.inner, bias=fused_bias)
                if d.position_to_content:
                    self.position_query = nn.Linear(config.hidden_size, self.inner, bias=config.linear_bias)

    def forward(
        self, x_TD: Tensor, layout: Layout, known: Known, *, window: int = 0, query_TD: Tensor | None = None
    ) -> Tensor:
        """[T, D]; with `query_TD` other tokens' states ask (same layout), and `x_TD` gives keys and values."""
        qkv = self._project(x_TD, query_TD).unflatten(-1, (3, self.config.num_attention_heads, -1))
        scale: float | None = None if self.config.scale_attention else 1.0
        extra: ExtraScores | None = None
        match known:
            case Turns():
                cosine, sine = known.local if window else known.everywhere
                turned = rotate(qkv[:, :2], cosine[:, None], sine[:, None])
                qkv = torch.cat([turned, qkv[:, 2:].to(turned.dtype)], 1)
            case Bias():
                extra = known.extra
            case Relative():
                scale = self._relative_scale()
                extra = self._relative_scores(known, scale)
        y = attend(
            qkv,
            layout,
            window=window,
            causal=self.config.causal,
            scale=scale,
            extra=extra,
            dropout=self.config.attention_probs_dropout_prob if self.training else 0.0,
        )
        out: Tensor = self.out(y.flatten(-2))
        return out

    def _project(self, x_TD: Tensor, query_TD: Tensor | None) -> Tensor:
        weight, bias = self.qkv.weight, self._bias()
        if query_TD is None:
            return F.linear(x_TD, weight, bias)
        n = self.inner
        q = F.linear(query_TD, weight[:n], None if bias is None else bias[:n])
        return torch.cat([q, F.linear(x_TD, weight[n:], None if bias is None else bias[n:])], -1)

    def _bias(self) -> Tensor | None:
        if self.config.linear_bias and not self.config.key_bias:
            return torch.cat([self.query_bias, torch.zeros_like(self.query_bias), self.value_bias])
        return self.qkv.bias

    def _relative_scale(self) -> float:
        """1/√(K × kinds of scores): DeBERTa section 3.1 gives 1/√(3K) for all three."""
        d = self.config.positions
        assert isinstance(d, Disentangled)
        return 1 / math.sqrt(self.config.key_size * (1 + d.content_to_position + d.position_to_content))

    def _relative_scores(self, known: Relative, scale: float) -> ExtraScores:
        """Content-to-position and position-to-content scores (DeBERTa equation 4), already scaled."""
        d = self.config.positions
        assert isinstance(d, Disentangled)
        keys = self._position_heads("key", known.table_RD) * scale if d.content_to_position else None
        queries = self._position_heads("query", known.table_RD) * scale if d.position_to_content else None

        def extra(q_SHLK: Tensor, k_SHLK: Tensor) -> Tensor:
            longest = q_SHLK.shape[2]
            rows = known.rows_LL[:longest, :longest].expand(*q_SHLK.shape[:2], -1, -1)
            total = q_SHLK.new_zeros(())
            if keys is not None:
                total = total + (q_SHLK @ keys.transpose(-1, -2)).gather(-1, rows)
            if queries is not None:  # row of (i, j), though it is key j that looks
                by_key = (k_SHLK @ queries.transpose(-1, -2)).gather(-1, rows.transpose(-1, -2))
                total = total + by_key.transpose(-1, -2)
            return total

        return extra

    def _position_heads(self, role: str, table_RD: Tensor) -> Tensor:
        """[H, R, K] the relative places as keys or queries."""
        d = self.config.positions
        assert isinstance(d, Disentangled)
        if not d.shared_projections:
            projected = self.position_key(table_RD) if role == "key" else self.position_query(table_RD)
        else:
            begin = 0 if role == "query" else self.inner
            bias = self._bias()
            own = None if bias is None else bias[begin : begin + self.inner]
            projected = F.linear(table_RD, self.qkv.weight[begin : begin + self.inner], own)
        out: Tensor = projected.unflatten(-1, (self.config.num_attention_heads, -1)).transpose(0, 1)
        return out


class CrossAttention(nn.Module):
    """A decoder's tokens ask, the encoder's answer (Vaswani et al. 2017, section 3.2.3)."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        inner = config.num_attention_heads * config.key_size
        self.query = nn.Linear(config.hidden_size, inner, bias=config.linear_bias)
        self.key_value = nn.Linear(config.hidden_size, 2 * inner, bias=config.linear_bias)
        self.out = nn.Linear(inner, config.hidden_size, bias=config.linear_bias)

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
