"""Recipes of the user's own: in a TOML file, in a Python file, in an installed module."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from pathlib import Path
from typing import Any

from unmask import presets, settings
from unmask.config import RunConfig
from unmask.errors import UnmaskError


def from_toml(path: Path) -> RunConfig:
    """`[encoder] preset = "bert_mini"` begins from a preset; the other fields then change it."""
    data = settings.read_toml(path)
    encoder: Any = data.get("encoder")
    if isinstance(encoder, str):
        encoder = {"preset": encoder}
    if isinstance(encoder, dict) and "preset" in encoder:
        name = encoder["preset"]
        rest = {key: value for key, value in encoder.items() if key != "preset"}
        data["encoder"] = settings.plain(presets.preset(str(name))()) | rest
    return settings.parse(RunConfig, data, where=str(path))


def from_code(place: str, name: str) -> RunConfig:
    """Calls the user's own function; its code is trusted as the user's shell is."""
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None:
                raise ImportError(f"{place} is not a Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found = getattr(module, name)()
    except UnmaskError:
        raise
    except Exception as error:  # whatever the user's code raises is theirs to mend
        raise UnmaskError(
            f"the recipe can't be loaded: {type(error).__name__}: {error}",
            where=_place_of(error, place, name),
            do="mend the line named, and write the recipe as FILE.py:function or package.module:function",
        ) from error
    if not isinstance(found, RunConfig):
        raise UnmaskError(f"the recipe returned {type(found).__name__}, not a RunConfig", where=f"{place}:{name}")
    return found


def _place_of(error: Exception, place: str, name: str) -> str:
    """The line of the user's file the error comes from, else the recipe as it was given."""
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    return f"{place}:{line}" if line else f"{place}:{name}"
