"""Choosing and corrupting targets in compiled loops, one sequence after another.

The twins are `choose.choose_plainly` and `corrupt.corrupt_plainly`, which say what is done and why. These make the same draws,
hashes of whole numbers (unmask.randomness), and add and compare fractions in the same order: the results are equal bit for bit.

Legend: T tokens, B sequences, M targets, E edges. W words and S segments are those of one sequence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled
from unmask.objectives.choose import LENGTH, ORDER, SETTLE, TURN, Flags, Keys, Numbers
from unmask.objectives.corrupt import FATE, NOISE

_ONE, _11, _27, _30, _31 = (
    np.uint64(n) for n in (1, 11, 27, 30, 31)
)  # beside a plain number, a key would become a fraction
_ADDED, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled
def choose(
    candidates_T: Flags,
    word_starts_T: Flags,
    rows_T: Numbers,
    places_T: Numbers,
    keys_B: Keys,
    rate: float,
    edges_E: NDArray[np.float64],
) -> Flags:
    """[T] True at the targets. Where a draw is at or above edges_E[n], a segment has more than n + 1 words."""
    chosen_T = np.zeros(len(candidates_T), np.bool_)
    tokens = len(candidates_T)
    while tokens and not candidates_T[tokens - 1]:
        tokens -= 1
    bits = _ONE  # of a draw that the twin gives up, since it sorts the sequences of a batch at once
    while tokens and np.uint64(rows_T[tokens - 1]) >> bits:
        bits += _ONE
    begin_W, size_W = np.empty(tokens, np.int64), np.empty(tokens, np.int64)
    draw_S, first_S, order_S = np.empty(tokens, np.uint64), np.empty(tokens + 1, np.int64), np.empty(tokens, np.int64)
    end = 0
    while end < tokens:
        row = rows_T[end]
        end, words = _words(candidates_T[:tokens], word_starts_T, rows_T, end, begin_W, size_W)
        if words:
            key = _further(np.uint64(0), keys_B[row])
            turn = int(_uniform(_further(key, TURN)) * words) if len(edges_E) else 0
            segments = _segments(words, key, edges_E, first_S)
            for s in range(segments):
                place = places_T[begin_W[_around(first_S[s] + turn, words)]]
                draw_S[s] = _further(_further(key, place), ORDER) >> bits
            ends = _buckets(draw_S[:segments], 64 - bits, order_S)
            budget, settle = rate * size_W[:words].sum(), _uniform(_further(key, SETTLE))
            _spend(budget, settle, ends, order_S, draw_S, first_S, turn, begin_W[:words], size_W, chosen_T)
    return chosen_T


@compiled
def _words(
    candidates_T: Flags, word_starts_T: Flags, rows_T: Numbers, at: int, begin_W: Numbers, size_W: Numbers
) -> tuple[int, int]:
    """Writes where each word of the sequence at `at` begins and its tokens; returns the sequence's end and its words."""
    row, words, goes_on = rows_T[at], 0, False
    while at < len(candidates_T) and rows_T[at] == row:
        if candidates_T[at]:
            if not goes_on or word_starts_T[at]:
                begin_W[words], size_W[words] = at, 0
                words += 1
            size_W[words - 1] += 1
        goes_on = candidates_T[at]
        at += 1
    return at, words


@compiled
def _segments(words: int, key: np.uint64, edges_E: NDArray[np.float64], first_S: Numbers) -> int:
    """Writes which word each segment begins with, and the end; returns how many segments there are."""
    segments, first = 0, 0
    while first < words:
        first_S[segments], length = first, 1
        if len(edges_E):
            draw = _uniform(_further(_further(key, segments), LENGTH))
            while length <= len(edges_E) and draw >= edges_E[length - 1]:
                length += 1
        first += length
        segments += 1
    first_S[segments] = words
    return segments


