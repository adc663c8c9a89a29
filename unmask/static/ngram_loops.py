"""The n-grams of many words, compiled; `ngrams.ngrams_of` and `ngrams.bucket_of` are the specification.

Legend: W words, P n-grams of all of them, B buckets, D dimension. `text` holds the words as <word> in UTF-8, end to end;
word w ends before ends[w].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@compiled
def counts(text: Bytes, ends: Ints, shortest: int, longest: int) -> Ints:
    """[W] How many n-grams each word has."""
    out = np.zeros(len(ends), np.int64)
    begin = 0
    for word in range(len(ends)):
        characters = 0
        for place in range(begin, ends[word]):
            characters += (text[place] & 0xC0) != 0x80  # not a later byte of a character
        for length in range(shortest, min(longest, characters) + 1):
            out[word] += characters - length + 1
        if shortest == 1:
            out[word] -= 2  # < and >
        begin = ends[word]
    return out


@compiled
def buckets(text: Bytes, ends: Ints, starts: Ints, shortest: int, longest: int, number: int) -> NDArray[np.int32]:
    """[P] The bucket of each n-gram."""
    out = np.empty(starts[-1], np.int32)
    at, first = 0, 0
    for word in range(len(ends)):
        last = ends[word]
        for begin in range(first, last):
            if (text[begin] & 0xC0) == 0x80:
                continue
            value = np.int64(2166136261)
            place = begin
            for length in range(1, longest + 1):
                if place == last:
                    break
                value = ((value ^ _signed(text[place])) * 16777619) & 0xFFFFFFFF
                place += 1
                while place < last and (text[place] & 0xC0) == 0x80:
                    value = ((value ^ _signed(text[place])) * 16777619) & 0xFFFFFFFF
                    place += 1
                if length >= shortest and not (length == 1 and (begin == first or place == last)):
                    out[at] = value % number
                    at += 1
        first = last
    return out


@compiled
def means(own_WD: Floats, matrix_BD: Floats, starts: Ints, buckets_P: NDArray[np.int32], out_WD: Floats) -> None:
    """Each word's own vector and its n-grams' vectors, their mean into `out`."""
    sums_D = np.empty(own_WD.shape[1])
    for word in range(len(own_WD)):
        for column in range(len(sums_D)):
            sums_D[column] = own_WD[word, column]
        for place in range(starts[word], starts[word + 1]):
            row_D = matrix_BD[buckets_P[place]]
            for column in range(len(sums_D)):
                sums_D[column] += row_D[column]
        parts = starts[word + 1] - starts[word] + 1
        for column in range(len(sums_D)):
            out_WD[word, column] = sums_D[column] / parts


@compiled
def _signed(byte: np.uint8) -> np.int64:
    """A byte as C's signed char, widened to 32 bits."""
    return np.int64(byte) | (0xFFFFFF00 if byte > 127 else 0)
