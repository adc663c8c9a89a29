"""The arithmetic of a word2vec step on flat tables, compiled: six targets, one or more inputs.

Legend: as in `word2vec_plain`. Rows are told by where they begin in a table. `width`, their length, is a multiple of 8. Targets
and scores have eight places each, of which six are used; `marks` holds eight labels, then eight ones or, for targets that are
left out, zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unmask.loops import compiled_fast
from unmask.static.memory import LANES
from unmask.static.vector_code import (
    add,
    load,
    multiply,
    multiply_add,
    same,
    sigmoid,
    spread,
    store,
    subtract,
    sums,
)
from unmask.static.word2vec_plain import GROUP, Floats, Ints

Int = Any  # int64, in compiled code
_WIDE = 4 * LANES  # numbers of a row that are summed up in registers

assert GROUP == 6 and LANES == 8, "the loops below are written for these"


@compiled_fast
def average_rows(inputs: Floats, rows: Ints, starts: Ints, count: Int, width: Int, means: Floats) -> None:
    """[n * W] The mean of each input's rows."""
    wide = width // _WIDE * _WIDE
    for n in range(count):
        begin, end, to = starts[n], starts[n + 1], n * width
        share = same(np.float32(1) / np.float32(end - begin))
        for j in range(0, wide, _WIDE):
            a = b = c = d = same(np.float32(0))
            for at in range(begin, end):
                row = rows[at] + j
                a, b = add(a, load(inputs, row)), add(b, load(inputs, row + LANES))
                c, d = add(c, load(inputs, row + 2 * LANES)), add(d, load(inputs, row + 3 * LANES))
            _store_four(means, to + j, multiply(a, share), multiply(b, share), multiply(c, share), multiply(d, share))
        for j in range(wide, width, LANES):
            a = same(np.float32(0))
            for at in range(begin, end):
                a = add(a, load(inputs, rows[at] + j))
            store(means, to + j, multiply(a, share))


@compiled_fast
def score(x: Floats, rows: Ints, count: Int, y: Floats, y_rows: Ints, first: Int, width: Int, scores: Floats) -> None:
    """[n * 8] Each input times each target."""
    for n in range(0, count - 1, 2):
        _products_of_two(x, rows[n], rows[n + 1], y, y_rows, first, width, scores, n * LANES)
    if count & 1:
        _products_of_one(x, rows[count - 1], y, y_rows, first, width, scores, (count - 1) * LANES)


@compiled_fast
def measure(scores: Floats, count: Int, marks: Floats, at: Int, lanes: Floats) -> float:
    """The loss: minus the logarithm of the probability that all targets are told right; sums over the inputs."""
    signs = multiply_add(load(marks, at), same(np.float32(2)), same(np.float32(-1)))
    loss = 0.0
    for n in range(count):
        store(lanes, 0, sigmoid(multiply(load(scores, n * LANES), signs)))
        probability = 1.0
        for k in range(GROUP):
            probability *= np.float64(lanes[k]) if marks[at + LANES + k] > 0 else 1.0
        loss -= np.log(probability)
    return loss


@compiled_fast
def score_to_g(scores: Floats, count: Int, marks: Floats, at: Int, rate: np.float32, health: Floats) -> None:
    """(label - sigmoid(score)) * rate in each score's place, 0 where there is no target."""
    labels = load(marks, at)
    share = multiply(load(marks, at + LANES), same(rate))
    total = load(health, 0)
    for n in range(0, count * LANES, LANES):
        scored = load(scores, n)
        total = add(total, scored)
        store(scores, n, multiply(subtract(labels, sigmoid(scored)), share))
    store(health, 0, total)


@compiled_fast
def _products_of_two(
    x: Floats, row: Int, other: Int, y: Floats, y_rows: Ints, first: Int, width: Int, scores: Floats, at: Int
) -> None:
    t0, t1, t2 = y_rows[first], y_rows[first + 1], y_rows[first + 2]
    t3, t4, t5 = y_rows[first + 3], y_rows[first + 4], y_rows[first + 5]
    none = same(np.float32(0))
    a0 = a1 = a2 = a3 = a4 = a5 = none
    b0 = b1 = b2 = b3 = b4 = b5 = none
    for j in range(0, width, LANES):
        a, b = load(x, row + j), load(x, other + j)
        target = load(y, t0 + j)
        a0, b0 = multiply_add(a, target, a0), multiply_add(b, target, b0)
        target = load(y, t1 + j)
        a1, b1 = multiply_add(a, target, a1), multiply_add(b, target, b1)
        target = load(y, t2 + j)
        a2, b2 = multiply_add(a, target, a2), multiply_add(b, target, b2)
        target = load(y, t3 + j)
        a3, b3 = multiply_add(a, target, a3), multiply_add(b, target, b3)
        target = load(y, t4 + j)
        a4, b4 = multiply_add(a, target, a4), multiply_add(b, target, b4)
        target = load(y, t5 + j)
        a5, b5 = multiply_add(a, target, a5), multiply_add(b, target, b5)
    store(scores, at, sums(a0, a1, a2, a3, a4, a5, none, none))
    store(scores, at + LANES, sums(b0, b1, b2, b3, b4, b5, none, none))


