"""Attention on an NVIDIA GPU without padding: torch's ragged flash attention, which takes packed tokens as they are.

Legend: T tokens, S tokens of the source side, H heads, K head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.batch import Layout


def varlen_serves(x: Tensor) -> bool:
    """True for half precision, on Ampere and later, with heads as flash attention takes them."""
    return (
        x.dtype in (torch.float16, torch.bfloat16)
        and x.shape[-1] % 8 == 0
        and x.shape[-1] <= 256
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    )


def attend_varlen(qkv_T3HK: Tensor, layout: Layout, *, window: int, causal: bool, scale: float | None) -> Tensor:
    """`attend` with neither added scores nor dropout."""
    q, k, v = qkv_T3HK.unbind(1)
    reach = window or -1  # -1: as far as the sequence goes
    return _varlen(q, k, v, layout, layout, scale, (reach, 0 if causal else reach))


def attend_across_varlen(
    q_THK: Tensor, kv_S2HK: Tensor, layout: Layout, source: Layout, *, scale: float | None
) -> Tensor:
    """`attend_across` the same way."""
    k, v = kv_S2HK.unbind(1)
    return _varlen(q_THK, k, v, layout, source, scale, (-1, -1))


def _varlen(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, source: Layout, scale: float | None, reach: tuple[int, int]
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # seconds to import, for the compiler that comes with it

    starts = layout.starts, source.starts
    y = varlen_attn(q, k, v, *starts, layout.longest, source.longest, scale=scale, window_size=reach)
    assert isinstance(y, Tensor)
    return y
