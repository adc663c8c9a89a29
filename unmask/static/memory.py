"""How numbers lie in memory and on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

LANES = 8  # float32 that a processor adds at once
CACHE_LINE = 16  # float32 that come into the cache together


def padded(dimension: int) -> int:
    """Numbers of a vector in memory: zeros at its end fill up what a processor adds at once, and stay zero."""
    return -(-dimension // LANES) * LANES


def aligned(numbers: int) -> NDArray[np.float32]:
    """So many zeros that begin with a cache line, so that eight of them are never in two."""
    memory = np.zeros(numbers + CACHE_LINE, np.float32)
    begin = -memory.ctypes.data // 4 % CACHE_LINE
    return memory[begin : begin + numbers]


def mapped(path: Path, dtype: type[Any], length: int, mode: Literal["r", "r+"]) -> NDArray[Any]:
    """A file of numbers as an array; an empty file, which no system maps, as one in memory."""
    return np.memmap(path, dtype, mode) if length else np.zeros(0, dtype)
