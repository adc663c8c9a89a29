"""Randomness as arithmetic: a draw is a pure function of whole numbers (seed, epoch, example, place), never of what came before.

The generator is SplitMix64's output function (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"),
used as a hash. That is why masks are equal for any number of workers, any cut into batches and after any resume.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scrambles every bit of each element: SplitMix64's finaliser."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keys(*parts: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """One key per element from whole numbers that broadcast together; the order of the parts matters."""
    out = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            out = mix(out ^ mix(np.atleast_1d(np.asarray(part)).astype(np.int64).view(np.uint64)))
    return out


def uniform(key: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1), 53 random bits each."""
    return (key >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generator(*parts: int) -> np.random.Generator:
    """A NumPy generator for one job (shuffling a pool, say), keyed the same way."""
    return np.random.Generator(np.random.Philox(key=int(keys(*parts)[0])))
