"""Which tokens become targets: words, n-grams or spans in random order until the sequence's share is spent.

Draws are hashes of (key of the sequence, place in it), so a sequence's targets never depend on its batch mates.

Legend: T tokens, B sequences, W words, S segments. A word here is a token where the unit is one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unmask.randomness import further, keys, uniform

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
EDGES = {unit: np.cumsum(shares)[:-1] for unit, shares in LENGTHS.items()}  # of the draw that a length is made from
ORDER, SETTLE, TURN, LENGTH = 1, 2, 3, 4  # what a draw is for


def sequence_keys(salt: int, seed: int, examples_B: Numbers) -> Keys:
    """[B] what the draws of each sequence are made of: `randomness.keys` of these."""
    from unmask.objectives import mask_loops

    return mask_loops.sequence_keys(np.uint64(salt), np.uint64(seed % 2**64), examples_B)


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
    from unmask.objectives import mask_loops

    starts_T = candidates_T if unit == "token" else word_starts_T
    assert starts_T is not None, "whole words need to know where words start"
    assert len(candidates_T) == len(starts_T) == len(rows_T) == len(places_T)  # the loop looks at no bounds
    return mask_loops.choose(candidates_T, starts_T, rows_T, places_T, keys_B, float(rate), EDGES[unit])


def choose_plainly(
    candidates_T: Flags,
    word_starts_T: Flags | None,
    rows_T: Numbers,
    places_T: Numbers,
    keys_B: Keys,
    rate: float,
    unit: Unit,
) -> Flags:
    """What `choose` gives, bit for bit, in array operations: its specification."""
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
    budget_B = rate * np.bincount(rows_T[at], minlength=len(keys_B))
    settle_B = uniform(keys(keys_B, SETTLE))  # one draw a sequence settles its last word
    taken_W = np.zeros(len(row_W), bool)
    spent_W = _running_sum(size_W, _first_of_row(row_W, len(keys_B)))
    taken_W[order_W] = spent_W + settle_B[row_W] * size_W <= budget_B[row_W]
    chosen_T[at] = taken_W[word]
    return chosen_T


def _shuffled(row_W: Numbers, place_W: Numbers, keys_B: Keys, lengths: NDArray[np.float64]) -> Numbers:
    """[W] the words of each sequence in the order in which they are taken: its segments shuffled, each kept together."""
    key_B = keys(keys_B)
    if len(lengths) == 1:  # each word is a segment
        return _sorted(further(key_B[row_W], place_W, ORDER), row_W)
    turned_W, segment_W = tile(row_W, keys_B, lengths)
    first_S = np.flatnonzero(np.diff(segment_W, prepend=-1))
    draw_S = further(key_B[row_W[first_S]], place_W[turned_W[first_S]], ORDER)
    return turned_W[_sorted(draw_S[segment_W], row_W)]


def _sorted(draw_W: Keys, row_W: Numbers) -> Numbers:
    """[W] the order by row and, inside a row, by draw; what has one draw stays as it stands. `row_W` ascends.

    One number holds both: the row in the highest bits, what is left of the draw in the others.
    """
    bits = max(1, int(row_W[-1]).bit_length())
    return np.argsort((row_W.astype(np.uint64) << np.uint64(64 - bits)) | (draw_W >> np.uint64(bits)), kind="stable")


def tile(row_W: Numbers, keys_B: Keys, lengths: NDArray[np.float64]) -> tuple[Numbers, Numbers]:
    """Cuts the words of each sequence into segments of random lengths, of which `lengths` [1, 2, 3 …] are the shares.

    Returns the words of each sequence beginning at a random one, as if they stood in a circle, and the segment of each, in
    that order. The turn makes every place alike, the first and the last too: without it the places behind a border would
    always begin a segment. A segment that comes around to the other end, or reaches over a separator, is two spans there.
    """
    count_B = np.bincount(row_W, minlength=len(keys_B))
    count_W, first_W = count_B[row_W], _first_of_row(row_W, len(keys_B))
    place_W = np.arange(len(row_W)) - first_W
    turn_B = (uniform(keys(keys_B, TURN)) * count_B).astype(np.int64)
    turned_W = place_W + turn_B[row_W]
    turned_W += first_W - count_W * (turned_W >= count_W)
    draw_W = uniform(further(keys(keys_B)[row_W], place_W, LENGTH))  # more than needed: a length for each word
    length_W = 1 + np.searchsorted(np.cumsum(lengths)[:-1], draw_W, side="right")
    begin_W = _running_sum(length_W, first_W)  # the places where the segments drawn begin
    begins = np.zeros(len(row_W), bool)
    inside = begin_W < count_W
    begins[(first_W + begin_W)[inside]] = True
    return turned_W, np.cumsum(begins) - 1


def run_starts(where_M: Numbers, rows_M: Numbers) -> Flags:
    """[M] True where a run of neighbouring targets begins: at a gap and at a sequence border; `where_M` ascends."""
    starts = np.ones(len(where_M), bool)
    starts[1:] = (np.diff(where_M) > 1) | (np.diff(rows_M) > 0)
    return starts


def _first_of_row(row_W: Numbers, rows: int) -> Numbers:
    """[W] the place of the first element of each one's row; rows are contiguous."""
    count_B = np.bincount(row_W, minlength=rows)
    out: Numbers = (np.cumsum(count_B) - count_B)[row_W]
    return out


def _running_sum(size_W: Numbers, first_W: Numbers) -> Numbers:
    """What stands before each element in its own row."""
    before = np.cumsum(size_W) - size_W
    out: Numbers = before - before[first_W]
    return out
