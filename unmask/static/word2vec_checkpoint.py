"""Where word2vec's training stands, in a folder: `tables.safetensors`, `state.json`, `manifest.json`.

The folder replaces the one before in one step, so that there is always a whole one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config.static import Word2Vec
from unmask.errors import DamagedError, UnmaskError
from unmask.files import read_checked, verify_folder, write_folder
from unmask.settings import plain
from unmask.static.tensor_file import map_tensors, write_tensors
from unmask.static.tokens import Tokens
from unmask.static.word2vec_plain import Done, Training

FORMAT = "unmask-word2vec-checkpoint"
_TABLES, _STATE = "tables.safetensors", "state.json"

Progress = list[tuple[int, Done]]


def save(
    folder: Path, tokens: Tokens, settings: Word2Vec, block: int, training: Training, next_block: int, done: Progress
) -> None:
    """Writes the folder, whole or not at all. Raises DiskError and CannotWriteError with the one before intact."""
    with write_folder(folder, replace=True, about={"format": FORMAT}) as temporary:
        tables = {name: _table(training, name, settings) for name in ("inputs", "outputs")}
        write_tensors(temporary / _TABLES, tables)
        state = {
            "of": _identity(tokens, settings, block),
            "next_block": next_block,
            "epochs": [{"words": words, **counts._asdict()} for words, counts in done],
        }
        (temporary / _STATE).write_text(json.dumps(state, allow_nan=False, indent=1) + "\n", encoding="utf-8")


def load(folder: Path, tokens: Tokens, settings: Word2Vec, block: int, training: Training) -> tuple[int, Progress]:
    """Fills the tables of `training`; returns the next block, and what was done. Raises DamagedError, and UnmaskError
    where the checkpoint is that of another training."""
    manifest = verify_folder(folder)
    if manifest["about"].get("format") != FORMAT:
        raise UnmaskError("This folder is no checkpoint of word2vec.", where=str(folder), do="Choose another folder.")
    state: dict[str, Any] = json.loads(read_checked(folder, _STATE, manifest))
    _require_same(folder, state["of"], _identity(tokens, settings, block))
    tables = map_tensors(folder / _TABLES)
    for name in ("inputs", "outputs"):
        target = _table(training, name, settings)
        if tables[name].shape != target.shape:
            raise DamagedError(f"{name} has the wrong shape.", where=str(folder), do="Use an earlier copy.")
        target[:] = tables[name]
    done = [(entry.pop("words"), Done(**entry)) for entry in state["epochs"]]
    return state["next_block"], done


def _table(training: Training, name: str, settings: Word2Vec) -> np.ndarray[Any, np.dtype[np.float32]]:
    flat: np.ndarray[Any, np.dtype[np.float32]] = getattr(training, name)
    return flat.reshape(-1, training.width)[:, : settings.dimension]


def _identity(tokens: Tokens, settings: Word2Vec, block: int) -> dict[str, Any]:
    return {"settings": plain(settings), "corpus": tokens.fingerprint, "block": block}


def _require_same(folder: Path, saved: dict[str, Any], now: dict[str, Any]) -> None:
    if saved == now:
        return
    differing = [name for name, value in now["settings"].items() if saved["settings"].get(name) != value]
    what = f"other settings ({', '.join(differing)})" if differing else "another corpus"
    what = "another size of blocks" if not differing and saved["corpus"] == now["corpus"] else what
    raise UnmaskError(
        f"The checkpoint belongs to a training with {what}.",
        where=str(folder),
        do="Go on with what it was begun with, or choose another folder for a new training.",
    )
