"""A gated unit (Shazeer 2020) whose gradient is written into one buffer: torch's own, of two halves cut from one matrix product,
fills two such buffers with zeros and adds them.

Legend: T tokens, I intermediate_size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from unmask.config import Activation

_aten = torch.ops.aten


def gated(x_T2I: Tensor, name: Activation, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """[T, I] act(first half) · second half."""
    if name in ("gelu", "silu") and not torch.compiler.is_compiling():
        out: Tensor = _Gated.apply(x_T2I, name)
        return out
    return gated_plainly(x_T2I, activation)


def gated_plainly(x_T2I: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """`gated` by the definition."""
    x, gate = x_T2I.chunk(2, -1)
    return activation(x) * gate


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x_T2I: Tensor, name: str) -> Tensor:
        x, gate = x_T2I.chunk(2, -1)
        ctx.save_for_backward(x_T2I)
        ctx.name = name  # type: ignore[attr-defined]
        return (F.gelu(x) if name == "gelu" else F.silu(x)).mul_(gate)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        (x_T2I,) = ctx.saved_tensors  # type: ignore[attr-defined]
        gelu, grad = ctx.name == "gelu", grads[0]  # type: ignore[attr-defined]
        x, gate = x_T2I.chunk(2, -1)
        both = torch.empty_like(x_T2I)
        for_x, for_gate = both.chunk(2, -1)
        torch.mul(F.gelu(x) if gelu else F.silu(x), grad, out=for_gate)
        (_aten.gelu_backward if gelu else _aten.silu_backward).grad_input(grad * gate, x, grad_input=for_x)
        return both, None
