"""GloVe's update in NumPy, pair by pair: what `glove_loops` does, written to be read.

Legend: D dimension, V words, Q tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import Glove
from unmask.static.pairs import Pairs

LIMIT = 100.0  # a gradient beyond is cut, as in the authors' program


@dataclass
class Side:
    """One of the two vectors of every word, with its bias, and what AdaGrad remembers of each."""

    vectors: NDArray[np.float32]  # [V, D]
    biases: NDArray[np.float32]  # [V]
    vector_squares: NDArray[np.float32]  # [V, D]
    bias_squares: NDArray[np.float32]  # [V]


def train_plainly(pairs: Pairs, chosen: Iterable[int], main: Side, context: Side, settings: Glove) -> float:
    """One pass over the pairs of the chosen tiles [Q], in order and both ways round; gives the cost before each update."""
    cost = 0.0
    for tile in chosen:
        row, column = map(int, pairs.corners[tile])
        for at in range(pairs.tiles[tile], pairs.tiles[tile + 1]):
            high, low = row + int(pairs.high[at]), column + int(pairs.low[at])
            count = float(pairs.counts[at])
            cost += _update(main, high, context, low, count, settings)
            if high != low:
                cost += _update(main, low, context, high, count, settings)
    return cost


def _update(main: Side, i: int, context: Side, j: int, count: float, settings: Glove) -> float:
    """Equation 8 of Pennington et al. 2014 for one pair, with the weight of equation 9.

    As the authors' program has it: AdaGrad's sums begin at 1 and add squared steps, the learning rate within; a bias takes
    steps without the learning rate.
    """
    w, c = main.vectors[i].copy(), context.vectors[j].copy()
    difference = float(w @ c) + main.biases[i] + context.biases[j] - math.log(count)
    pull = min(1.0, count / settings.x_max) ** settings.power * difference
    for side, word, other in ((main, i, c), (context, j, w)):
        step = settings.learning_rate * np.clip(pull * other, -LIMIT, LIMIT)
        side.vectors[word] -= step / np.sqrt(side.vector_squares[word])
        side.vector_squares[word] += step**2
        side.biases[word] -= pull / np.sqrt(side.bias_squares[word])
        side.bias_squares[word] += pull**2
    return 0.5 * pull * difference
