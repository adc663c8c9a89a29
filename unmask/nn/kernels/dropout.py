"""Dropout that costs a CPU no more than a few passes over the data: one 64-bit draw decides four elements.

PyTorch draws a number for every element, which takes longer than the matrix product before it. Here the draws are cut into
16-bit lanes and compared with a whole number, so the rate is met to 1/65,536. The bits come from PyTorch's own CPU generator:
a seed, a saved random state and a resumed run give the same masks as ever, for any number of threads.

The plain twin is `F.dropout`, which also works where this can't: on another device, in a compiled or an exported graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LANE = 1 << 16  # values of a lane
LANES = 4  # in a draw


class Dropout(nn.Dropout):
    """`nn.Dropout` with cheap masks on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p, self.training)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zeros each element with probability `p` and scales the others up, so that the mean stays; `x` itself if not training.

    Takes floating-point numbers of any shape, strides and device.
    """
    if not training or p == 0:
        return x
    if p == 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p, True)
    out: Tensor = _Drop.apply(x, keep(x.shape, p), p)
    return out


def keep(shape: Sequence[int], p: float) -> Tensor:
    """A bool mask on the CPU, False with probability `p` (above 0, below 1), for kernels with a backward of their own."""
    count = 1
    for size in shape:
        count *= size
    # All 64 bits: without its bounds `random_` leaves the sign at 0, and every fourth lane would fall on one side.
    draws = torch.empty(-(-count // LANES), dtype=torch.int64).random_(-(2**63), None)
    lanes = draws.view(torch.int16)[:count]
    return (lanes >= _dropped(p) - LANE // 2).view(tuple(shape))


def drop(x: Tensor, kept: Tensor, p: float) -> Tensor:
    """`x` where it is kept, scaled so that the mean stays, zero elsewhere; also the gradient's way back."""
    return kept.to(x.dtype).mul_(LANE / (LANE - _dropped(p))).mul_(x)


def _dropped(p: float) -> int:
    """Values of a lane that drop their element; the scale follows from it, not from `p`, so the mean is exact."""
    return min(round(p * LANE), LANE - 1)


class _Drop(torch.autograd.Function):
    """Saves one byte an element, not the product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.p = p
        return drop(x, kept, p)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return drop(grad, ctx.saved_tensors[0], ctx.p), None, None
