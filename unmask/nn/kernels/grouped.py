"""Attention on a CPU without padding: torch's fused kernel, called on views of the packed tokens.

The tokens are taken in pieces that lie in memory like dense batches: sequences of one length (or near-equal ones, with a little
padding), and the blocks of a sliding window (`local.py`). One autograd node holds all pieces of a layer, so outputs and gradients
are written into one buffer each, and only what the backward needs is kept: the outputs and one number per query.

Legend: T tokens, S tokens of the source side, H heads, K head size, n sequences (or blocks) of a piece, l queries, m keys of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unmask.batch import Group, Layout, paired
from unmask.nn.kernels.local import Blocks, blocks, reaches
from unmask.nn.kernels.plain import allowed

# scaled_dot_product_attention's own CPU kernel: called by name, its gradients land where we want them
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Piece(NamedTuple):
    """One call of the fused kernel: equal sequences, padded or not, or blocks of queries with the keys in their reach."""

    queries: Group | Blocks
    keys: Group | Blocks
    bias: Tensor | None  # [n or 1, 1, l or 1, m] 0 where a query sees a key, -inf elsewhere; None: all
    causal: bool = False


def attend_in_groups(qkv_T3HK: Tensor, layout: Layout, *, window: int, causal: bool, scale: float | None) -> Tensor:
    """`attend` for fp32, fp64 and bf16 on a CPU, with neither added scores nor dropout."""
    dtype = qkv_T3HK.dtype
    pieces = layout.once(("pieces", window, causal, dtype), lambda: _pieces(layout, window, causal, dtype))
    out: Tensor = _Attend.apply(pieces, scale, qkv_T3HK, None)
    return out


def attend_across_in_groups(
    q_THK: Tensor, kv_S2HK: Tensor, layout: Layout, source: Layout, *, scale: float | None
) -> Tensor:
    """`attend_across` the same way."""
    pieces = layout.once(("across", source, q_THK.dtype), lambda: _pairs(layout, source, q_THK.dtype))
    out: Tensor = _Attend.apply(pieces, scale, q_THK[:, None], kv_S2HK)
    return out


def attend_from_some(q_MHK: Tensor, kv_T2HK: Tensor, layout: Layout, where_M: Tensor, *, scale: float | None) -> Tensor:
    """[M, H, K]: only the tokens at `where_M`, in order, ask, each all tokens of its own sequence."""
    asking = torch.bincount(layout.rows[where_M], minlength=len(layout.lengths)).tolist()
    pieces, first, first_key = [], 0, 0
    for count, length in zip(asking, layout.lengths, strict=True):
        if count:
            pieces.append(Piece(_alone(first, count), _alone(first_key, length), None))
        first, first_key = first + count, first_key + length
    out: Tensor = _Attend.apply(tuple(pieces), scale, q_MHK[:, None], kv_T2HK)
    return out


def _alone(first: int, tokens: int) -> Group:
    return Group(first, tokens, 1, tokens, None, None, None)


def _pieces(layout: Layout, window: int, causal: bool, dtype: torch.dtype) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for group in layout.groups:
        if reaches(group.longest, window):
            pieces += [Piece(*cut) for cut in blocks(layout, group, window, causal, dtype)]
        else:
            only_causal = causal and not 0 < window < group.longest - 1  # the fused kernel's own mask
            mask = None if only_causal else mask_of(group, window, causal)
            pieces.append(Piece(group, group, None if mask is None else as_bias(mask, dtype), only_causal))
    return tuple(pieces)


def mask_of(group: Group, window: int, causal: bool) -> Tensor | None:
    """True where a query sees a key, [n or 1, 1, l or 1, l]; None: everywhere."""
    window = window if window < group.longest - 1 else 0
    if not window and not causal:
        return group.mask
    near = allowed(group.longest, window, causal, torch.device("cpu"))
    if group.mask is None or causal:  # padding stands behind every real token, where `causal` doesn't look
        return near[None, None]
    return (near & group.mask) | ~group.mask.transpose(-1, -2)  # without a key, padding would ask for 0/0


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where True, -inf where False."""
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, -torch.inf)


def _pairs(layout: Layout, source: Layout, dtype: torch.dtype) -> tuple[Piece, ...]:
    pairs = paired(layout.lengths, source.lengths)
    return tuple(
        Piece(asks, answers, None if answers.mask is None else as_bias(answers.mask, dtype)) for asks, answers in pairs
    )


