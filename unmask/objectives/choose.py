"""Which tokens become targets: words, n-grams or spans in random order until the sequence's share is spent.

Draws are hashes of (key of the sequence, place in it), so a sequence's targets never depend on its batch mates.

Legend: T tokens, B sequences, W words, S segments. A word here is a token where the unit is one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unmask.randomness import keys, uniform

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Keys = NDArray[np.uint64]
Unit = Literal["token", "word", "ngram", "span"]

LENGTHS: dict[Unit, NDArray[np.float64]] = {  # how likely a segment of 1, 2, 3 … words is
    "token": np.ones(1),
    "word": np.ones(1),
    "ngram": (1 / np.arange(1, 4)) / (1 / np.arange(1, 4)).sum(),  # ALBERT, section 4.1
    "span": 0.8 ** np.arange(10) / (0.8 ** np.arange(10)).sum(),  # SpanBERT, section 3.1: geometric, p = 0.2, up to 10
}
ORDER, SETTLE, TURN, LENGTH = 1, 2, 3, 4  # what a draw is for


def choose(
    candidates_T: Flags,
    word_starts_T: Flags | None,
    rows_T: Numbers,
    places_T: Numbers,
    keys_B: Keys,
    rate: float,
    unit: Unit,
) -> Flags:
    """[T] True at the targets: `rate` of each sequence's candidates, exactly on average and to within a word every time.

    The words of a sequence are cut into segments; segments come in random order, their words from left to right, until
    the share is spent. The word that would overspend is taken with the probability of the part that fits (BERT's own rule,
    skipping such words, falls short where words are long, as in Chinese). A word ends at a sequence border and at a token
    that is no candidate, such as a separator.
    """
    chosen_T = np.zeros(len(candidates_T), bool)
    at = np.flatnonzero(candidates_T)
    if len(at) == 0:
        return chosen_T
    fresh = np.ones(len(at), bool)
    if unit != "token":
        assert word_starts_T is not None, "whole words need to know where words start"
        fresh[1:] = word_starts_T[at[1:]] | (np.diff(at) > 1) | (np.diff(rows_T[at]) > 0)
    word = np.cumsum(fresh) - 1  # [candidates] the word of each
    row_W, place_W = rows_T[at[fresh]], places_T[at[fresh]]
    order_W = _shuffled(row_W, place_W, keys_B, LENGTHS[unit])
    size_W = np.bincount(word)[order_W]
    budget_W = rate * np.bincount(rows_T[at], minlength=len(keys_B))[row_W]
    settle_W = uniform(keys(keys_B, SETTLE))[row_W]  # one draw a sequence settles its last word
    taken_W = np.zeros(len(row_W), bool)
    taken_W[order_W] = _running_sum(size_W, row_W) + settle_W * size_W <= budget_W
    chosen_T[at] = taken_W[word]
    return chosen_T


def _shuffled(row_W: Numbers, place_W: Numbers, keys_B: Keys, lengths: NDArray[np.float64]) -> Numbers:
    """[W] the words of each sequence in the order in which they are taken: its segments shuffled, each kept together."""
    turned_W, segment_W = tile(row_W, keys_B, lengths)
    first_S = np.flatnonzero(np.diff(segment_W, prepend=-1))
    draw_S = uniform(keys(keys_B[row_W[first_S]], place_W[turned_W[first_S]], ORDER))
    return turned_W[np.lexsort((draw_S[segment_W], row_W))]  # a stable sort: inside a segment, words stay as they stand


def tile(row_W: Numbers, keys_B: Keys, lengths: NDArray[np.float64]) -> tuple[Numbers, Numbers]:
    """Cuts the words of each sequence into segments of random lengths, of which `lengths` [1, 2, 3 …] are the shares.

    Returns the words of each sequence beginning at a random one, as if they stood in a circle, and the segment of each, in
    that order. The turn makes every place alike, the first and the last too: without it the places behind a border would
    always begin a segment. A segment that comes around to the other end, or reaches over a separator, is two spans there.
    """
    count_B = np.bincount(row_W, minlength=len(keys_B))
    first_W = (np.cumsum(count_B) - count_B)[row_W]
    place_W = np.arange(len(row_W)) - first_W
    turn_B = (uniform(keys(keys_B, TURN)) * count_B).astype(np.int64)
    turned_W = first_W + (place_W + turn_B[row_W]) % count_B[row_W]
    draw_W = uniform(keys(keys_B[row_W], place_W, LENGTH))  # more than needed: a length for each word
    length_W = 1 + np.searchsorted(np.cumsum(lengths)[:-1], draw_W, side="right")
    begin_W = _running_sum(length_W, row_W)  # the places where the segments drawn begin
    begins = np.zeros(len(row_W), bool)
    inside = begin_W < count_B[row_W]
    begins[(first_W + begin_W)[inside]] = True
    return turned_W, np.cumsum(begins) - 1


def run_starts(where_M: Numbers, rows_M: Numbers) -> Flags:
    """[M] True where a run of neighbouring targets begins: at a gap and at a sequence border; `where_M` ascends."""
    starts = np.ones(len(where_M), bool)
    starts[1:] = (np.diff(where_M) > 1) | (np.diff(rows_M) > 0)
    return starts


def _running_sum(size_W: Numbers, row_W: Numbers) -> Numbers:
    """What stands before each element in its own row; rows are contiguous."""
    before = np.cumsum(size_W) - size_W
    starts = np.flatnonzero(np.diff(row_W, prepend=-1))
    out: Numbers = before - np.repeat(before[starts], np.diff(np.r_[starts, len(row_W)]))
    return out
