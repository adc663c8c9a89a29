"""GloVe's update of two words at once, in a compiled loop; `glove_plain` is its twin.

Eight numbers at a time: left to itself, the compiler takes longer vectors, and what is over one by one.

Legend: V words, E numbers a vector, padded; P pairs, Q tiles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled_fast
from unmask.static.memory import CACHE_LINE, LANES
from unmask.static.vector_code import clip, inverse_root, load, multiply, multiply_add, same, store, subtract, total

Rows = NDArray[np.float32]

BIASES = CACHE_LINE  # numbers of a row behind its vector, so that the next one begins with a cache line too
_LIMIT = np.float32(100.0)  # `glove_plain.LIMIT`


@compiled_fast
def train_tiles(
    chosen: NDArray[np.int64],
    tiles_Q: NDArray[np.int64],
    corners_Q2: NDArray[np.int32],
    high_P: NDArray[np.uint8],
    low_P: NDArray[np.uint8],
    counts_P: NDArray[np.float32],
    main: Rows,
    context: Rows,
    x_max: float,
    power: float,
    rate: float,
) -> tuple[float, int]:
    """One pass over the pairs of the chosen tiles; gives the cost of all of them, as it was before each update, and how many.

    A row of `main` and `context` [V, 2E + 16] is a vector [E], the sums of its squared steps [E], a bias and that one's sum, and
    zeros.
    """
    length, main, context = main.shape[1], main.reshape(-1), context.reshape(-1)
    width = (length - BIASES) // 2
    cost, done, log_max = 0.0, 0, np.float32(np.log(x_max))
    for tile in chosen:
        row, column = np.int64(corners_Q2[tile, 0]), np.int64(corners_Q2[tile, 1])
        for at in range(tiles_Q[tile], tiles_Q[tile + 1]):
            high, low = (row + high_P[at]) * length, (column + low_P[at]) * length
            log_count = np.log(counts_P[at])
            weight = np.exp(np.float32(power) * min(log_count - log_max, np.float32(0.0)))
            # Both ways round at once: what the one is to be moved by is known while the other's sum is awaited.
            difference, mirrored = _differences(main, context, high, low, width, log_count)
            _move(main, high, context, low, width, weight * difference, np.float32(rate))
            cost += weight * difference * difference
            done += 1
            if high != low:
                _move(main, low, context, high, width, weight * mirrored, np.float32(rate))
                cost += weight * mirrored * mirrored
                done += 1
    return cost / 2, done


@compiled_fast
def _differences(
    main: Rows, context: Rows, high: int, low: int, width: int, log_count: np.float32
) -> tuple[np.float32, np.float32]:
    """w·c + b_w + b_c - log x, of the row `high` of `main` and `low` of `context`, and the other way round."""
    product, mirrored = same(np.float32(0.0)), same(np.float32(0.0))
    for d in range(0, width, LANES):
        product = multiply_add(load(main, high + d), load(context, low + d), product)
        mirrored = multiply_add(load(main, low + d), load(context, high + d), mirrored)
    bias = 2 * width
    return (
        total(product) + main[high + bias] + context[low + bias] - log_count,
        total(mirrored) + main[low + bias] + context[high + bias] - log_count,
    )


@compiled_fast
def _move(main: Rows, word: int, context: Rows, other: int, width: int, pull: np.float32, rate: np.float32) -> None:
    """AdaGrad on half of weight · difference², where `pull` is weight · difference."""
    scaled, limit = same(rate * pull), same(rate * _LIMIT)
    for d in range(0, width, LANES):
        w, c = load(main, word + d), load(context, other + d)
        w_squares, c_squares = load(main, word + width + d), load(context, other + width + d)
        w_step, c_step = clip(multiply(scaled, c), limit), clip(multiply(scaled, w), limit)
        store(main, word + d, subtract(w, multiply(w_step, inverse_root(w_squares))))
        store(context, other + d, subtract(c, multiply(c_step, inverse_root(c_squares))))
        store(main, word + width + d, multiply_add(w_step, w_step, w_squares))
        store(context, other + width + d, multiply_add(c_step, c_step, c_squares))
    bias, square = 2 * width, 2 * width + 1
    main[word + bias] -= pull / np.sqrt(main[word + square])
    context[other + bias] -= pull / np.sqrt(context[other + square])
    main[word + square] += pull * pull
    context[other + square] += pull * pull