class _Attend(torch.autograd.Function):
    """Queries from [T, 3, H, K], keys and values too or from [S, 2, H, K]."""

    @staticmethod
    def forward(ctx: Any, pieces: Sequence[Piece], scale: float | None, asks: Tensor, answers: Tensor | None) -> Tensor:
        out = asks.new_empty(len(asks), *asks.shape[2:])
        sums = []
        for piece in pieces:
            q, k, v = _views(piece, asks, answers)
            y, lse = _attend(q, k, v, 0.0, piece.causal, attn_mask=piece.bias, scale=scale)
            write(piece.queries, out, y)
            sums.append(lse)
        ctx.save_for_backward(asks, answers, out, *sums)
        ctx.pieces, ctx.scale = pieces, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, Tensor | None]:
        asks, answers, out, *sums = ctx.saved_tensors
        overlapping = any(isinstance(piece.keys, Blocks) for piece in ctx.pieces)
        make: Callable[[Tensor], Tensor] = torch.zeros_like if overlapping else torch.empty_like
        grad = grad.contiguous()
        to_asks = make(asks)
        unasked = answers is not None and len(answers) > sum(piece.keys.tokens for piece in ctx.pieces)
        to_answers = None if answers is None else (torch.zeros_like if unasked else torch.empty_like)(answers)
        dq, dk, dv = (*to_asks.unbind(1), *(() if to_answers is None else to_answers.unbind(1)))
        for piece, lse in zip(ctx.pieces, sums, strict=True):
            q, k, v = _views(piece, asks, answers)
            y, dy = cut(piece.queries, out).transpose(1, 2), gradient_of(piece.queries, grad)
            parts = _attend_backward(dy, q, k, v, y, lse, 0.0, piece.causal, attn_mask=piece.bias, scale=ctx.scale)
            write(piece.queries, dq, parts[0])
            for target, part in zip((dk, dv), parts[1:], strict=True):
                if isinstance(piece.keys, Blocks):
                    _add(piece.keys, target, part)
                else:
                    write(piece.keys, target, part)
        return None, None, to_asks, to_answers


def _views(piece: Piece, asks: Tensor, answers: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [n, H, l, K], keys and values [n, H, m, K]."""
    asking = cut(piece.queries, asks)
    answering = asking if piece.keys is piece.queries else cut(piece.keys, asks if answers is None else answers)
    q, k, v = asking[:, :, 0], answering[:, :, -2], answering[:, :, -1]
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def cut(side: Group | Blocks, x: Tensor) -> Tensor:
    """[T, ...] to [n, l, ...]: a view, unless padding has to stand in between."""
    if isinstance(side, Blocks):
        return x[side.first : side.end].unfold(0, side.size, side.step).movedim(-1, 1)
    tokens = x[side.first : side.first + side.tokens]
    if side.gather is not None:
        tokens = tokens.index_select(0, side.gather)
    return tokens.unflatten(0, (side.sequences, side.longest))


def gradient_of(side: Group | Blocks, x_THK: Tensor) -> Tensor:
    """[n, H, l, K], 0 at padding: nothing comes back from there."""
    if isinstance(side, Blocks) or side.real is None:
        return cut(side, x_THK).transpose(1, 2)
    grid = x_THK.new_zeros(side.sequences * side.longest, *x_THK.shape[1:])
    grid.index_copy_(0, side.real, x_THK[side.first : side.first + side.tokens])
    return grid.unflatten(0, (side.sequences, side.longest)).transpose(1, 2)


def write(side: Group | Blocks, target_THK: Tensor, part: Tensor) -> None:
    """Puts [n, H, l, K] where its tokens are."""
    part = part.transpose(1, 2)
    if isinstance(side, Group) and side.real is not None:
        target_THK[side.first : side.first + side.tokens] = part.flatten(0, 1).index_select(0, side.real)
    else:
        cut(side, target_THK).copy_(part)


def _add(side: Blocks, target_THK: Tensor, part: Tensor) -> None:
    """Adds [n, H, m, K] to tokens that several blocks see, in slices so narrow that no two blocks of one overlap."""
    part = part.transpose(1, 2)
    for begin in range(0, side.size, side.step):
        width = min(side.step, side.size - begin)
        narrow = Blocks(side.first + begin, side.number, width, side.step)
        cut(narrow, target_THK).add_(part[:, begin : begin + width])
