"""Attention inside each sequence of a packed batch: one signature, a fast kernel and a plain twin that is its specification.

Legend: T tokens, B sequences, L longest, H heads, K head size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import Layout


def attend(qkv_T3HK: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) that never crosses a sequence border; [T, H, K].

    Sequences of near-equal length go through torch's fused kernel together: on a CPU this beats padding the whole batch
    four times at length 512, and nothing is spent on padding beyond `batch.WASTE`.
    """
    parts = []
    for group, x in zip(layout.groups, qkv_T3HK.split([g.tokens for g in layout.groups]), strict=True):
        if group.gather is not None:
            x = x.index_select(0, group.gather)
        q, k, v = x.unflatten(0, (group.sequences, group.longest)).permute(2, 0, 3, 1, 4)
        y = (
            F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask, dropout_p=dropout)
            .transpose(1, 2)
            .flatten(0, 1)
        )
        parts.append(y if group.real is None else y.index_select(0, group.real))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def attend_plainly(qkv_T3HK: Tensor, layout: Layout) -> Tensor:
    """The same by the definition, on one padded grid."""
    q, k, v = (layout.pad(x).transpose(1, 2) for x in qkv_T3HK.unbind(1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~layout.valid()[:, None, None, :], -torch.inf)
    return layout.unpad((scores.softmax(-1) @ v).transpose(1, 2))
