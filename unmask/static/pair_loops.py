"""Counting which words occur together, in compiled loops.

A pair is counted once, under one key, whichever of the two comes first in the text. Keys run through tiles of 256 × 256 words:
sorted keys bring together what the training loop reads together. Weights are whole numbers, so a sum does not depend on the
order in which it was made.

Legend: N words of the corpus, S lines, H places of the hash table (a power of 2), R words whose pairs have places of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


@compiled
def count_pairs(
    ids_N: NDArray[np.int32],
    lines_S: Ints,
    begin: int,
    weights: Ints,
    frequent: int,
    dense: Ints,
    keys_H: Keys,
    sums_H: Ints,
    used: int,
    most: int,
) -> tuple[int, int]:
    """Counts from word `begin` on, until all are done or the table holds `most` pairs; gives where it stopped and the pairs held.

    `weights[d]` is what two words d places apart add. Pairs of the `frequent` first words are summed in the triangle `dense`;
    others in a table whose keys are the pair's key + 1, 0 where a place is free.
    """
    window = len(weights) - 1
    mask = np.uint64(len(keys_H) - 1)
    one = np.uint64(1)
    line = np.searchsorted(lines_S, begin, "right") - 1
    for at in range(begin, len(ids_N)):
        if used > most:
            return at, used
        while lines_S[line + 1] <= at:
            line += 1
        word = ids_N[at]
        for before in range(max(lines_S[line], at - window), at):
            other = ids_N[before]
            high, low = max(word, other), min(word, other)
            weight = weights[at - before]
            if high < frequent:
                dense[high * (high + 1) // 2 + low] += weight
                continue
            key = np.uint64(((high >> 8) << 40) | ((low >> 8) << 16) | ((high & 255) << 8) | (low & 255)) + one
            place = ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
            while keys_H[place] != key and keys_H[place] != 0:
                place = (place + one) & mask
            if keys_H[place] == 0:
                keys_H[place] = key
                used += 1
            sums_H[place] += weight
    return len(ids_N), used


@compiled
def dense_entries(dense: Ints, frequent: int) -> tuple[Keys, Ints]:
    """The pairs of the triangle that occur, in no order."""
    count = 0
    for at in range(len(dense)):
        count += dense[at] > 0
    keys, sums = np.empty(count, np.uint64), np.empty(count, np.int64)
    done = 0
    for high in range(frequent):
        for low in range(high + 1):
            weight = dense[high * (high + 1) // 2 + low]
            if weight > 0:
                keys[done] = ((high >> 8) << 40) | ((low >> 8) << 16) | ((high & 255) << 8) | (low & 255)
                sums[done] = weight
                done += 1
    return keys, sums


@compiled
def table_entries(keys_H: Keys, sums_H: Ints, used: int) -> tuple[Keys, Ints]:
    """The pairs of the table, in no order; the table is empty afterwards."""
    keys, sums = np.empty(used, np.uint64), np.empty(used, np.int64)
    done = 0
    for place in range(len(keys_H)):
        if keys_H[place] != 0:
            keys[done], sums[done] = keys_H[place] - np.uint64(1), sums_H[place]
            keys_H[place], sums_H[place] = 0, 0
            done += 1
    return keys, sums


@compiled
def sort_and_sum(keys: Keys, sums: Ints) -> tuple[Keys, Ints]:
    """Ascending keys, all different, with the sums of equal ones: a radix sort, a byte at a time from the lowest."""
    occurring = np.uint64(0)
    for key in keys:
        occurring |= key
    other_keys, other_sums = np.empty_like(keys), np.empty_like(sums)
    for byte in range(8):
        shift, low = np.uint64(8 * byte), np.uint64(255)
        if not (occurring >> shift) & low:
            continue
        begins = np.zeros(257, np.int64)
        for key in keys:
            begins[np.int64((key >> shift) & low) + 1] += 1
        begins = np.cumsum(begins)
        for at in range(len(keys)):
            digit = np.int64((keys[at] >> shift) & low)
            other_keys[begins[digit]], other_sums[begins[digit]] = keys[at], sums[at]
            begins[digit] += 1
        keys, other_keys, sums, other_sums = other_keys, keys, other_sums, sums
    done = 0
    for at in range(len(keys)):
        if done and keys[at] == keys[done - 1]:
            sums[done - 1] += sums[at]
        else:
            keys[done], sums[done] = keys[at], sums[at]
            done += 1
    return keys[:done], sums[:done]
