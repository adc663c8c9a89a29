"""Which stored tensor is which: second names, missing and unexpected ones, shapes against the configuration. No numbers yet,
except where two names of one tied tensor must be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from unmask.config import EncoderConfig
from unmask.errors import UnmaskError
from unmask.hub import names
from unmask.hub.names import Row
from unmask.hub.tensors import FLOATS, Stored, read_tensors


@dataclass(frozen=True)
class Matched:
    """`tensors` by Hugging Face name, exactly those the encoder and the heads in `tables` are made of."""

    tensors: dict[str, Stored]
    tables: dict[str, tuple[Row, ...]]
    missing: list[str]
    unexpected: list[str]


def match_tensors(stored: Sequence[Stored], config: EncoderConfig, folder: Path, *, tied: bool) -> Matched:
    """Sorts the tensors of a folder. `tied` is what its configuration says of the output matrix.

    Raises UnmaskError for a shape or a number of layers that differs from `config` (naming the first tensor and the
    values that fit), for missing tensors of the encoder, a head that is there in part, two names for one tensor that
    disagree, and numbers that are not floating point.
    """
    found = _named(stored, folder)
    unexpected = _settle_ties(found, folder, tied)
    _check_sizes(found, config, folder)
    encoder = names.shapes(names.ENCODER, config)
    if missing := [name for name in encoder if name not in found]:
        raise _incomplete("the encoder", missing, folder)
    tables, absent = _heads(found, config, folder)
    wanted = list(encoder) + [name for table in tables.values() for name in names.shapes(table, config)]
    for name in wanted:
        if found[name].dtype not in FLOATS:
            raise UnmaskError(
                f"{found[name].name} holds {found[name].dtype} numbers; unmask reads {', '.join(FLOATS)}",
                where=str(found[name].file),
                do="use the model as it was before it was quantised",
            )
    unexpected += [entry.name for name, entry in found.items() if name not in set(wanted)]
    return Matched({name: found[name] for name in wanted}, tables, absent, unexpected)


def _named(stored: Sequence[Stored], folder: Path) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for entry in stored:
        name = names.canonical(entry.name)
        if name in names.BUFFERS:
            continue
        if name in found:
            raise UnmaskError(
                f"{found[name].name} and {entry.name} are two names for one tensor",
                where=str(folder),
                do="use a folder that holds one model only",
            )
        found[name] = entry
    return found


def _settle_ties(found: dict[str, Stored], folder: Path, tied: bool) -> list[str]:
    """Leaves each tied tensor under its first name; returns the second names whose values are not used.

    Where a configuration ties the two, the first decides, as in transformers; where it does not, they must be equal.
    """
    unused = []
    for second, first in names.TIED.items():
        if second not in found:
            continue
        entry = found.pop(second)
        if first not in found:
            found[first] = entry
        elif not _equal(found[first], entry):
            if not tied:
                raise UnmaskError(
                    f"{entry.name} differs from {found[first].name}: the output is not tied to the input embedding",
                    where=str(folder),
                    do="choose a model whose MLM head shares the embedding, as BERT's does",
                )
            unused.append(entry.name)
    return unused


def _equal(one: Stored, other: Stored) -> bool:
    if one.shape != other.shape:
        return False
    both = read_tensors({"one": one, "other": other})
    return torch.equal(both["one"], both["other"])


def _check_sizes(found: Mapping[str, Stored], config: EncoderConfig, folder: Path) -> None:
    """The first tensor that does not fit is named, with every value of config.json that would fit this file."""
    expected: dict[str, tuple[int, ...]] = {}
    for table in (names.ENCODER, *names.TABLES.values()):
        expected |= names.shapes(table, config)
    layers = _layers(found)
    for name, entry in found.items():
        extra = layers > config.num_hidden_layers and _block(name) >= config.num_hidden_layers
        if extra or (name in expected and entry.shape != expected[name]):
            asked = "no such layer" if extra else f"{list(expected[name])}"
            raise UnmaskError(
                f"{entry.name} is {list(entry.shape)} in the file, but config.json asks for {asked}",
                where=str(folder),
                do=_advice(found, config, layers),
            )
    if 0 < layers < config.num_hidden_layers:
        raise UnmaskError(
            f"encoder.layer.{layers}.attention.self.query.weight is not in the file, which has {layers} layers; "
            f"config.json asks for {config.num_hidden_layers}",
            where=str(folder),
            do=_advice(found, config, layers),
        )


def _advice(found: Mapping[str, Stored], config: EncoderConfig, layers: int) -> str:
    sizes = {**_sizes(found), **({"num_hidden_layers": layers} if layers else {})}
    fitting = {name: size for name, size in sizes.items() if size != getattr(config, name)}
    hidden = sizes.get("hidden_size", config.hidden_size)
    if hidden != config.hidden_size and hidden % 64 == 0:
        fitting["num_attention_heads"] = (
            hidden // 64
        )  # a file does not tell; 64 is the head size of every published BERT
    listed = ", ".join(f'"{name}": {size}' for name, size in fitting.items())
    return f"this file fits a config.json with {listed}" if listed else "use a copy of the model that is whole"


def _sizes(found: Mapping[str, Stored]) -> dict[str, int]:
    """The configuration's sizes, read off the shapes of the file's encoder."""
    sizes: dict[str, int] = {}
    for row in names.expand(names.ENCODER, 1):
        for name in row.theirs:
            if name in found and len(found[name].shape) == len(row.shape):
                for field, size in zip(row.shape, found[name].shape, strict=True):
                    sizes.setdefault(str(field), size)
    return sizes


def _layers(found: Mapping[str, Stored]) -> int:
    return 1 + max((_block(name) for name in found), default=-1)


def _block(name: str) -> int:
    matched = re.match(r"encoder\.layer\.(\d{1,6})\.", name)
    return int(matched[1]) if matched else -1


def _heads(
    found: Mapping[str, Stored], config: EncoderConfig, folder: Path
) -> tuple[dict[str, tuple[Row, ...]], list[str]]:
    """The heads that are there, and the names of those that are not."""
    tables, absent = {}, []
    for kind in ("mlm", "nsp"):
        wanted = list(names.shapes(names.TABLES[kind], config))
        missing = [name for name in wanted if name not in found]
        present = {name for name in wanted if name in found}
        absent += missing
        if not missing:
            tables[kind] = names.TABLES[kind]
        elif kind == "nsp" and present == set(names.shapes(names.POOLER, config)):
            tables["pooler"] = names.POOLER
        elif present:
            raise _incomplete(f"the {kind.upper()} head", missing, folder)
    return tables, absent


def _incomplete(part: str, missing: Sequence[str], folder: Path) -> UnmaskError:
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return UnmaskError(
        f"{part} is not whole: the file lacks {', '.join(missing[:5])}{more}",
        where=str(folder),
        do="use a copy of the model that is whole; unmask never fills a hole with random numbers",
    )
