"""Attention whose scores know the offset of query and key, on a CPU: DeBERTa's two products with tables, T5's numbers; and dropout.

An offset i-j is constant along a diagonal, so the products with a table, one column per offset, hold the scores of all pairs
already: a view whose rows begin one column further left each time lines them up with the keys. Nothing is gathered and no gradient
scattered. Blocks of BLOCK queries (or keys, where these look) multiply only the offsets that they reach. The scores of a
few sequences at a time stay in the cache; only the probabilities are kept for the backward.

Legend: T tokens, H heads, K head size, R offsets in order, n sequences at a time, l tokens of each, r rows of queries at a time,
c columns of offsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unmask.batch import Group, Layout
from unmask.nn.kernels.dropout import drop, keep
from unmask.nn.kernels.grouped import as_bias, cut, gradient_of, mask_of, write
from unmask.nn.kernels.plain import Offsets

BLOCK = 64  # queries (or keys) that share a product with a table
SCORES = 2**20  # scores of one sequence at a time: 4 MiB
SHARED = 2**18  # the same where several sequences share the products: they then lie in the cache


class _Piece(NamedTuple):
    """Sequences of a group that are worked on together."""

    group: Group
    bias: Tensor | None  # [n or 1, l or 1, l] -inf where a query sees no key


def attend_by_offsets(
    qkv_T3HK: Tensor,
    layout: Layout,
    *,
    window: int,
    causal: bool,
    scale: float | None,
    relative: Offsets | None,
    dropout: float,
) -> Tensor:
    """`attend` on a CPU with added scores, with dropout, or both."""
    dtype = qkv_T3HK.dtype
    scale = 1 / math.sqrt(qkv_T3HK.shape[-1]) if scale is None else scale
    pieces = layout.once(("offsets", window, causal, dtype), lambda: _pieces(layout, window, causal, dtype))
    tables = _tables(relative, layout.longest, scale, dtype)
    recorded = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (qkv_T3HK, *tables))
    with torch.autocast("cpu", enabled=False):
        out: Tensor = _Attend.apply(pieces, scale, dropout, recorded, qkv_T3HK, *tables)
    return out


def _pieces(layout: Layout, window: int, causal: bool, dtype: torch.dtype) -> tuple[_Piece, ...]:
    masks = [mask_of(group, window, causal) for group in layout.groups]
    biases = [None if mask is None else as_bias(mask, dtype).squeeze(1) for mask in masks]
    return tuple(map(_Piece, layout.groups, biases))


def _tables(
    relative: Offsets | None, longest: int, scale: float, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Bias [H, R], keys and queries [H, R, K], one row per offset; the first two from the largest to the smallest."""
    if relative is None:
        return None, None, None
    middle = (len(relative.rows) - 1) // 2
    rows = relative.rows[middle - longest + 1 : middle + longest]
    back = rows.flip(0)
    bias, keys, queries = relative.bias_HN, relative.keys_HNK, relative.queries_HNK
    return (
        None if bias is None else bias.to(dtype).index_select(1, back),
        None if keys is None else keys.to(dtype).index_select(1, back),
        None if queries is None else (queries.to(dtype) * scale).index_select(1, rows),
    )


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        pieces: Sequence[_Piece],
        scale: float,
        dropout: float,
        recorded: bool,
        qkv: Tensor,
        bias: Tensor | None,
        keys: Tensor | None,
        queries: Tensor | None,
    ) -> Tensor:
        tables = _Tables(bias, keys, queries)
        out = qkv.new_empty(len(qkv), *qkv.shape[2:])
        saved: list[Tensor] = []
        for piece in pieces:
            x = cut(piece.group, qkv)
            y = torch.empty_like(x[:, :, 0])
            for some in _chunks(piece.group, qkv.shape[2]):
                q, k, v = _heads_first(x[some])
                q.mul_(scale)
                for r in _slabs(q):
                    weights = _weights(q, k, r, tables, _part(piece.bias, some, r))
                    if recorded:
                        saved.append(weights)
                    if dropout:
                        kept = keep(weights.shape, dropout)
                        saved.append(kept)
                        weights = drop(weights, kept, dropout)
                    seen = torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).view(*q.shape[:2], -1, q.shape[-1])
                    y[some, r] = seen.permute(1, 2, 0, 3)
            write(piece.group, out, y.transpose(1, 2))
        if recorded:
            ctx.save_for_backward(qkv, bias, keys, queries, *saved)
        ctx.pieces, ctx.scale, ctx.dropout = pieces, scale, dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, bias, keys, queries, *saved = ctx.saved_tensors
        remaining = iter(saved)
        tables = _Tables(bias, keys, queries)
        to_tables = _Tables(*(None if table is None else torch.zeros_like(table) for table in tables))
        to_qkv = torch.empty_like(qkv)
        for piece in ctx.pieces:
            x, g = cut(piece.group, qkv), gradient_of(piece.group, grad)
            d = torch.empty_like(x)
            for some in _chunks(piece.group, qkv.shape[2]):
                q, k, v = _heads_first(x[some])
                q.mul_(ctx.scale)
                dy = g[some].transpose(0, 1).contiguous()
                dq, dk, dv = new = torch.zeros_like(
                    x[some].permute(2, 3, 0, 1, 4), memory_format=torch.contiguous_format
                )
                for r in _slabs(q):
                    weights = next(remaining)
                    scores = _to_scores(
                        weights, dy[:, :, r], v, dv, next(remaining) if ctx.dropout else None, ctx.dropout
                    )
                    _to_contents(scores, q, k, r, dq, dk)
                    _to_places(scores, q, k, r, dq, dk, tables, to_tables)
                dq.mul_(ctx.scale)
                d[some] = new.permute(2, 3, 0, 1, 4)
            for i in range(3):
                write(piece.group, to_qkv[:, i], d[:, :, i].transpose(1, 2))
        return None, None, None, None, to_qkv, *to_tables


