"""Attention by the definition, on one padded grid: what every faster kernel must equal.

Legend: T tokens, B sequences, L longest, H heads, K head size, N rows of a table of offsets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import Layout


@dataclass(frozen=True)
class Offsets:
    """What the offset i-j of query i and key j adds to their score: numbers (T5), or products with tables (DeBERTa).

    `rows` [2L-1] says which row of the tables stands for each offset from 1-L to L-1.
    """

    rows: Tensor
    bias_HN: Tensor | None = None  # added as it is (Raffel et al. 2020, section 2.1)
    keys_HNK: Tensor | None = None  # q_i · keys[i-j], scaled as q_i · k_j is (He et al. 2021, equation 4)
    queries_HNK: Tensor | None = None  # k_j · queries[i-j], scaled the same


def attend_plainly(
    qkv_T3HK: Tensor,
    layout: Layout,
    *,
    window: int = 0,
    causal: bool = False,
    scale: float | None = None,
    relative: Offsets | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` by the definition; [T, H, K]."""
    q, k, v = layout.pad(qkv_T3HK).permute(2, 0, 3, 1, 4)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.transpose(-1, -2) * scale
    if relative is not None:
        scores = scores + added(q, k, relative, scale)
    weights = F.dropout(scores.masked_fill(~seen(layout, window, causal), -torch.inf).softmax(-1), dropout)
    return layout.unpad((weights @ v).transpose(1, 2))


def attend_across_plainly(
    q_THK: Tensor, kv_T2HK: Tensor, layout: Layout, source: Layout, *, scale: float | None = None, dropout: float = 0.0
) -> Tensor:
    """`attend_across` by the definition; [T, H, K]."""
    q = layout.pad(q_THK).transpose(1, 2)
    k, v = source.pad(kv_T2HK).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores.masked_fill(~source.valid()[:, None, None, :], -torch.inf)
    return layout.unpad((F.dropout(scores.softmax(-1), dropout) @ v).transpose(1, 2))


def seen(layout: Layout, window: int, causal: bool) -> Tensor:
    """[B, 1, L, L] True where a query sees a key; a place without a token sees all, since without a key its row would be NaN."""
    valid = layout.valid()
    near = allowed(valid.shape[1], window, causal, valid.device)
    return (valid[:, None, None, :] & near) | ~valid[:, None, :, None]


def allowed(longest: int, window: int, causal: bool, device: torch.device) -> Tensor:
    """[L, L] True where a query sees a key by their places alone."""
    at = torch.arange(longest, device=device)
    distance = at[:, None] - at
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen & (distance.abs() <= window) if window else seen


def added(q_BHLK: Tensor, k_BHLK: Tensor, relative: Offsets, scale: float) -> Tensor:
    """What the offsets add to the scores, [B or 1, H, L, L]."""
    at = torch.arange(q_BHLK.shape[2], device=q_BHLK.device)
    rows = relative.rows[at[:, None] - at + (relative.rows.shape[0] - 1) // 2]  # `len` would fix it in an export
    total = q_BHLK.new_zeros(())
    if relative.bias_HN is not None:
        total = total + relative.bias_HN[:, rows]
    by_query = rows.expand(*q_BHLK.shape[:2], -1, -1)
    if relative.keys_HNK is not None:
        total = total + (q_BHLK @ relative.keys_HNK.transpose(-1, -2)).gather(-1, by_query) * scale
    if relative.queries_HNK is not None:
        by_key = (k_BHLK @ relative.queries_HNK.transpose(-1, -2)).gather(-1, by_query.transpose(-1, -2))
        total = total + by_key.transpose(-1, -2) * scale
    return total
