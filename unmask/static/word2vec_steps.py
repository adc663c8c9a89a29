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

assert GROUP == 6 and LANES == 8, "the loops below are written for these"


@compiled_fast
def copy(outputs: Floats, targets: Ints, at: Int, width: Int, y: Floats) -> None:
    """[6 * W] The targets' vectors, one behind the other."""
    for k in range(GROUP):
        row, to = targets[at + k], k * width
        for j in range(0, width, LANES):
            store(y, to + j, load(outputs, row + j))


@compiled_fast
def average_rows(inputs: Floats, rows: Ints, starts: Ints, count: Int, width: Int, means: Floats) -> None:
    """[n * W] The mean of each input's rows."""
    for n in range(count):
        begin, end, to = starts[n], starts[n + 1], n * width
        share = same(np.float32(1) / np.float32(end - begin))
        first = rows[begin]
        for j in range(0, width, LANES):
            store(means, to + j, multiply(load(inputs, first + j), share))
        for at in range(begin + 1, end):
            row = rows[at]
            for j in range(0, width, LANES):
                store(means, to + j, multiply_add(load(inputs, row + j), share, load(means, to + j)))


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
def move_targets(
    x: Floats, rows: Ints, count: Int, g: Floats, outputs: Floats, targets: Ints, at: Int, width: Int
) -> None:
    """y_k += sum_n g_nk x_n, one target after the other, since one may be there twice."""
    pairs = width // (2 * LANES) * 2 * LANES
    for j in range(0, pairs, 2 * LANES):
        _move_sixteen(x, rows, count, g, outputs, targets, at, j)
    if pairs < width:
        _move_eight(x, rows, count, g, outputs, targets, at, pairs)


@compiled_fast
def _move_sixteen(
    x: Floats, rows: Ints, count: Int, g: Floats, outputs: Floats, targets: Ints, at: Int, j: Int
) -> None:
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
    _add_to(outputs, targets[at] + j, a0)
    _add_to(outputs, targets[at] + j + LANES, b0)
    _add_to(outputs, targets[at + 1] + j, a1)
    _add_to(outputs, targets[at + 1] + j + LANES, b1)
    _add_to(outputs, targets[at + 2] + j, a2)
    _add_to(outputs, targets[at + 2] + j + LANES, b2)
    _add_to(outputs, targets[at + 3] + j, a3)
    _add_to(outputs, targets[at + 3] + j + LANES, b3)
    _add_to(outputs, targets[at + 4] + j, a4)
    _add_to(outputs, targets[at + 4] + j + LANES, b4)
    _add_to(outputs, targets[at + 5] + j, a5)
    _add_to(outputs, targets[at + 5] + j + LANES, b5)


@compiled_fast
def _move_eight(x: Floats, rows: Ints, count: Int, g: Floats, outputs: Floats, targets: Ints, at: Int, j: Int) -> None:
    none = same(np.float32(0))
    a0 = a1 = a2 = a3 = a4 = a5 = none
    for n in range(count):
        a, first = load(x, rows[n] + j), n * LANES
        a0 = multiply_add(a, spread(g, first), a0)
        a1 = multiply_add(a, spread(g, first + 1), a1)
        a2 = multiply_add(a, spread(g, first + 2), a2)
        a3 = multiply_add(a, spread(g, first + 3), a3)
        a4 = multiply_add(a, spread(g, first + 4), a4)
        a5 = multiply_add(a, spread(g, first + 5), a5)
    _add_to(outputs, targets[at] + j, a0)
    _add_to(outputs, targets[at + 1] + j, a1)
    _add_to(outputs, targets[at + 2] + j, a2)
    _add_to(outputs, targets[at + 3] + j, a3)
    _add_to(outputs, targets[at + 4] + j, a4)
    _add_to(outputs, targets[at + 5] + j, a5)


@compiled_fast
def move_inputs(inputs: Floats, rows: Ints, count: Int, g: Floats, y: Floats, y_rows: Ints, width: Int) -> None:
    """x_n += sum_k g_nk y_k, one input after the other, since one may be there twice."""
    for n in range(count):
        row, at = rows[n], n * LANES
        g0, g1, g2 = spread(g, at), spread(g, at + 1), spread(g, at + 2)
        g3, g4, g5 = spread(g, at + 3), spread(g, at + 4), spread(g, at + 5)
        t0, t1, t2, t3, t4, t5 = y_rows[0], y_rows[1], y_rows[2], y_rows[3], y_rows[4], y_rows[5]
        for j in range(0, width, LANES):
            x = multiply_add(g0, load(y, t0 + j), load(inputs, row + j))
            x = multiply_add(g1, load(y, t1 + j), x)
            x = multiply_add(g2, load(y, t2 + j), x)
            x = multiply_add(g3, load(y, t3 + j), x)
            x = multiply_add(g4, load(y, t4 + j), x)
            store(inputs, row + j, multiply_add(g5, load(y, t5 + j), x))


@compiled_fast
def find_changes(
    starts: Ints, count: Int, g: Floats, y: Floats, y_rows: Ints, first: Int, width: Int, average: bool, changes: Floats
) -> None:
    """[n * W] What inputs that are means move their rows by."""
    t0, t1, t2 = y_rows[first], y_rows[first + 1], y_rows[first + 2]
    t3, t4, t5 = y_rows[first + 3], y_rows[first + 4], y_rows[first + 5]
    for n in range(count):
        at, to = n * LANES, n * width
        share = same(np.float32(1) / np.float32(starts[n + 1] - starts[n]) if average else np.float32(1))
        g0 = multiply(share, spread(g, at))
        g1 = multiply(share, spread(g, at + 1))
        g2 = multiply(share, spread(g, at + 2))
        g3 = multiply(share, spread(g, at + 3))
        g4 = multiply(share, spread(g, at + 4))
        g5 = multiply(share, spread(g, at + 5))
        for j in range(0, width, LANES):
            change = multiply(g0, load(y, t0 + j))
            change = multiply_add(g1, load(y, t1 + j), change)
            change = multiply_add(g2, load(y, t2 + j), change)
            change = multiply_add(g3, load(y, t3 + j), change)
            change = multiply_add(g4, load(y, t4 + j), change)
            store(changes, to + j, multiply_add(g5, load(y, t5 + j), change))


@compiled_fast
def move_parts(inputs: Floats, rows: Ints, starts: Ints, count: Int, width: Int, changes: Floats) -> None:
    """Adds the change of each input to each row that it is the mean of."""
    for n in range(count):
        to = n * width
        for place in range(starts[n], starts[n + 1]):
            row = rows[place]
            for j in range(0, width, LANES):
                _add_to(inputs, row + j, load(changes, to + j))


@compiled_fast
def _add_to(array: Floats, at: Int, change: Any) -> None:
    store(array, at, add(load(array, at), change))
