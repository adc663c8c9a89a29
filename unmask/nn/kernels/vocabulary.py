"""The cross entropy over a vocabulary, some rows at a time: the matrix of all logits is never whole in memory.

Logits of a thousand places over 30,000 tokens weigh more than the rest of a small model's step. But what is wanted of them
is a sum and three gradients, and those can be made for some rows while their logits are still in the processor's cache: the
gradient of a sum is known, up to the factor it is multiplied by later, before anything asks for it. `score_plainly` is the
specification.

Legend: M scored places, N of them in one chunk, E table_size, V vocab_size, C columns of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from unmask.nn.kernels.linear import product

# Least and most rows of a chunk on a CPU: fewer make W's gradient slow, more are no faster (8k to 30k tokens).
ROWS = (64, 256)
ROUND = 16  # rows: sizes that come again find their memory, and the code made for them, again
CPU_LOGITS = (
    1 << 22
)  # of a chunk: 16 MiB in fp32. From 32 MiB on, memory comes fresh from the system every time, zeroed
GPU_LOGITS = 1 << 26  # of a chunk: 256 MiB in fp32, and enough rows to keep a large GPU busy
BLOCK = 256  # columns: a draw adds up blocks, and then looks into one


class Scored(NamedTuple):
    """What a loss over the vocabulary is asked for."""

    total: Tensor  # the sum of -log p over the places
    correct: Tensor | None  # how many places have the right token in front; None: not asked for
    drawn: Tensor | None  # [M] a token from each place's distribution; None: not asked for


class Logits(NamedTuple):
    """Logits x·Wᵀ + b that are not multiplied out until they are needed, and mostly never are."""

    x_ME: Tensor
    weight_VE: Tensor
    bias_V: Tensor | None

    def dense(self) -> Tensor:
        """[M, V]: for few places."""
        return F.linear(self.x_ME, self.weight_VE, self.bias_V)

    def score(self, value_M: Tensor, *, count: bool = False, uniform_M: Tensor | None = None) -> Scored:
        """The cross entropy of the tokens that are right, in fp32 at least; it can be differentiated once.

        `count` also counts right answers, and `uniform_M`, numbers from [0, 1), picks a token for each place as `sample` does.
        """
        if torch.compiler.is_compiling() or self.x_ME.is_meta:
            return score_plainly(self, value_M, count=count, uniform_M=uniform_M)
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in self):
            return Scored(*_Score.apply(*self, value_M, count, uniform_M))
        return _score(self, value_M, count, uniform_M, (False, False, False))[0]


def score_plainly(logits: Logits, value_M: Tensor, *, count: bool, uniform_M: Tensor | None) -> Scored:
    """The same with all logits at once."""
    dense = logits.dense()
    dense = dense.to(_exact(dense.dtype))
    correct = (dense.argmax(-1) == value_M).sum() if count else None
    drawn = None if uniform_M is None else sample(dense, uniform_M)
    return Scored(F.cross_entropy(dense, value_M, reduction="sum"), correct, drawn)


def rows_at_once(vocabulary: int, device: str) -> int:
    """How many rows of logits are in memory at a time, at most."""
    least, most = ROWS
    fit = min(most, CPU_LOGITS // vocabulary) if device == "cpu" else GPU_LOGITS // vocabulary
    return max(least, fit)


@torch.no_grad()
def sample(logits_MV: Tensor, uniform_M: Tensor) -> Tensor:
    """[M] a token from each row's distribution: where the running sum of probabilities reaches a number drawn from [0, 1).

    It is a draw from the same distribution as the published argmax of logits and Gumbel noise. But one number a blank, drawn
    from (seed, example, place) while the batch is prepared, picks it: V numbers need not be made on the device, and guesses
    are the same after a resume, in an evaluation, and for any number of workers or processes.
    """
    reached_MV = logits_MV.softmax(-1).cumsum(-1)
    share_M1 = _share(uniform_M, reached_MV)
    return torch.searchsorted(reached_MV, share_M1 * reached_MV[:, -1:]).squeeze(1)


class _Score(torch.autograd.Function):
    """`_score` and its gradients, which the forward has already made and the backward hands out."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ME: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor | None,
        value_M: Tensor,
        count: bool,
        uniform_M: Tensor | None,
    ) -> Scored:
        wanted = ctx.needs_input_grad[:3]
        out, ctx.gradients = _score(Logits(x_ME, weight_VE, bias_V), value_M, count, uniform_M, wanted)
        ctx.mark_non_differentiable(*(x for x in out[1:] if x is not None))
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("this loss was already differentiated: its gradients were made once and given away")
        made, ctx.gradients = ctx.gradients, None  # scaled in place, so that W's is never there twice
        return (*(None if x is None else x.mul_(by.to(x.dtype)) for x in made), None, None, None)


class _Gradients(NamedTuple):
    """Of the sum, for x, W and b; None where no one wants it."""

    x_ME: Tensor | None
    weight_VE: Tensor | None
    bias_V: Tensor | None