class _Tables(NamedTuple):
    """One row per offset; `bias` and `keys` from the largest offset to the smallest, `queries` the other way round."""

    bias: Tensor | None  # [H, R]
    keys: Tensor | None  # [H, R, K]
    queries: Tensor | None  # [H, R, K]


def _chunks(group: Group, heads: int) -> Iterator[slice]:
    """Sequences whose scores are held at a time."""
    step = max(1, SHARED // (heads * group.longest**2))
    return (slice(i, min(i + step, group.sequences)) for i in range(0, group.sequences, step))


def _slabs(q_HnlK: Tensor) -> Iterator[slice]:
    """Queries whose scores are held at a time."""
    heads, sequences, longest, _ = q_HnlK.shape
    step = SCORES // (heads * sequences * longest)
    if step < longest:
        step = max(1, step // BLOCK) * BLOCK
    return (slice(i, min(i + step, longest)) for i in range(0, longest, step))


def _blocks(where: slice) -> Iterator[slice]:
    return (slice(i, min(i + BLOCK, where.stop)) for i in range(where.start, where.stop, BLOCK))


def _heads_first(x_nl3HK: Tensor) -> Tensor:
    """[3, H, n, l, K], contiguous: then one head's product with its table takes all sequences."""
    return x_nl3HK.permute(2, 3, 0, 1, 4).clone(memory_format=torch.contiguous_format)


def _part(bias: Tensor | None, some: slice, r: slice) -> Tensor | None:
    if bias is None:
        return None
    bias = bias[some] if len(bias) > 1 else bias
    return bias[:, r] if bias.shape[1] > 1 else bias


def _weights(q: Tensor, k: Tensor, r: slice, tables: _Tables, bias: Tensor | None) -> Tensor:
    """The probabilities [H, n, r, l] of the queries `r`."""
    heads, sequences, longest, _ = k.shape
    asking, answering = q[:, :, r].flatten(0, 1), k.flatten(0, 1).transpose(1, 2)
    scores = k.new_empty(heads, sequences, r.stop - r.start, longest)
    flat = scores.flatten(0, 1)
    if tables.queries is None:
        torch.bmm(asking, answering, out=flat)
    else:
        for j in _blocks(slice(0, longest)):
            table = _columns_by_key(tables.queries, j, r)
            scores[..., j] = _by_key(_times(k[:, :, j], table), r.stop - r.start)
        torch.baddbmm(flat, asking, answering, out=flat)
    if tables.keys is not None:
        for i in _blocks(r):
            table = _columns_by_query(tables.keys, i, longest)
            scores[:, :, i.start - r.start : i.stop - r.start] += _by_query(_times(q[:, :, i], table), longest)
    if tables.bias is not None:
        scores += _diagonals(tables.bias, r, longest)[:, None]
    if bias is not None:
        scores += bias
    return torch._softmax(scores, -1, False, out=scores)


def _to_scores(weights: Tensor, dy: Tensor, v: Tensor, dv: Tensor, kept: Tensor | None, dropout: float) -> Tensor:
    """The scores' gradient [H, n, r, l]; the values' is added to `dv`."""
    used = weights if kept is None else drop(weights, kept, dropout)
    dy = dy.flatten(0, 1)
    dv.flatten(0, 1).baddbmm_(used.flatten(0, 1).transpose(1, 2), dy)
    grad = torch.bmm(dy, v.flatten(0, 1).transpose(1, 2)).view(weights.shape)
    if kept is not None:
        grad = drop(grad, kept, dropout)
    return torch._softmax_backward_data(grad, weights, -1, weights.dtype)


def _to_contents(scores: Tensor, q: Tensor, k: Tensor, r: slice, dq: Tensor, dk: Tensor) -> None:
    flat = scores.flatten(0, 1)
    dq[:, :, r].flatten(0, 1).baddbmm_(flat, k.flatten(0, 1))
    dk.flatten(0, 1).baddbmm_(flat.transpose(1, 2), q[:, :, r].flatten(0, 1))


def _to_places(
    scores: Tensor, q: Tensor, k: Tensor, r: slice, dq: Tensor, dk: Tensor, tables: _Tables, to_tables: _Tables
) -> None:
    """Adds to `to_tables`, and what came through the tables to `dq` and `dk`."""
    heads, sequences, rows, longest = scores.shape
    if tables.keys is not None and to_tables.keys is not None:
        for i in _blocks(r):
            size = i.stop - i.start
            lined = scores.new_zeros(heads, sequences, size, size + longest - 1)
            _by_query(lined, longest).copy_(scores[:, :, i.start - r.start : i.stop - r.start])
            table, to_table = (_columns_by_query(t, i, longest) for t in (tables.keys, to_tables.keys))
            _back(lined, q[:, :, i], table, dq[:, :, i], to_table)
    if tables.queries is not None and to_tables.queries is not None:
        for j in _blocks(slice(0, longest)):
            size = j.stop - j.start
            lined = scores.new_zeros(heads, sequences, size, size + rows - 1)
            _by_key(lined, rows).copy_(scores[..., j])
            table, to_table = (_columns_by_key(t, j, r) for t in (tables.queries, to_tables.queries))
            _back(lined, k[:, :, j], table, dk[:, :, j], to_table)
    if to_tables.bias is not None:
        _add_diagonals(scores.sum(1), to_tables.bias, r)


def _times(x_HnbK: Tensor, table_HcK: Tensor) -> Tensor:
    """[H, n, b, c], one product a head."""
    heads, sequences, size, width = x_HnbK.shape
    return torch.bmm(x_HnbK.reshape(heads, -1, width), table_HcK.transpose(1, 2)).view(heads, sequences, size, -1)


def _back(lined_Hnbc: Tensor, x: Tensor, table: Tensor, dx: Tensor, to_table: Tensor) -> None:
    """The gradients of `_times`, added to `dx` and `to_table`."""
    heads, _, _, columns = lined_Hnbc.shape
    lined = lined_Hnbc.view(heads, -1, columns)
    dx += torch.bmm(lined, table).view(x.shape)
    to_table += torch.bmm(lined.transpose(1, 2), x.reshape(heads, -1, x.shape[-1]))


def _columns_by_query(table: Tensor, i: slice, longest: int) -> Tensor:
    """Rows of a table (largest offset first) for queries `i` and all keys: from offset i.stop-1 down to i.start-l+1."""
    first = (table.shape[1] + 1) // 2 - i.stop
    return table[:, first : first + i.stop - i.start + longest - 1]


def _columns_by_key(table: Tensor, j: slice, r: slice) -> Tensor:
    """Rows of a table (smallest offset first) for keys `j` and queries `r`: from offset r.start-j.stop+1 up."""
    first = (table.shape[1] + 1) // 2 + r.start - j.stop
    return table[:, first : first + j.stop - j.start + r.stop - r.start - 1]


def _by_query(lined_Hnbc: Tensor, longest: int) -> Tensor:
    """The pairs (query, key) in products of b queries with offsets, largest first: [H, n, b, l]."""
    heads, sequences, size, columns = lined_Hnbc.shape
    strides = (sequences * size * columns, size * columns, columns - 1, 1)
    return lined_Hnbc.as_strided((heads, sequences, size, longest), strides, size - 1)


def _by_key(lined_Hnbc: Tensor, rows: int) -> Tensor:
    """The pairs (query, key) in products of b keys with offsets, smallest first: [H, n, r, b]."""
    heads, sequences, size, columns = lined_Hnbc.shape
    strides = (sequences * size * columns, size * columns, 1, columns - 1)
    return lined_Hnbc.as_strided((heads, sequences, rows, size), strides, size - 1)


def _diagonals(bias_HR: Tensor, r: slice, longest: int) -> Tensor:
    """[H, r, l] with bias[i-j] at (i, j)."""
    half = (bias_HR.shape[1] + 1) // 2
    return bias_HR.unfold(1, longest, 1)[:, half - r.stop : half - r.start].flip(1)


def _add_diagonals(scores_Hrl: Tensor, to_bias_HR: Tensor, r: slice) -> None:
    """Undoes `_diagonals`: sums along each diagonal."""
    heads, rows, longest = scores_Hrl.shape
    columns, first = rows + longest - 1, (to_bias_HR.shape[1] + 1) // 2 - r.stop
    lined = scores_Hrl.new_zeros(heads, rows, columns)
    lined.as_strided((heads, rows, longest), (rows * columns, columns + 1, 1)).copy_(scores_Hrl.flip(1))
    to_bias_HR[:, first : first + columns] += lined.sum(1)
