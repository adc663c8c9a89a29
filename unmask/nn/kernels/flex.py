"""Attention on an NVIDIA GPU with added scores: FlexAttention, compiled, skips the blocks between strangers.

It also serves precisions and GPUs that flash attention doesn't. Legend: T tokens, H heads, K head size, N rows of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from unmask.batch import Layout
from unmask.nn.kernels.plain import Offsets

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def flex_serves(x: Tensor) -> bool:
    """True for the head sizes that the compiled kernel takes."""
    return x.shape[-1] >= 16


def attend_flexibly(
    qkv_T3HK: Tensor, layout: Layout, *, window: int, causal: bool, scale: float | None, relative: Offsets | None
) -> Tensor:
    """`attend` without dropout."""
    q, k, v = qkv_T3HK.permute(1, 2, 0, 3)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    mask = layout.once(("blocks", window, causal), lambda: _blocks(layout, window, causal))
    change = None if relative is None else _changed(q, k, layout.position_ids, relative, scale)
    y = _kernel()(q[None], k[None], v[None], score_mod=change, block_mask=mask, scale=scale)
    return y[0].transpose(0, 1)


@cache
def _kernel() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)


def _blocks(layout: Layout, window: int, causal: bool) -> BlockMask:
    """Which blocks of queries and keys hold a pair that sees each other: those inside a sequence, near and behind enough."""
    rows = layout.rows

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        inside = rows[query] == rows[key]
        if window:
            inside = inside & ((query - key).abs() <= window)
        return inside & (query >= key) if causal else inside

    tokens = len(rows)
    return create_block_mask(sees, None, None, tokens, tokens, rows.device, _compile=rows.device.type == "cuda")


def _changed(q_HTK: Tensor, k_HTK: Tensor, places: Tensor, relative: Offsets, scale: float) -> ScoreMod:
    """Adds what the offset of a pair adds; the products with the tables are made once, [H, T, N], and looked up."""
    rows, middle, bias = relative.rows, (len(relative.rows) - 1) // 2, relative.bias_HN
    by_query = by_key = None
    if relative.keys_HNK is not None:
        by_query = (q_HTK @ relative.keys_HNK.transpose(1, 2)) * scale
    if relative.queries_HNK is not None:
        by_key = (k_HTK @ relative.queries_HNK.transpose(1, 2)) * scale

    def change(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        row = rows[places[query] - places[key] + middle]
        if bias is not None:
            score = score + bias[head, row]
        if by_query is not None:
            score = score + by_query[head, query, row]
        return score if by_key is None else score + by_key[head, key, row]

    return change