def _score(
    logits: Logits, value_M: Tensor, count: bool, uniform_M: Tensor | None, wanted: Sequence[bool]
) -> tuple[Scored, _Gradients]:
    """Chunk by chunk: logits, probabilities, what is asked of them, and the gradients."""
    x_ME, device, kind = logits.x_ME, logits.x_ME.device.type, _product_type(logits.x_ME)
    made = _Gradients(*(_zeros(t) if w else None for t, w in zip(logits, wanted, strict=True)))
    weight_VE, bias_V = logits.weight_VE.to(kind), None if logits.bias_V is None else logits.bias_V.to(kind)
    costs = [x_ME.new_zeros(0, 1, dtype=_exact(kind))]
    right, drawn = [value_M.new_zeros(0, 1)], [value_M.new_zeros(0)]
    with torch.autocast(device, enabled=False):
        for rows in _chunks(len(x_ME), len(weight_VE), device):
            x_NE, value_N1 = x_ME[rows].to(kind), value_M[rows, None]
            logits_NV = product(x_NE, weight_VE, bias_V)
            if count:
                right.append(logits_NV.argmax(-1, keepdim=True) == value_N1)
            cost_N1, chances_NV = _cost(logits_NV, value_N1)
            del logits_NV
            costs.append(cost_N1)
            if uniform_M is not None:
                drawn.append(_draw(chances_NV, uniform_M[rows]))
            if any(wanted):
                _add_gradients(made, rows, x_NE, weight_VE, chances_NV, value_N1)
    correct = torch.cat(right).sum() if count else None
    return Scored(torch.cat(costs).sum(), correct, None if uniform_M is None else torch.cat(drawn)), made


def _zeros(like: Tensor | None) -> Tensor | None:
    return None if like is None else torch.zeros_like(like)


def _cost(logits_NV: Tensor, value_N1: Tensor) -> tuple[Tensor, Tensor]:
    """-log p of the right tokens [N, 1], and all probabilities.

    The greatest probability tells what the logits' exponentials add up to. That of the right token would too, but can be 0.
    """
    exact = _exact(logits_NV.dtype)
    chances_NV = logits_NV.softmax(-1, dtype=exact)
    top_N1, own_N1 = logits_NV.amax(-1, keepdim=True).to(exact), logits_NV.gather(1, value_N1).to(exact)
    return top_N1 - own_N1 - chances_NV.amax(-1, keepdim=True).log(), chances_NV


def _add_gradients(
    made: _Gradients, rows: slice, x_NE: Tensor, weight_VE: Tensor, chances_NV: Tensor, value_N1: Tensor
) -> None:
    """Of the logits it is the probabilities, less 1 at the right token."""
    slope_NV = chances_NV.scatter_add_(1, value_N1, chances_NV.new_full((), -1.0).expand_as(value_N1))
    if made.bias_V is not None:
        made.bias_V.add_((slope_NV.new_ones(1, len(slope_NV)) @ slope_NV)[0])
    slope_NV = slope_NV.to(weight_VE.dtype)
    if made.x_ME is not None:
        made.x_ME[rows] = product(slope_NV, weight_VE.t())
    if made.weight_VE is None:
        return
    if made.weight_VE.dtype == slope_NV.dtype:
        made.weight_VE.addmm_(slope_NV.t(), x_NE)
    else:
        made.weight_VE.add_(slope_NV.t() @ x_NE)


def _draw(chances_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """`sample`, by the running sums of blocks of columns and then of one block: the whole row's need not be made."""
    vocabulary = chances_NV.shape[1]
    whole = vocabulary // BLOCK * BLOCK
    blocks_NC = torch.cat(
        [chances_NV[:, :whole].unflatten(1, (-1, BLOCK)).sum(-1), chances_NV[:, whole:].sum(-1, keepdim=True)], 1
    )
    reached_NC = blocks_NC.cumsum(1)
    goal_N1 = _share(uniform_N, reached_NC) * reached_NC[:, -1:]
    block_N1 = torch.searchsorted(reached_NC, goal_N1)
    before_N1 = F.pad(reached_NC, (1, 0)).gather(1, block_N1)
    column_NC = block_N1 * BLOCK + torch.arange(BLOCK, device=block_N1.device)
    inside_NC = chances_NV.gather(1, column_NC.clamp(max=vocabulary - 1)).where(column_NC < vocabulary, 0).cumsum(1)
    left_N1 = (goal_N1 - before_N1).minimum(
        inside_NC[:, -1:]
    )  # two sums of the same numbers may differ in the last bit
    return (block_N1 * BLOCK + torch.searchsorted(inside_NC, left_N1)).squeeze(1)


def _share(uniform_N: Tensor, like: Tensor) -> Tensor:
    """In (0, 1], so that no token of probability 0 is ever the first to reach it."""
    return (1 - uniform_N)[:, None].to(like.dtype)


def _chunks(count: int, vocabulary: int, device: str) -> Iterator[slice]:
    """Rows in as few chunks as fit, of about equal size."""
    pieces = max(1, math.ceil(count / rows_at_once(vocabulary, device)))
    rows = ROUND * max(1, math.ceil(count / pieces / ROUND))
    for first in range(0, count, rows):
        yield slice(first, min(count, first + rows))


def _product_type(x: Tensor) -> torch.dtype:
    """What matrices are multiplied in."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _exact(kind: torch.dtype) -> torch.dtype:
    """What sums and exponentials are made in."""
    return torch.promote_types(kind, torch.float32)
