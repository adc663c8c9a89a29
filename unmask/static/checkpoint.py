"""Where the training of word vectors stands, in a folder: `tables.safetensors`, `state.json`, `manifest.json`.

The folder replaces the one before in one step, so that there is always a whole one. What it belongs to is written down in it,
and any other training is told what differs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import Glove, Word2Vec
from unmask.errors import DamagedError, UnmaskError
from unmask.files import MANIFEST, check_sizes, read_checked, require_free, verify_folder, write_folder
from unmask.settings import plain
from unmask.static.tensor_file import map_tensors, write_tensors

FORMAT = "unmask-word-vectors-checkpoint"
MINUTES = 5.0  # between two checkpoints
_AFTER_EPOCH = 60.0  # seconds since the last one that make the end of an epoch worth another
_TABLES, _STATE = "tables.safetensors", "state.json"

Identity = dict[str, dict[str, Any]]
"""What a checkpoint belongs to: the settings (`told`), what is trained on (its size and its fingerprint), and in what pieces."""


class Checkpoint:
    """One training's checkpoint in `folder`; without a folder nothing is ever saved.

    `tables` are what is trained: read when it is saved, filled when it is loaded. `of` gives the identity; it is asked only
    where there is a folder, as a fingerprint takes reading the whole corpus.
    """

    def __init__(
        self,
        folder: Path | None,
        of: Callable[[], Identity],
        tables: Mapping[str, NDArray[np.float32]],
        minutes: float = MINUTES,
    ) -> None:
        self._folder, self._of, self._tables = folder, of, tables
        self._seconds, self._saved = 60 * minutes, time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """Fills the tables and returns the state that was saved with them; None where nothing was.

        Raises UnmaskError for the checkpoint of another training, DamagedError for one that is not as it was written, and
        CannotWriteError for a folder that holds something else.
        """
        if self._folder is None or not _is_there(self._folder):
            return None
        state = _read(self._folder, verify_folder(self._folder))
        _require_same(self._folder, state["of"], self._of())
        held = map_tensors(self._folder / _TABLES)
        for name, table in self._tables.items():
            _require_alike(self._folder, name, held.get(name), table)
        for name, table in self._tables.items():
            table[:] = held[name]
        stands: dict[str, Any] = state["stands"]
        return stands

    def is_due(self, *, at_end_of_epoch: bool = False) -> bool:
        """Whether so many minutes went by that saving is worth what it costs; at the end of an epoch one is enough."""
        enough = min(self._seconds, _AFTER_EPOCH) if at_end_of_epoch else self._seconds
        return self._folder is not None and time.monotonic() - self._saved >= enough

    def save(self, stands: dict[str, Any]) -> None:
        """Writes the tables, and `stands` as JSON. Raises DiskError and CannotWriteError with the checkpoint before intact."""
        if self._folder is None:
            return
        with write_folder(self._folder, replace=True, about={"format": FORMAT}) as temporary:
            write_tensors(temporary / _TABLES, self._tables)
            text = json.dumps({"of": self._of(), "stands": stands}, allow_nan=False, indent=1)
            (temporary / _STATE).write_text(text + "\n", encoding="utf-8")
        self._saved = time.monotonic()


def told(settings: Word2Vec | Glove) -> dict[str, Any]:
    """The settings that make a difference to what is trained: memory only decides when the disk is used."""
    return {name: value for name, value in plain(settings).items() if name != "memory"}


def require_same_settings(folder: Path, settings: Word2Vec | Glove) -> None:
    """Raises what `Checkpoint.load` would, as far as that can be told before the text is read."""
    if _is_there(folder):
        _require_same(folder, _read(folder, check_sizes(folder))["of"], {"settings": told(settings)})


def _is_there(folder: Path) -> bool:
    require_free(folder.resolve(), True, {"format": FORMAT})
    return (folder / MANIFEST).is_file()


def _read(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(read_checked(folder, _STATE, manifest))
    return state


def _require_same(folder: Path, was: Identity, now: Identity) -> None:
    for what in now:
        if differences := _differences(_flat(was.get(what, {})), _flat(now[what])):
            raise UnmaskError(
                f"The checkpoint belongs to another training ({what}: {', '.join(differences)}).",
                where=str(folder),
                do="Go on with what it was begun with, choose another output, or delete this folder to begin anew.",
            )


def _differences(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    names = [name for name in {**now, **was} if was.get(name) != now.get(name)]
    names = ["kind"] if "kind" in names else names  # Word2Vec and GloVe have different settings anyway
    return [f"{name} was {was.get(name)} and is {now.get(name)}" for name in names]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names, as --set has them."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _require_alike(folder: Path, name: str, held: NDArray[Any] | None, table: NDArray[np.float32]) -> None:
    if held is None or held.shape != table.shape or held.dtype != table.dtype:
        there = "missing" if held is None else f"{held.dtype} of the shape {held.shape}"
        raise DamagedError(
            f"{_TABLES} is damaged: {name} is {there}, not {table.dtype} of the shape {table.shape}.",
            where=str(folder),
            do="Use an earlier copy of the folder, or delete it to begin anew.",
        )
