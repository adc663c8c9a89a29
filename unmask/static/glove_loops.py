"""GloVe's update of two words at once, in a compiled loop; `glove_plain` is its twin.

Legend: V words, E numbers a row, padded; P pairs, Q tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled_fast

Rows = NDArray[np.float32]


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

    A row of `main` and `context` [V, 2E + 2] holds a vector [E], the sums of its squared steps [E], a bias and that one's sum.
    """
    cost, done = 0.0, 0
    for tile in chosen:
        row, column = np.int64(corners_Q2[tile, 0]), np.int64(corners_Q2[tile, 1])
        for at in range(tiles_Q[tile], tiles_Q[tile + 1]):
            high, low = row + np.int64(high_P[at]), column + np.int64(low_P[at])
            log_count = np.float32(np.log(counts_P[at]))
            weight = np.float32(min(1.0, (counts_P[at] / x_max) ** power))
            cost += _update(main[high], context[low], log_count, weight, np.float32(rate))
            done += 1
            if high != low:
                cost += _update(main[low], context[high], log_count, weight, np.float32(rate))
                done += 1
    return cost, done


@compiled_fast
def _update(word: Rows, other: Rows, log_count: np.float32, weight: np.float32, rate: np.float32) -> float:
    """AdaGrad on half of weight · (w·c + b_w + b_c - log x)²."""
    width = (len(word) - 2) // 2
    vector, other_vector = word[:width], other[:width]
    squares, other_squares = word[width : 2 * width], other[width : 2 * width]
    product: np.floating[Any] = np.float32(0.0)
    for d in range(width):
        product += vector[d] * other_vector[d]
    difference = product + word[2 * width] + other[2 * width] - log_count
    pull = weight * difference
    limit = np.float32(100.0)
    for d in range(width):
        step = rate * max(-limit, min(limit, pull * other_vector[d]))
        other_step = rate * max(-limit, min(limit, pull * vector[d]))
        vector[d] -= step / np.sqrt(squares[d])
        other_vector[d] -= other_step / np.sqrt(other_squares[d])
        squares[d] += step * step
        other_squares[d] += other_step * other_step
    for one in (word, other):
        one[2 * width] -= pull / np.sqrt(one[2 * width + 1])
        one[2 * width + 1] += pull * pull
    return float(np.float32(0.5) * pull * difference)
