"""Which tokens become targets. Each function returns [T] bool; every sequence gets its share exactly, on average over draws.

Draws are hashes of (key of the sequence, place in it), so a sequence's targets never depend on its batch mates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.randomness import keys, uniform

Flags = NDArray[np.bool_]


def choose_tokens(
    candidates: Flags, rows: NDArray[np.int64], places: NDArray[np.int64], row_keys: NDArray[np.uint64], rate: float
) -> Flags:
    """`rate` of each sequence's candidates, uniformly: k = rate × candidates, its fraction settled by a draw."""
    words = np.ones(len(candidates), bool)
    return choose_words(candidates, words, rows, places, row_keys, rate)


def choose_words(
    candidates: Flags,
    word_starts: Flags,
    rows: NDArray[np.int64],
    places: NDArray[np.int64],
    row_keys: NDArray[np.uint64],
    rate: float,
) -> Flags:
    """Whole words in random order until `rate` of the sequence's candidates is spent.

    The word that would overspend is taken with the probability of the part that fits, so the expected number of targets is
    exactly rate × candidates (BERT's own rule, skipping such words, falls short where words are long, as in Chinese).
    A word ends at a sequence border and at a token that is no candidate.
    """
    chosen = np.zeros(len(candidates), bool)
    at = np.flatnonzero(candidates)
    if len(at) == 0:
        return chosen
    fresh = np.ones(len(at), bool)
    fresh[1:] = word_starts[at[1:]] | (np.diff(at) > 1) | (np.diff(rows[at]) > 0)
    word = np.cumsum(fresh) - 1  # [candidates] the word of each
    first = at[fresh]
    row = rows[first]
    order = np.lexsort((uniform(keys(row_keys[row].view(np.int64), places[first], 1)), row))
    size = np.bincount(word)[order]
    budget = rate * np.bincount(rows[at], minlength=len(row_keys))[row[order]]
    spent = _running_sum(size, row[order])
    settle = uniform(keys(row_keys[row[order]].view(np.int64), 2))  # one draw a sequence settles the last word
    taken = np.zeros(len(first), bool)
    taken[order] = spent + settle * size <= budget
    chosen[at] = taken[word]
    return chosen


def _running_sum(size: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    """What stands before each element in its own row; rows are contiguous."""
    before = np.cumsum(size) - size
    starts = np.flatnonzero(np.r_[True, np.diff(row) > 0])
    out: NDArray[np.int64] = before - np.repeat(before[starts], np.diff(np.r_[starts, len(row)]))
    return out
