"""How numbers lie in memory and on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

LANES = 8  # float32 that a processor adds at once


def padded(dimension: int) -> int:
    """Numbers of a vector in memory: zeros at its end fill up what a processor adds at once, and stay zero."""
    return -(-dimension // LANES) * LANES


def mapped(path: Path, dtype: type[Any], length: int, mode: Literal["r", "r+"]) -> NDArray[Any]:
    """A file of numbers as an array; an empty file, which no system maps, as one in memory."""
    return np.memmap(path, dtype, mode) if length else np.zeros(0, dtype)
