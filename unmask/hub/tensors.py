"""Reads safetensors files that may be damaged or hostile: names and shapes first, numbers only when asked. Never a pickle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unmask.errors import DamagedError, UnmaskError
from unmask.files import safe_join
from unmask.hub.configs import read_json
from unmask.hub.families import FAMILIES

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle", "*.h5", "*.msgpack")
FLOATS = ("F16", "BF16", "F32", "F64")


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a tensor lies, and what its file says of it."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str


def find_tensors(folder: Path, architectures: object = None) -> list[Stored]:
    """Every tensor of a model folder, from one file or from the files its index names; reads no numbers.

    Raises UnmaskError when there are no safetensors (`architectures` of config.json picks the class of the converting
    recipe) and for an index that points outside the folder, DamagedError for a file that is no safetensors.
    """
    if (folder / WEIGHTS).exists():
        return list(_headers(folder / WEIGHTS, None))
    if (folder / INDEX).exists():
        return _indexed(folder)
    raise _no_weights(folder, architectures)


def read_tensors(stored: Mapping[str, Stored]) -> dict[str, Tensor]:
    """The numbers, as fp32 copies under the keys given. Raises DamagedError for a tensor that is not finite."""
    out: dict[str, Tensor] = {}
    for file in dict.fromkeys(entry.file for entry in stored.values()):
        with _opened(file) as (handle, _):
            for key, entry in stored.items():
                if entry.file == file:
                    out[key] = _finite(handle.get_tensor(entry.name).to(torch.float32, copy=True), entry)
    return out


def tensors_in(file: Path) -> list[Stored]:
    """Every tensor of one file; reads no numbers."""
    return list(_headers(file, None))


def require_floats(stored: Iterable[Stored]) -> None:
    """UnmaskError naming the first tensor that was quantised."""
    for entry in stored:
        if entry.dtype not in FLOATS:
            raise UnmaskError(
                f"{entry.name} holds {entry.dtype} numbers; unmask reads {', '.join(FLOATS)}",
                where=str(entry.file),
                do="use the model as it was before it was quantised",
            )


def files_of(stored: Iterable[Stored]) -> list[Path]:
    """The files that hold these tensors, each once."""
    return list(dict.fromkeys(entry.file for entry in stored))


def _indexed(folder: Path) -> list[Stored]:
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UnmaskError(f'{INDEX} has no "weight_map"', where=str(folder), do="use a copy of the model that is whole")
    names: dict[Path, set[str]] = {}
    for name, file in places.items():
        path = safe_join(folder, file)
        if path.suffix != ".safetensors":
            raise UnmaskError(
                f"{INDEX} names a file that is no safetensors: {ascii(file)[:80]}",
                where=str(folder),
                do="convert the model to safetensors first",
            )
        names.setdefault(path, set()).add(name)
    return [entry for path, wanted in names.items() for entry in _headers(path, wanted)]


def _headers(path: Path, wanted: set[str] | None) -> Iterator[Stored]:
    with _opened(path) as (handle, names):
        if absent := sorted((wanted or set()) - names):
            raise DamagedError(
                f"{INDEX} says that {absent[0][:120]!r} is in {path.name}, but it is not",
                where=str(path.parent),
                do="use a copy of the model that is whole",
            )
        for name in sorted(names if wanted is None else wanted):
            part = handle.get_slice(name)
            yield Stored(path, name, tuple(part.get_shape()), str(part.get_dtype()))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[safe_open, set[str]]]:
    if not path.is_file():
        raise DamagedError(
            f"{path.name} is missing", where=str(path.parent), do="use a copy of the model that is whole"
        )
    try:
        with safe_open(path, framework="pt") as handle:
            yield handle, set(handle.keys())
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedError(
            f"{path.name} is no whole safetensors file: {error}",
            where=str(path.parent),
            do="download or export it again; it may be truncated",
        ) from None


def _finite(tensor: Tensor, entry: Stored) -> Tensor:
    if not bool(torch.isfinite(tensor).all()):
        raise DamagedError(
            f"{entry.name} holds NaN or infinity",
            where=str(entry.file),
            do="use an earlier checkpoint: a model with such a tensor can only answer NaN",
        )
    return tensor


def _no_weights(folder: Path, architectures: object) -> UnmaskError:
    found = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not found:
        return UnmaskError(
            f"there is no {WEIGHTS} here", where=str(folder), do="point at a model folder with its weights"
        )
    listed = architectures if isinstance(architectures, list) else []
    classes = {name for family in FAMILIES.values() for name in family.classes.values()}
    kind = next((name for name in listed if name in classes), "AutoModel")
    return UnmaskError(
        f"the weights here are only in {', '.join(found[:3])}, which may run code when it is read; unmask reads {WEIGHTS}",
        where=str(folder),
        do="if you trust the folder, convert it once, with transformers: "
        f'python -c "from transformers import {kind}, AutoTokenizer; '
        f"[part.from_pretrained('{folder}').save_pretrained('converted') for part in ({kind}, AutoTokenizer)]\"",
    )
