"""A `config.json` to the family and the EncoderConfig it stands for, and back.

`auto_map` and the like are ignored and never acted on.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.families import FAMILIES
from unmask.hub.family import Family
from unmask.hub.fields import refusal, shown

LONGEST_JSON = 64 << 20  # bytes


def read_config(data: Mapping[str, Any], *, where: str = "config.json") -> tuple[Family, EncoderConfig]:
    """The family and configuration of a `config.json`; a field that is absent means what transformers takes it for.

    Raises UnmaskError for a family we don't have, for what our encoder can't compute, for settings nobody knows and for
    values out of range.
    """
    family = _family(data, where)
    return family, family.config(data, where)


def choose_family(
    config: EncoderConfig,
    heads: Mapping[str, Sequence[str]],
    decoder_layers: int,
    prefer: str = "",
    shapes: Mapping[str, HeadShape] = MappingProxyType({}),
) -> Family:
    """Where a model is saved: the family `prefer` if it can say it, else the one whose class has most of the heads."""
    speaking = [family for family in FAMILIES.values() if family.speaks(config)]
    if (preferred := FAMILIES.get(prefer)) and preferred in speaking:
        return preferred
    return max(speaking, key=lambda family: len(family.kinds(heads, config, decoder_layers, shapes)))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file that may be hostile; UnmaskError when it is anything else or longer than 64 MiB."""
    try:
        if not path.is_file():
            raise UnmaskError(
                f"{path.name} is missing", where=str(path.parent), do="point at a model folder that has it"
            )
        with open(path, "rb") as file:
            text = file.read(LONGEST_JSON + 1)
    except OSError as error:
        raise UnmaskError(f"{path.name} can't be read: {error.strerror}", where=str(path)) from None
    if len(text) > LONGEST_JSON:
        raise refusal(f"{path.name} is longer than {LONGEST_JSON:,} bytes", str(path))
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{path.name} is not JSON ({error})", str(path)) from None
    if not isinstance(data, dict):
        raise refusal(f"{path.name} must hold a JSON object", str(path))
    return data


def _family(data: Mapping[str, Any], where: str) -> Family:
    """`model_type` decides; configurations older than that field are BERT's, and known by their sizes."""
    if "model_type" not in data and {"hidden_size", "num_hidden_layers", "vocab_size"} <= set(data):
        return FAMILIES["bert"]
    kind = data.get("model_type")
    if isinstance(kind, str) and kind in FAMILIES:
        return FAMILIES[kind]
    near = difflib.get_close_matches(str(kind), FAMILIES, n=1)
    raise UnmaskError(
        f"this is a model of type {shown(kind)}; unmask reads {', '.join(FAMILIES)}",
        where=where,
        do=f"choose a model of one of these families{f' (did you mean {near[0]}?)' if near else ''}: others differ in "
        "positions, heads or tokens, and reading one as another would give wrong numbers",
    )
