"""Which rows are nearest to a query: all queries against all rows as matrix products, block by block.

Equal scores are ordered by row, which is by frequency. A matrix product in float32 may score equal rows differently in the
last bits, so rows near the k-th score are scored again, in float64 and each by itself.

Legend: V rows, D dimension, Q queries, K answers, N pairs of a query and a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Exact = Callable[[Ints, Ints], NDArray[np.float64]]
Nearest = tuple[Ints, NDArray[np.float64]]

_SCORES = 2**23  # of a block of queries at once: 32 MiB
_PAIRS = 2**14  # scored again at once
_DOUBT = 1e-5  # more than what float32 can be wrong by
_EPSILON = 1e-6  # keeps the quotient finite; gensim's value (Levy and Goldberg 2014, section 6, have 0.001)


def unit_rows(matrix_VD: Floats) -> Floats:
    """Every row at length 1, in float32; zero rows stay zero."""
    out_VD = np.empty_like(matrix_VD, order="C")
    for begin in range(0, len(matrix_VD), 8192):
        rows = matrix_VD[begin : begin + 8192].astype(np.float64)  # where no square overflows
        lengths = np.sqrt(np.einsum("vd,vd->v", rows, rows))
        out_VD[begin : begin + 8192] = rows / np.where(lengths > 0, lengths, 1)[:, None]
    return out_VD


def nearest(unit_VD: Floats, queries_QD: Floats, k: int, excluded: Sequence[Sequence[int]]) -> Nearest:
    """The `k` rows with the greatest cosine to each query, and the cosines: [Q, K] each, -1 and 0 where no row is left.

    Rows and queries have length 1 or 0. `excluded` names, for each query, rows that are no answers.
    """

    def scores(queries: slice) -> Floats:
        return queries_QD[queries] @ unit_VD.T

    def exact(query_N: Ints, row_N: Ints) -> NDArray[np.float64]:
        return _products(queries_QD[query_N], unit_VD[row_N])

    return _searched(len(queries_QD), len(unit_VD), k, excluded, scores, exact)


def nearest_by_product(
    unit_VD: Floats, a_QD: Floats, b_QD: Floats, c_QD: Floats, k: int, excluded: Sequence[Sequence[int]]
) -> Nearest:
    """Like `nearest` for "a is to b as c is to …" by 3CosMul (Levy and Goldberg 2014, equation 4): cos(b) cos(c) / cos(a).

    Cosines are shifted to 0 … 1 first, as their footnote 7 has it.
    """

    def scores(queries: slice) -> Floats:
        a, b, c = (part[queries] @ unit_VD.T for part in (a_QD, b_QD, c_QD))
        return _quotient(a, b, c)

    def exact(query_N: Ints, row_N: Ints) -> NDArray[np.float64]:
        a, b, c = (_products(part[query_N], unit_VD[row_N]) for part in (a_QD, b_QD, c_QD))
        return _quotient(a, b, c)

    return _searched(len(a_QD), len(unit_VD), k, excluded, scores, exact)


def _quotient(a: Any, b: Any, c: Any) -> Any:
    return (1 + b) / 2 * ((1 + c) / 2) / (np.maximum(1 + a, 0) / 2 + _EPSILON)


def _products(left_ND: Floats, right_ND: Floats) -> NDArray[np.float64]:
    return np.einsum("nd,nd->n", left_ND.astype(np.float64), right_ND.astype(np.float64))


def _searched(
    queries: int,
    rows: int,
    k: int,
    excluded: Sequence[Sequence[int]],
    scores: Callable[[slice], Floats],
    exact: Exact,
) -> Nearest:
    ids_QK = np.full((queries, min(k, rows)), -1)
    values_QK = np.zeros(ids_QK.shape)
    step = max(1, _SCORES // max(rows, 1))
    for begin in range(0, queries, step):
        block = slice(begin, min(begin + step, queries))
        scores_QV = scores(block)
        for query, left_out in enumerate(excluded[block]):
            scores_QV[query, list(left_out)] = -np.inf
        query_N, row_N = _candidates(scores_QV, ids_QK.shape[1])
        parts = range(0, len(row_N), _PAIRS)
        value_N = [exact(query_N[at : at + _PAIRS] + begin, row_N[at : at + _PAIRS]) for at in parts]
        _keep_best(ids_QK[block], values_QK[block], query_N, row_N, np.concatenate([np.empty(0), *value_N]))
    return ids_QK, values_QK


def _candidates(scores_QV: Floats, k: int) -> tuple[Ints, Ints]:
    """All that may be among the `k` best of their query."""
    rows = scores_QV.shape[1]
    least_Q = scores_QV.max(1) if k == 1 else np.partition(scores_QV, rows - k, axis=1)[:, rows - k]
    with np.errstate(invalid="ignore"):
        least_Q = np.where(np.isfinite(least_Q), least_Q - _DOUBT * np.maximum(1, np.abs(least_Q)), -np.inf)
    query_N, row_N = np.nonzero((scores_QV >= least_Q[:, None]) & (scores_QV > -np.inf))
    return query_N, row_N


def _keep_best(
    ids_QK: Ints, values_QK: NDArray[np.float64], query_N: Ints, row_N: Ints, value_N: NDArray[np.float64]
) -> None:
    order = np.lexsort((row_N, -value_N, query_N))
    query_N, row_N, value_N = query_N[order], row_N[order], value_N[order]
    place_N = np.arange(len(query_N)) - np.searchsorted(query_N, query_N)
    kept = place_N < ids_QK.shape[1]
    ids_QK[query_N[kept], place_N[kept]] = row_N[kept]
    values_QK[query_N[kept], place_N[kept]] = value_N[kept]
