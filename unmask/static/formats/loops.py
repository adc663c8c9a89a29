"""Rows of files of vectors as numbers, compiled. What is not plain is left to `text.plain_row`, which is the specification.

Legend: N bytes of a block, R its rows, D dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

LARGEST_POWER = 280  # 10^280 times a whole number of 18 digits is still a float64
POWERS = np.array([float(f"1e{power}") for power in range(-LARGEST_POWER, LARGEST_POWER + 1)])
_DIGITS = 18  # as many as an int64 holds
_DOUBT = (
    2.0**-49
)  # above the rounding errors of the digits, the power and their product: 4 * 2^-53, and what lay beyond 18 digits


@compiled
def text_rows(
    data_N: Bytes, dimension: int, powers: NDArray[np.float64], out_RD: NDArray[np.float32], places_R4: Ints
) -> None:
    """Reads lines "word number … number" of a block into `out`.

    Places get begin and end of the word, end of the line, and whether the row is sure: one word, as many numbers as
    expected, and each number such that its float64 can only round to this one float32.
    """
    begin = 0
    for row in range(len(places_R4)):
        end = begin
        while end < len(data_N) and data_N[end] != 10:
            end += 1
        word = begin
        while word < end and data_N[word] != 32 and data_N[word] != 9:
            word += 1
        places_R4[row, 0], places_R4[row, 1], places_R4[row, 2] = begin, word, end
        places_R4[row, 3] = word > begin and _numbers(data_N, word, end, powers, out_RD[row])
        begin = end + 1


@compiled
def _numbers(data_N: Bytes, at: int, end: int, powers: NDArray[np.float64], out_D: NDArray[np.float32]) -> bool:
    for place in range(len(out_D)):
        blank = at
        while at < end and (data_N[at] == 32 or data_N[at] == 9):
            at += 1
        if at == blank:
            return False
        value, at, sure = _number(data_N, at, end, powers)
        if not sure:
            return False
        out_D[place] = value
    while at < end and (data_N[at] == 32 or data_N[at] == 9 or data_N[at] == 13):
        at += 1
    return at == end


@compiled
def _number(data_N: Bytes, at: int, end: int, powers: NDArray[np.float64]) -> tuple[np.float32, int, bool]:
    """A number that begins at a place, where it ends, and whether it is surely this one."""
    negative = at < end and data_N[at] == 45
    at += at < end and (data_N[at] == 45 or data_N[at] == 43)
    digits, used, seen, power, fraction = 0, 0, 0, 0, False
    while at < end:
        byte: Any = data_N[at]
        if 48 <= byte <= 57:
            seen += 1
            if used < _DIGITS:
                digits = digits * 10 + (byte - 48)
                used += digits > 0
                power -= fraction
            else:
                power += not fraction
        elif byte == 46 and not fraction:
            fraction = True
        else:
            break
        at += 1
    if seen and at < end and (data_N[at] == 101 or data_N[at] == 69):
        shift, at, good = _exponent(data_N, at + 1, end)
        power += shift
        seen *= good
    if seen == 0 or abs(power) > LARGEST_POWER:
        return np.float32(0), at, False
    value = digits * powers[power + LARGEST_POWER]
    low, high = np.float32(value * (1 - _DOUBT)), np.float32(value * (1 + _DOUBT))
    return -low if negative else low, at, low == high and np.isfinite(low)


@compiled
def _exponent(data_N: Bytes, at: int, end: int) -> tuple[int, int, bool]:
    """What follows an e, where it ends, and whether it is a number."""
    negative = at < end and data_N[at] == 45
    at += at < end and (data_N[at] == 45 or data_N[at] == 43)
    value, begin = 0, at
    while at < end and 48 <= data_N[at] <= 57:
        byte: Any = data_N[at]
        value = min(value * 10 + (byte - 48), 9999)
        at += 1
    return -value if negative else value, at, at > begin


@compiled
def binary_rows(data_N: Bytes, out_RB: Bytes, places_R2: Ints) -> tuple[int, int]:
    """Reads whole records "word, space, floats, maybe a line feed" of a block; `out` [R, 4 D] holds the floats' bytes.

    Returns how many there are, and where the first one that isn't whole begins.
    """
    row, at, width = 0, 0, out_RB.shape[1]
    while row < len(out_RB):
        begin = at + (at < len(data_N) and data_N[at] == 10)
        end = begin
        while end < len(data_N) and data_N[end] != 32:
            end += 1
        if end + 1 + width > len(data_N):
            return row, at
        out_RB[row] = data_N[end + 1 : end + 1 + width]
        places_R2[row, 0], places_R2[row, 1] = begin, end
        row, at = row + 1, end + 1 + width
    return row, at


@compiled
def words(data_N: Bytes, places_RP: Ints) -> Bytes:
    """The words of a block, parted by line feeds; places begin with where each begins and ends."""
    size = len(places_RP)
    for row in range(len(places_RP)):
        size += places_RP[row, 1] - places_RP[row, 0]
    out, at = np.full(max(size, 1), np.uint8(10)), 0
    for row in range(len(places_RP)):
        for place in range(places_RP[row, 0], places_RP[row, 1]):
            out[at] = data_N[place]
            at += 1
        at += 1
    return out[: size - 1]
