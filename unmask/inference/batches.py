"""Texts into batches by token budget: near-equal lengths together, so that next to nothing is padded.

Legend: N texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CPU_TOKENS = 2048  # of a batch; measured: fewer leave the matrix products small, more leave the caches


def token_batches(lengths_N: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Which texts go together: at most `budget` tokens a batch, longest first inside it; a longer text goes alone.

    The batches themselves come in a scattered order, so that the rate of the first ones tells how long the rest takes.
    """
    order = np.argsort(-lengths_N, kind="stable")
    sums = lengths_N[order].cumsum()
    batches, begin, before = [], 0, 0
    while begin < len(order):
        rest = int(sums[-1]) - before
        share = -(-rest // -(-rest // budget))  # of as few equal batches as can be: no runt at the end
        end = int(np.searchsorted(sums, before + share)) + 1
        if end - begin > 1 and sums[end - 1] > before + budget:
            end -= 1
        batches.append(order[begin:end])
        begin, before = end, int(sums[end - 1])
    return [batches[i] for i in np.random.default_rng(0).permutation(len(batches))]