@compiled_fast
def _products_of_one(
    x: Floats, row: Int, y: Floats, y_rows: Ints, first: Int, width: Int, scores: Floats, at: Int
) -> None:
    t0, t1, t2 = y_rows[first], y_rows[first + 1], y_rows[first + 2]
    t3, t4, t5 = y_rows[first + 3], y_rows[first + 4], y_rows[first + 5]
    none = same(np.float32(0))
    a0 = a1 = a2 = a3 = a4 = a5 = none
    for j in range(0, width, LANES):
        a = load(x, row + j)
        a0 = multiply_add(a, load(y, t0 + j), a0)
        a1 = multiply_add(a, load(y, t1 + j), a1)
        a2 = multiply_add(a, load(y, t2 + j), a2)
        a3 = multiply_add(a, load(y, t3 + j), a3)
        a4 = multiply_add(a, load(y, t4 + j), a4)
        a5 = multiply_add(a, load(y, t5 + j), a5)
    store(scores, at, sums(a0, a1, a2, a3, a4, a5, none, none))


@compiled_fast
def move(
    x: Floats, rows: Ints, count: Int, g: Floats, outputs: Floats, targets: Ints, at: Int, width: Int, are_means: bool
) -> None:
    """y_k += sum_n g_nk x_n and x_n += sum_k g_nk y_k; an x that is a mean becomes what its rows have to move by."""
    pairs = width // (2 * LANES) * 2 * LANES
    for j in range(0, pairs, 2 * LANES):
        _move_sixteen(x, rows, count, g, outputs, targets, at, j, are_means)
    if pairs < width:
        _move_eight(x, rows, count, g, outputs, targets, at, pairs, are_means)


@compiled_fast
def _move_sixteen(
    x: Floats, rows: Ints, count: Int, g: Floats, outputs: Floats, targets: Ints, at: Int, j: Int, are_means: bool
) -> None:
    t0, t1, t2 = targets[at] + j, targets[at + 1] + j, targets[at + 2] + j
    t3, t4, t5 = targets[at + 3] + j, targets[at + 4] + j, targets[at + 5] + j
    none = same(np.float32(0))
    a0 = a1 = a2 = a3 = a4 = a5 = none
    b0 = b1 = b2 = b3 = b4 = b5 = none
    for n in range(count):
        place, first = rows[n] + j, n * LANES
        a, b = load(x, place), load(x, place + LANES)
        e = spread(g, first)
        a0, b0 = multiply_add(a, e, a0), multiply_add(b, e, b0)
        e = spread(g, first + 1)
        a1, b1 = multiply_add(a, e, a1), multiply_add(b, e, b1)
        e = spread(g, first + 2)
        a2, b2 = multiply_add(a, e, a2), multiply_add(b, e, b2)
        e = spread(g, first + 3)
        a3, b3 = multiply_add(a, e, a3), multiply_add(b, e, b3)
        e = spread(g, first + 4)
        a4, b4 = multiply_add(a, e, a4), multiply_add(b, e, b4)
        e = spread(g, first + 5)
        a5, b5 = multiply_add(a, e, a5), multiply_add(b, e, b5)
    y0, z0 = load(outputs, t0), load(outputs, t0 + LANES)
    y1, z1 = load(outputs, t1), load(outputs, t1 + LANES)
    y2, z2 = load(outputs, t2), load(outputs, t2 + LANES)
    y3, z3 = load(outputs, t3), load(outputs, t3 + LANES)
    y4, z4 = load(outputs, t4), load(outputs, t4 + LANES)
    y5, z5 = load(outputs, t5), load(outputs, t5 + LANES)
    for n in range(count):
        place, first = rows[n] + j, n * LANES
        a, b = none, none
        if not are_means:
            a, b = load(x, place), load(x, place + LANES)
        e = spread(g, first)
        a, b = multiply_add(e, y0, a), multiply_add(e, z0, b)
        e = spread(g, first + 1)
        a, b = multiply_add(e, y1, a), multiply_add(e, z1, b)
        e = spread(g, first + 2)
        a, b = multiply_add(e, y2, a), multiply_add(e, z2, b)
        e = spread(g, first + 3)
        a, b = multiply_add(e, y3, a), multiply_add(e, z3, b)
        e = spread(g, first + 4)
        a, b = multiply_add(e, y4, a), multiply_add(e, z4, b)
        e = spread(g, first + 5)
        a, b = multiply_add(e, y5, a), multiply_add(e, z5, b)
        store(x, place, a)
        store(x, place + LANES, b)
    _add_to(outputs, t0, a0)
    _add_to(outputs, t0 + LANES, b0)
    _add_to(outputs, t1, a1)
    _add_to(outputs, t1 + LANES, b1)
    _add_to(outputs, t2, a2)
    _add_to(outputs, t2 + LANES, b2)
    _add_to(outputs, t3, a3)
    _add_to(outputs, t3 + LANES, b3)
    _add_to(outputs, t4, a4)
    _add_to(outputs, t4 + LANES, b4)
    _add_to(outputs, t5, a5)
    _add_to(outputs, t5 + LANES, b5)


