"""Arrays in a safetensors file, mapped into memory instead of read: a file of any size opens at once.

The format: eight bytes that tell how long the header is, the header (JSON: type, shape and place of each array), the numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.errors import DamagedError

_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
_LONGEST_HEADER = 2**20


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays of float32 and int64, one after the other, without a copy of them in memory."""
    header, at = dict[str, Any](), 0
    for name, array in arrays.items():
        kind = next(kind for kind, dtype in _TYPES.items() if dtype == array.dtype)
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (at, at + array.nbytes)}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers begin where the processor likes them to
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(
                np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            )  # tofile says nothing of a full disk


def map_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file, read-only, their numbers left on the disk. DamagedError unless its header is right."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length) if length <= _LONGEST_HEADER else b"")
        body = np.memmap(path, np.uint8, "r", offset=8 + length)
        return {name: _array(body, entry) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(
            f"{path.name} is no whole safetensors file ({type(error).__name__})",
            where=str(path.parent),
            do="use an earlier copy of the folder or write it again",
        ) from error


def _array(body: NDArray[np.uint8], entry: Mapping[str, Any]) -> NDArray[Any]:
    dtype, shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if begin < 0 or min(shape) < 0 or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError("an array lies outside the file")
    return body[begin:end].view(dtype).reshape(shape)
