"""RoPE in place: queries and keys are turned inside the buffer that the matrix product wrote them to.

Legend: T tokens, H heads, K head size, X = 3·H·K.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


def turn(qkv_TX: Tensor, heads: int, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turns the pairs (i, i + K/2) of every query and key by angles whose cosine and sine [T, 1, K/2] are given; values stay.

    In single precision the given tensor is overwritten: it must be a fresh result that nothing else reads.
    """
    if qkv_TX.dtype != torch.float32 or torch.compiler.is_compiling():
        return turn_plainly(qkv_TX, heads, cosine, sine)
    out: Tensor = _Turn.apply(qkv_TX, heads, cosine[:, None], sine[:, None])
    return out


def turn_plainly(qkv_TX: Tensor, heads: int, cosine: Tensor, sine: Tensor) -> Tensor:
    """`turn` by the definition, in new memory."""
    qkv_T3HK = qkv_TX.unflatten(-1, (3, heads, -1))
    turned = rotate(qkv_T3HK[:, :2], cosine[:, None], sine[:, None]).to(qkv_TX.dtype)
    return torch.cat([turned, qkv_T3HK[:, 2:]], 1).flatten(1)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The pairs (i, i + K/2) of the last dimension turned (Su et al. 2021, section 3.4.2)."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, qkv_TX: Tensor, heads: int, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        ctx.heads = heads  # type: ignore[attr-defined]
        ctx.mark_dirty(qkv_TX)
        return _turn_inside(qkv_TX, heads, cosine, sine)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        cosine, sine = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_TX = grads[0].clone()  # others may hold the gradient too
        return _turn_inside(grad_TX, ctx.heads, cosine, -sine), None, None, None  # type: ignore[attr-defined]


def _turn_inside(qkv_TX: Tensor, heads: int, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = qkv_TX.unflatten(-1, (3, heads, -1))[:, :2].chunk(2, -1)
    rest = a * sine
    a.mul_(cosine).addcmul_(b, sine, value=-1)
    b.mul_(cosine).add_(rest)
    return qkv_TX