@compiled
def _buckets(draw_S: Keys, bits: np.uint64, order_S: Numbers) -> Numbers:
    """Writes the segments in the order of their draws' highest bits, and returns where each bucket of equal ones ends.

    Draws are spread evenly: a bucket holds about one, so that no sort is needed, nor a look at what will not be taken.
    """
    high = np.uint64(0)
    while len(draw_S) >> np.int64(high):
        high += _ONE
    ends = np.zeros((1 << np.int64(high)) + 1, np.int64)
    for draw in draw_S:
        ends[(draw >> (bits - high)) + _ONE] += 1
    ends = np.cumsum(ends)
    for s, draw in enumerate(draw_S):
        bucket = draw >> (bits - high)
        order_S[ends[bucket]] = s
        ends[bucket] += 1
    return ends[:-1]


@compiled
def _spend(
    budget: float,
    settle: float,
    ends: Numbers,
    order_S: Numbers,
    draw_S: Keys,
    first_S: Numbers,
    turn: int,
    begin_W: Numbers,
    size_W: Numbers,
    chosen_T: Flags,
) -> None:
    """Takes words, segments with the smallest draws first, until one does not fit."""
    begin, words, spent = 0, len(begin_W), 0
    for end in ends:
        _sort(order_S[begin:end], draw_S)
        for segment in order_S[begin:end]:
            for turned in range(first_S[segment], first_S[segment + 1]):
                word = _around(turned + turn, words)
                if spent + settle * size_W[word] > budget:
                    return
                chosen_T[begin_W[word] : begin_W[word] + size_W[word]] = True
                spent += size_W[word]
        begin = end


@compiled
def _sort(few: Numbers, draw_S: Keys) -> None:
    """By draw; equal draws stay in the order of the text."""
    for at in range(1, len(few)):
        while at and draw_S[few[at]] < draw_S[few[at - 1]]:
            few[at - 1], few[at] = few[at], few[at - 1]
            at -= 1


@compiled
def _around(place: int, size: int) -> int:
    """A place in a circle; a remainder would take longer than all else."""
    return place - size if place >= size else place


@compiled
def corrupt(
    ids_T: Numbers,
    where_M: Numbers,
    rows_T: Numbers,
    places_T: Numbers,
    keys_B: Keys,
    mask: int,
    ordinary: Numbers,
    below_mask: float,
    below_random: float,
    whole_spans: bool,
) -> tuple[Numbers, Numbers]:
    """[T] the tokens as they are shown, and [M] what the targets were."""
    shown_T, value_M = ids_T.copy(), np.empty(len(where_M), np.int64)
    fate = 0.0
    for m in range(len(where_M)):
        at = where_M[m]
        row, value_M[m] = rows_T[at], ids_T[at]
        key = _further(_further(np.uint64(0), keys_B[row]), places_T[at])
        goes_on = m and at - where_M[m - 1] == 1 and rows_T[at - 1] == row
        if not (whole_spans and goes_on):
            fate = _uniform(_further(key, FATE))
        if fate < below_mask:
            shown_T[at] = mask
        elif fate < below_random:
            shown_T[at] = ordinary[np.int64(_uniform(_further(key, NOISE)) * len(ordinary))]
    return shown_T, value_M


@compiled
def sequence_keys(salt: np.uint64, seed: np.uint64, examples_B: Numbers) -> Keys:
    """[B] what the draws of each sequence are made of: randomness.keys(salt, seed, examples_B)."""
    run, keys_B = _further(_further(np.uint64(0), salt), seed), np.empty(len(examples_B), np.uint64)
    for b in range(len(examples_B)):
        keys_B[b] = _further(run, examples_B[b])
    return keys_B


@compiled
def _further(key: np.uint64, part: int | np.integer) -> np.uint64:
    return _mix(key ^ _mix(np.uint64(part)))


@compiled
def _mix(x: np.uint64) -> np.uint64:
    x = x + _ADDED
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


@compiled
def _uniform(key: np.uint64) -> float:
    return np.float64(key >> _11) * 2.0**-53
