"""Texts into batches by token budget: near-equal lengths together, so that next to nothing is padded.

Legend: N texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def token_batches(lengths_N: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Which texts go together: about `budget` tokens a batch, longest first inside it; a longer text goes alone.

    The batches themselves come in a scattered order, so that the rate of the first ones tells how long the rest takes.
    """
    if not len(lengths_N):
        return []
    order = np.argsort(-lengths_N, kind="stable")
    total = int(lengths_N.sum())
    count = -(-total // budget)  # equal batches: no runt at the end
    before = lengths_N[order].cumsum() - lengths_N[order]
    batches = np.split(order, np.flatnonzero(np.diff(before * count // total)) + 1)
    return [batches[i] for i in np.random.default_rng(0).permutation(len(batches))]
