"""Randomness as arithmetic: a draw is a pure function of whole numbers (seed, epoch, example, place), never of what came before.

The generator is SplitMix64's output function (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"),
used as a hash. That is why masks are equal for any number of workers, any cut into batches and after any resume.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scrambles every bit of each element: SplitMix64's finaliser."""
    x = x + _GOLDEN
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def keys(*parts: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """One key per element from whole numbers that broadcast together; the order of the parts matters."""
    return further(np.zeros(1, np.uint64), *parts)


def further(key: NDArray[np.uint64], *parts: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """What `keys` gives for more parts behind those that `key` was made of: few keys, gathered, are cheaper than many made."""
    for part in parts:
        if isinstance(part, np.ndarray):
            mixed = mix(part.astype(np.int64, copy=False).view(np.uint64))
        else:
            mixed = _mixed(int(part))
        key = mix(key ^ mixed)
    return key


@lru_cache(maxsize=256)
def _mixed(part: int) -> NDArray[np.uint64]:
    """Kept, since a batch asks for the same few numbers (the seed, what a draw is for) again and again."""
    return mix(np.array([part % 2**64], np.uint64))


def uniform(key: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1), 53 random bits each."""
    return (key >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generator(*parts: int) -> np.random.Generator:
    """A NumPy generator for one job (shuffling a pool, say), keyed the same way."""
    return np.random.Generator(np.random.Philox(key=int(keys(*parts)[0])))
