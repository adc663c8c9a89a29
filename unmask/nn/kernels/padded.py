"""Attention on a padded grid through torch's own function: what is exported, and what has no ragged kernel.

Legend: T tokens, S tokens of the source side, B sequences, L longest, H heads, K head size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import Layout
from unmask.nn.kernels.plain import Offsets, added, seen


def attend_padded(
    qkv_T3HK: Tensor,
    layout: Layout,
    *,
    window: int,
    causal: bool,
    scale: float | None,
    relative: Offsets | None,
    dropout: float,
) -> Tensor:
    """`attend` in torch's operations alone, for any layout and device; nothing asks for the values of a tensor."""
    q, k, v = layout.pad(qkv_T3HK).permute(2, 0, 3, 1, 4)
    mask = seen(layout, window, causal)
    if relative is not None:
        scores = added(q, k, relative, 1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        mask = scores.masked_fill(~mask, -torch.inf).to(q.dtype)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    return layout.unpad(y.transpose(1, 2))


def attend_across_padded(
    q_THK: Tensor, kv_S2HK: Tensor, layout: Layout, source: Layout, *, scale: float | None, dropout: float
) -> Tensor:
    """`attend_across` the same way."""
    q = layout.pad(q_THK).transpose(1, 2)
    k, v = source.pad(kv_S2HK).permute(2, 0, 3, 1, 4)
    mask = source.valid()[:, None, None, :]
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    return layout.unpad(y.transpose(1, 2))