@compiled_fast
def _move_eight(
    x: Floats, rows: Ints, count: Int, g: Floats, outputs: Floats, targets: Ints, at: Int, j: Int, are_means: bool
) -> None:
    t0, t1, t2 = targets[at] + j, targets[at + 1] + j, targets[at + 2] + j
    t3, t4, t5 = targets[at + 3] + j, targets[at + 4] + j, targets[at + 5] + j
    y0, y1, y2 = load(outputs, t0), load(outputs, t1), load(outputs, t2)
    y3, y4, y5 = load(outputs, t3), load(outputs, t4), load(outputs, t5)
    a0 = a1 = a2 = a3 = a4 = a5 = none = same(np.float32(0))
    for n in range(count):
        a, first = load(x, rows[n] + j), n * LANES
        a0 = multiply_add(a, spread(g, first), a0)
        a1 = multiply_add(a, spread(g, first + 1), a1)
        a2 = multiply_add(a, spread(g, first + 2), a2)
        a3 = multiply_add(a, spread(g, first + 3), a3)
        a4 = multiply_add(a, spread(g, first + 4), a4)
        a5 = multiply_add(a, spread(g, first + 5), a5)
    for n in range(count):
        place, first = rows[n] + j, n * LANES
        a = none
        if not are_means:
            a = load(x, place)
        a = multiply_add(spread(g, first), y0, a)
        a = multiply_add(spread(g, first + 1), y1, a)
        a = multiply_add(spread(g, first + 2), y2, a)
        a = multiply_add(spread(g, first + 3), y3, a)
        a = multiply_add(spread(g, first + 4), y4, a)
        a = multiply_add(spread(g, first + 5), y5, a)
        store(x, place, a)
    _add_to(outputs, t0, a0)
    _add_to(outputs, t1, a1)
    _add_to(outputs, t2, a2)
    _add_to(outputs, t3, a3)
    _add_to(outputs, t4, a4)
    _add_to(outputs, t5, a5)


@compiled_fast
def move_with_one(
    mean: Floats, share: np.float32, g: Floats, outputs: Floats, targets: Ints, at: Int, width: Int
) -> None:
    """The same with a single mean; what its rows have to move by is multiplied by `share`."""
    t0, t1, t2 = targets[at], targets[at + 1], targets[at + 2]
    t3, t4, t5 = targets[at + 3], targets[at + 4], targets[at + 5]
    g0, g1, g2, g3, g4, g5 = spread(g, 0), spread(g, 1), spread(g, 2), spread(g, 3), spread(g, 4), spread(g, 5)
    part = same(share)
    for j in range(0, width, LANES):
        x = load(mean, j)
        change = multiply(g0, load(outputs, t0 + j))
        change = multiply_add(g1, load(outputs, t1 + j), change)
        change = multiply_add(g2, load(outputs, t2 + j), change)
        change = multiply_add(g3, load(outputs, t3 + j), change)
        change = multiply_add(g4, load(outputs, t4 + j), change)
        change = multiply_add(g5, load(outputs, t5 + j), change)
        store(mean, j, multiply(part, change))
        _add_to(outputs, t0 + j, multiply(g0, x))
        _add_to(outputs, t1 + j, multiply(g1, x))
        _add_to(outputs, t2 + j, multiply(g2, x))
        _add_to(outputs, t3 + j, multiply(g3, x))
        _add_to(outputs, t4 + j, multiply(g4, x))
        _add_to(outputs, t5 + j, multiply(g5, x))


@compiled_fast
def move_rows(inputs: Floats, rows: Ints, starts: Ints, count: Int, width: Int, changes: Floats) -> None:
    """Adds the change of each input to each row that it is the mean of."""
    wide = width // _WIDE * _WIDE
    for n in range(count):
        begin, end, to = starts[n], starts[n + 1], n * width
        for j in range(0, wide, _WIDE):
            a, b = load(changes, to + j), load(changes, to + j + LANES)
            c, d = load(changes, to + j + 2 * LANES), load(changes, to + j + 3 * LANES)
            for at in range(begin, end):
                row = rows[at] + j
                _store_four(
                    inputs,
                    row,
                    add(load(inputs, row), a),
                    add(load(inputs, row + LANES), b),
                    add(load(inputs, row + 2 * LANES), c),
                    add(load(inputs, row + 3 * LANES), d),
                )
        for j in range(wide, width, LANES):
            a = load(changes, to + j)
            for at in range(begin, end):
                _add_to(inputs, rows[at] + j, a)


@compiled_fast
def _store_four(array: Floats, at: Int, a: Any, b: Any, c: Any, d: Any) -> None:
    store(array, at, a)
    store(array, at + LANES, b)
    store(array, at + 2 * LANES, c)
    store(array, at + 3 * LANES, d)


@compiled_fast
def _add_to(array: Floats, at: Int, change: Any) -> None:
    store(array, at, add(load(array, at), change))
