"""Corpora of word numbers, for tests of what is trained on them."""

from __future__ import annotations

import numpy as np

from unmask.static.tokens import Tokens
from unmask.static.words import WordCounts


def tokens_of(lines: list[list[int]], size: int) -> Tokens:
    """Lines of word numbers below `size`, as if they had been read from a text."""
    bounds = np.cumsum([0, *map(len, lines)])
    counts = np.bincount([id for line in lines for id in line], minlength=size)
    ids = np.array([id for line in lines for id in line], np.int32)
    return Tokens(ids, bounds, WordCounts([str(at) for at in range(size)], counts), len(ids))
