"""Attention inside each sequence of a packed batch: one signature, a fast kernel and a plain twin that is its specification.

Legend: T tokens, B sequences, L longest, H heads, K head size, S sequences of a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import Group, Layout

# From queries and keys [S, H, L, K] of sequences that all begin at place 0 to what is added to their scores, [1 or S, H, L, L].
ExtraScores = Callable[[Tensor, Tensor], Tensor]


def attend(
    qkv_T3HK: Tensor,
    layout: Layout,
    *,
    window: int = 0,
    causal: bool = False,
    scale: float | None = None,
    extra: ExtraScores | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) that never crosses a sequence border; [T, H, K].

    A token sees `window` others on each side (0: all), with `causal` only those before it. Scores are multiplied by `scale`
    (None: 1/√K), then `extra` is added. Sequences of near-equal length go through torch's fused kernel together: on a CPU
    this beats padding the whole batch four times at length 512, and nothing is spent on padding beyond `batch.WASTE`.
    """
    parts = []
    for group, x in zip(layout.groups, qkv_T3HK.split([g.tokens for g in layout.groups]), strict=True):
        if group.gather is not None:
            x = x.index_select(0, group.gather)
        q, k, v = x.unflatten(0, (group.sequences, group.longest)).permute(2, 0, 3, 1, 4)
        mask = _mask(group, window, causal, extra is None, x.device)
        if extra is not None:
            more = extra(q, k)
            mask = more if mask is None else more.masked_fill(~mask, -torch.inf)
        only_causal = causal and mask is None
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=only_causal, scale=scale
        )
        y = y.transpose(1, 2).flatten(0, 1)
        parts.append(y if group.real is None else y.index_select(0, group.real))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _mask(group: Group, window: int, causal: bool, fused: bool, device: torch.device) -> Tensor | None:
    """Which keys each query sees, [1 or S, 1, 1 or L, L]; None: all, or, where `fused`, what the kernel's own causal mask leaves.

    With `causal` padding needs no mask: it stands behind every real token.
    """
    narrow = 0 < window < group.longest - 1
    if not narrow and (not causal or fused):
        return None if causal else group.mask
    allowed = _allowed(group.longest, window if narrow else 0, causal, device)
    return allowed if causal or group.mask is None else allowed & group.mask


def _allowed(longest: int, window: int, causal: bool, device: torch.device) -> Tensor:
    at = torch.arange(longest, device=device)
    distance = at[:, None] - at
    allowed = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return allowed & (distance.abs() <= window) if window else allowed


def attend_across(
    q_THK: Tensor, kv_T2HK: Tensor, layout: Layout, source: Layout, *, scale: float | None = None, dropout: float = 0.0
) -> Tensor:
    """Each sequence of `layout` looks at the same-numbered sequence of `source`: a decoder at its encoder; [T, H, K]."""
    q = layout.pad(q_THK).transpose(1, 2)
    k, v = source.pad(kv_T2HK).permute(2, 0, 3, 1, 4)
    mask = source.valid()[:, None, None, :]
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    return layout.unpad(y.transpose(1, 2))


def attend_plainly(
    qkv_T3HK: Tensor,
    layout: Layout,
    *,
    window: int = 0,
    causal: bool = False,
    scale: float | None = None,
    extra: ExtraScores | None = None,
) -> Tensor:
    """`attend` by the definition, on one padded grid."""
    q, k, v = (layout.pad(x).transpose(1, 2) for x in qkv_T3HK.unbind(1))
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    if extra is not None:
        scores = scores + extra(q, k)
    valid = layout.valid()
    allowed = valid[:, None, None, :] & _allowed(layout.longest, window, causal, q.device)
    allowed = allowed | ~valid[:, None, :, None]  # a place without a token sees all: without a key its row would be NaN
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return layout.unpad((weights @ v).transpose(1, 2))
