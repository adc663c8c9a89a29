"""Attention inside each sequence of a packed batch: one signature, and the kernel that this hardware has for it.

Legend: T tokens, S tokens of the source side, H heads, K head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.batch import Layout
from unmask.nn.kernels.flex import attend_flexibly, flex_serves
from unmask.nn.kernels.grouped import attend_across_in_groups, attend_from_some, attend_in_groups
from unmask.nn.kernels.padded import attend_across_padded, attend_padded
from unmask.nn.kernels.plain import Offsets
from unmask.nn.kernels.relative import attend_by_offsets
from unmask.nn.kernels.varlen import attend_across_varlen, attend_varlen, varlen_serves

LONG = 256  # tokens: in shorter sequences attention costs less than many small calls of it


def attend(
    qkv_T3HK: Tensor,
    layout: Layout,
    *,
    window: int = 0,
    causal: bool = False,
    scale: float | None = None,
    relative: Offsets | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) that never crosses a sequence border; [T, H, K].

    A token sees `window` others on each side (0: all), with `causal` only those before it. Scores are multiplied by `scale`
    (None: 1/√K); `relative` adds to them by the offset of query and key. `dropout` is that of the probabilities.
    """
    device = None if _as_it_stands(layout) else qkv_T3HK.device.type
    if device == "cpu" and relative is None and not dropout:
        return attend_in_groups(qkv_T3HK, layout, window=window, causal=causal, scale=scale)
    if device == "cuda" and relative is None and not dropout and varlen_serves(qkv_T3HK):
        return attend_varlen(qkv_T3HK, layout, window=window, causal=causal, scale=scale)
    if device == "cuda" and not dropout and flex_serves(qkv_T3HK):
        return attend_flexibly(qkv_T3HK, layout, window=window, causal=causal, scale=scale, relative=relative)
    kernel = attend_by_offsets if device == "cpu" else attend_padded
    return kernel(qkv_T3HK, layout, window=window, causal=causal, scale=scale, relative=relative, dropout=dropout)


def attend_from(
    qkv_T3HK: Tensor,
    layout: Layout,
    where_M: Tensor,
    *,
    window: int = 0,
    causal: bool = False,
    scale: float | None = None,
    relative: Offsets | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` of the tokens at `where_M` (ascending) alone, [M, H, K]."""
    everywhere = not causal and not 0 < window < layout.longest - 1
    cpu = not _as_it_stands(layout) and qkv_T3HK.device.type == "cpu"
    if cpu and everywhere and relative is None and not dropout and layout.longest >= LONG:
        q_MHK = qkv_T3HK[:, 0].index_select(0, where_M)
        return attend_from_some(q_MHK, qkv_T3HK[:, 1:], layout, where_M, scale=scale)
    y_THK = attend(qkv_T3HK, layout, window=window, causal=causal, scale=scale, relative=relative, dropout=dropout)
    return y_THK.index_select(0, where_M)


def attend_across(
    q_THK: Tensor, kv_S2HK: Tensor, layout: Layout, source: Layout, *, scale: float | None = None, dropout: float = 0.0
) -> Tensor:
    """Each sequence of `layout` looks at the same-numbered sequence of `source`: a decoder at its encoder; [T, H, K]."""
    device = None if _as_it_stands(layout) else q_THK.device.type
    if device == "cpu" and not dropout:
        return attend_across_in_groups(q_THK, kv_S2HK, layout, source, scale=scale)
    if device == "cuda" and not dropout and varlen_serves(q_THK):
        return attend_across_varlen(q_THK, kv_S2HK, layout, source, scale=scale)
    return attend_across_padded(q_THK, kv_S2HK, layout, source, scale=scale, dropout=dropout)


def _as_it_stands(layout: Layout) -> bool:
    """A batch that came padded stays so, and what is exported is made of torch's operations alone."""
    return layout.attention_mask is not None or torch.compiler.is_exporting()
