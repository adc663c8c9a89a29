"""Counting which words occur together, in compiled loops: one word's row after the other, as sparse matrices are multiplied
(Gustavson 1978).

A pair belongs to the rarer of its two words, the one with the higher number: `high`; all places of a word are visited one after
the other, and what stands around them is added up in one dense row, which the processor's cache holds. Sums are whole numbers.
Everything is unsigned: a place that might be negative costs a test and a sum each time.

Legend: N words of the corpus, S lines, V distinct words, T places visited, P pairs, Q tiles of 256 × 256 pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled
from unmask.static.vector_code import prefetch

Ints = NDArray[np.int64]
Places = NDArray[np.uint16]  # of pairs in their tiles: 256 · row + column

REACH = 14  # bits of how far a line goes on, at most a window of 10,000
_AHEAD = 8  # places between asking for memory and reading it


@compiled
def index_words(
    ids_N: NDArray[np.uint32], lines_S: Ints, begin: int, end: int, window: int, num_words: int
) -> tuple[Ints, NDArray[np.uint64]]:
    """Where each word stands between two places of the corpus: where each word's places begin [V+1], and the places [T].

    A place is 28 bits further left; below are the words of its line before and after it that lie in the window.
    """
    begins = np.zeros(num_words + 2, np.int64)
    for at in range(begin, end):
        begins[ids_N[at] + np.uint64(2)] += 1
    for word in range(num_words):
        begins[word + 2] += begins[word + 1]
    places = np.empty(end - begin, np.uint64)
    line = np.searchsorted(lines_S, begin, "right") - 1
    for at in range(begin, end):
        while lines_S[line + 1] <= at:
            line += 1
        before, after = min(window, at - lines_S[line]), min(window, lines_S[line + 1] - 1 - at)
        word = ids_N[at] + np.uint64(1)
        places[np.uint64(begins[word])] = (at << 2 * REACH) | (before << REACH) | after
        begins[word] += 1
    return begins[:-1], places


@compiled
def count_rows(
    ids_N: NDArray[np.uint32],
    same_ids_N: NDArray[np.float32],
    begins_V1: Ints,
    places_T: NDArray[np.uint64],
    weights: Ints,
    rows: tuple[int, int],
    columns: tuple[int, int],
    dense_V: Ints,
    low_P: NDArray[np.uint32],
    sums_P: Ints,
) -> Ints:
    """Writes the pairs of some words (`rows`) with others (`columns`) into `low_P`, which needs room for one more, and `sums_P`;
    gives where each row ends.

    `weights` are what two words add that stand -window to window places apart; a word with itself is found from both of its
    places. `dense_V` is zero before and afterwards. The bits of `ids_N` come as float32 too, which can be prefetched.
    """
    window, done, shift, mask, sign = (
        len(weights) // 2,
        np.uint64(0),
        np.uint64(REACH),
        np.uint64(2**REACH - 1),
        np.int64(63),
    )
    ends = np.empty(rows[1] - rows[0], np.int64)
    for high in range(rows[0], rows[1]):
        first = done
        begin, end = np.int64(columns[0]), np.int64(min(columns[1], high + 1))
        for k in range(begins_V1[high], begins_V1[high + 1]):
            soon = np.int64(places_T[np.uint64(min(k + _AHEAD, len(places_T) - 1))] >> (shift + shift))
            prefetch(same_ids_N, soon - window)
            prefetch(same_ids_N, soon + window)
            place = places_T[np.uint64(k)]
            at, before, after = place >> (shift + shift), (place >> shift) & mask, place & mask
            for other in range(at - before, at + after + np.uint64(1)):
                low = ids_N[other]
                # No branches, since half of them would be guessed wrong: all bits are set where a condition holds.
                wanted = ((low - end) & ~(low - begin)) >> sign
                old = dense_V[low]
                new = old + (weights[other + np.uint64(window) - at] & wanted)
                dense_V[low] = new
                low_P[done] = low
                done += np.uint64((old - 1) & ~(new - 1)) >> np.uint64(63)
        for k in range(first, done):
            sums_P[k] = dense_V[low_P[k]]
            dense_V[low_P[k]] = 0
        ends[high - rows[0]] = done
    return ends


@compiled
def into_tiles(ends: Ints, low_P: NDArray[np.uint32], sums_P: Ints, lengths_Q: Ints) -> tuple[Places, Ints]:
    """The pairs of a row of tiles, tile by tile, in the same order otherwise; counts them in `lengths_Q`, zero before."""
    count = ends[-1]
    for k in range(count):
        lengths_Q[low_P[k] >> np.uint32(8)] += 1
    next_Q = np.cumsum(lengths_Q) - lengths_Q
    places, sums = np.empty(count, np.uint16), np.empty(count, np.int64)
    k = 0
    for row in range(len(ends)):
        for k in range(ends[row - 1] if row else 0, ends[row]):
            tile = low_P[k] >> np.uint32(8)
            at = np.uint64(next_Q[tile])
            next_Q[tile] += 1
            places[at], sums[at] = (row << 8) | (low_P[k] & np.uint32(255)), sums_P[k]
    return places, sums


@compiled
def merge_tiles(
    corners_Q: Ints, begins_Q: Ints, ends_Q: Ints, places_P: Places, sums_P: Ints
) -> tuple[Ints, Ints, Places, Ints]:
    """One tile of all that have the same corner and follow each other: corners, lengths, places and sums.

    Pairs stand by row, and in a row as they first came.
    """
    dense, found, next_row = np.zeros(1 << 16, np.int64), np.empty(1 << 16, np.uint16), np.zeros(257, np.int64)
    corners, lengths = np.empty_like(corners_Q), np.zeros_like(corners_Q)
    places, sums = np.empty_like(places_P), np.empty_like(sums_P)
    tiles, done = 0, 0
    for tile in range(len(corners_Q)):
        if tile == 0 or corners_Q[tile] != corners_Q[tile - 1]:
            next_row[:] = 0
            count = 0
        for k in range(begins_Q[tile], ends_Q[tile]):
            place = places_P[k]
            if dense[place] == 0:
                found[count] = place
                next_row[(place >> np.uint16(8)) + np.uint64(1)] += 1
                count += 1
            dense[place] += sums_P[k]
        if tile + 1 < len(corners_Q) and corners_Q[tile + 1] == corners_Q[tile]:
            continue
        next_row = np.cumsum(next_row)
        for place in found[:count]:
            at = done + next_row[place >> np.uint16(8)]
            next_row[place >> np.uint16(8)] += 1
            places[at], sums[at] = place, dense[place]
            dense[place] = 0
        corners[tiles], lengths[tiles] = corners_Q[tile], count
        tiles, done = tiles + 1, done + count
    return corners[:tiles], lengths[:tiles], places[:done], sums[:done]


@compiled
def shuffle_tiles(
    key: np.uint64, corners_Q: Ints, lengths_Q: Ints, places_P: Places, sums_P: Ints, unit: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Row, column and count of each pair, a tile's rows in order and each in random order (Fisher and Yates, inside out).

    A row's vectors stay in the nearest cache while its pairs are trained.
    """
    high, low = np.empty(len(places_P), np.uint8), np.empty(len(places_P), np.uint8)
    counts = np.empty(len(places_P), np.float32)
    at, half, one = np.uint64(0), np.uint64(32), np.uint64(1)
    for tile in range(len(corners_Q)):
        state = _mixed(key ^ np.uint64(corners_Q[tile]))
        first, end = at, at + np.uint64(lengths_Q[tile])
        while at < end:
            place = places_P[at]
            high[at] = place >> np.uint16(8)
            if high[at] != high[first]:
                first = at
            state += one
            chosen = first + (((_mixed(state) >> half) * (at - first + one)) >> half)
            low[at], counts[at] = low[chosen], counts[chosen]
            low[chosen], counts[chosen] = place & np.uint16(255), sums_P[at] / unit
            at += one
    return high, low, counts


@compiled
def _mixed(x: np.uint64) -> np.uint64:
    """What `randomness.mix` does: SplitMix64's finaliser."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
