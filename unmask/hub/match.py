"""Which stored tensor is which: second names, missing and unexpected ones, shapes against the configuration. No numbers yet,
except where two names of one tied tensor must be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from unmask.config import Disentangled, EncoderConfig, RelativeBias
from unmask.errors import UnmaskError
from unmask.hub import names
from unmask.hub.families import FAMILIES
from unmask.hub.family import Family
from unmask.hub.fields import LIMITS
from unmask.hub.names import Row
from unmask.hub.tensors import Stored, read_tensors, require_floats


@dataclass(frozen=True)
class Matched:
    """`tensors` by their canonical names, exactly those the encoder and the heads in `heads` are made of."""

    tensors: dict[str, Stored]
    heads: dict[str, tuple[Row, ...]]
    missing: list[str]
    unexpected: list[str]


@dataclass(frozen=True)
class Asked:
    """What a configuration says should be in the files."""

    family: Family
    config: EncoderConfig
    decoder_layers: int
    folder: Path
    outputs: int = 1  # of the task's head
    task: str = ""  # what the class named there is for ("classify", …): a class with this one head

    @property
    def encoder(self) -> tuple[Row, ...]:
        """The encoder's rows."""
        return self.family.encoder(self.config)

    @property
    def heads(self) -> dict[str, tuple[Row, ...]]:
        """Each head's rows. The names of a task's head are those of other heads in part, so there is no looking for both."""
        kinds = [kind for kind in self.family.heads if kind == "pooler" or not self.task]
        heads = {self.task: self.family.rows(self.task, self.config, self.outputs)} if self.task else {}
        return heads | {kind: self.family.rows(kind, self.config, self.decoder_layers) for kind in kinds}

    def shapes(self, rows: Sequence[Row]) -> dict[str, tuple[int, ...]]:
        """The names in the files with their shapes."""
        return names.shapes(rows, self.config)


def match_tensors(stored: Sequence[Stored], asked: Asked) -> Matched:
    """Sorts the tensors of a folder.

    Raises UnmaskError for a shape or a number of layers that differs from the configuration (naming the first tensor and
    the values that fit), for missing tensors of the encoder, a head that is there in part, two names for one tensor that
    disagree, and numbers that are not floating point.
    """
    found = _named(stored, asked)
    unexpected = _settle_ties(found, asked)
    _check_sizes(found, asked)
    encoder = asked.shapes(asked.encoder)
    if missing := [name for name in encoder if name not in found]:
        raise _incomplete("the encoder", missing, asked.folder, _other_family(stored, asked.family))
    heads, absent = _heads(found, asked)
    wanted = dict.fromkeys([*encoder, *(name for rows in heads.values() for name in asked.shapes(rows))])
    require_floats(found[name] for name in wanted)
    unexpected += [entry.name for name, entry in found.items() if name not in wanted]
    return Matched({name: found[name] for name in wanted}, heads, absent, unexpected)


def _named(stored: Sequence[Stored], asked: Asked) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for entry in stored:
        name = asked.family.canonical(entry.name)
        if name in asked.family.buffers:
            continue
        if name in found:
            raise UnmaskError(
                f"{found[name].name} and {entry.name} are two names for one tensor",
                where=str(asked.folder),
                do="use a folder that holds one model only",
            )
        found[name] = entry
    return found


def _settle_ties(found: dict[str, Stored], asked: Asked) -> list[str]:
    """Leaves each tied tensor under the name that counts; returns the other names whose values are not used.

    Where a configuration ties the two, the first counts, as in transformers. Where it does not, both matrices stay, and of
    the two names of the output's bias the second counts, which is the matrix's.
    """
    unused = []
    own = set(asked.shapes(asked.encoder)).union(*(asked.shapes(rows) for rows in asked.heads.values()))
    for second, first in asked.family.tied.items():
        counts, other = (second, first) if second in own else (first, second)
        if other in own or other not in found:
            continue
        entry = found.pop(other)
        if counts not in found:
            found[counts] = entry
        elif not _equal(found[counts], entry):
            unused.append(entry.name)
    return unused


def _equal(one: Stored, other: Stored) -> bool:
    if one.shape != other.shape:
        return False
    both = read_tensors({"one": one, "other": other})
    return torch.equal(both["one"], both["other"])


def _check_sizes(found: Mapping[str, Stored], asked: Asked) -> None:
    """The first tensor that does not fit is named, with every value of config.json that would fit this file."""
    expected: dict[str, tuple[int, ...]] = {}
    for rows in (asked.encoder, *asked.heads.values()):
        expected |= asked.shapes(rows)
    layers = 1 + max((_number(name, asked.family.block) for name in found), default=-1)
    for name, entry in found.items():
        extra = layers > asked.config.num_blocks and _number(name, asked.family.block) >= asked.config.num_blocks
        if extra or (name in expected and entry.shape != expected[name]):
            wanted = "no such layer" if extra else f"{list(expected[name])}"
            raise UnmaskError(
                f"{entry.name} is {list(entry.shape)} in the file, but config.json asks for {wanted}",
                where=str(asked.folder),
                do=_advice(found, asked, layers),
            )
    if 0 < layers < asked.config.num_blocks:
        absent = next(name for name in expected if _number(name, asked.family.block) == layers)
        raise UnmaskError(
            f"{absent} is not in the file, which has {layers} layers; config.json asks for {asked.config.num_blocks}",
            where=str(asked.folder),
            do=_advice(found, asked, layers),
        )
    decoder = 1 + max((_number(name, asked.family.decoder_block) for name in found), default=-1)
    if decoder not in (0, asked.decoder_layers):
        raise UnmaskError(
            f"the file has {decoder} decoder layers, but config.json asks for {asked.decoder_layers}",
            where=str(asked.folder),
            do=f'this file fits a config.json with "num_decoder_layers": {decoder}',
        )


def _advice(found: Mapping[str, Stored], asked: Asked, layers: int) -> str:
    """The values of config.json, in the family's own words, that would fit the file."""
    config, family = asked.config, asked.family
    sizes = _sizes(found, asked) | ({"num_blocks": layers} if layers else {})
    if (hidden := sizes.get("hidden_size", 0)) != config.hidden_size and hidden and hidden % 64 == 0:
        sizes["num_attention_heads"] = hidden // 64  # a file does not tell; 64 is the head size of every published BERT
    blocks = family.renamed.get(family.blocks, family.blocks)
    words = {"num_blocks": blocks, "position_rows": "max_position_embeddings", **family.renamed}
    told = {name: size for name, size in sizes.items() if name in LIMITS or name in words}
    fitting = {words.get(name, name): size for name, size in told.items() if size != getattr(config, name)}
    fitting |= _relative_places(found, asked)
    listed = ", ".join(f'"{name}": {size}' for name, size in fitting.items())
    return f"this file fits a config.json with {listed}" if listed else "use a copy of the model that is whole"


def _sizes(found: Mapping[str, Stored], asked: Asked) -> dict[str, int]:
    """The configuration's sizes, read off the shapes of the file's encoder."""
    config, family = asked.config, asked.family
    sizes: dict[str, int] = {}
    for row in names.expand(asked.encoder, 1):
        for name in row.theirs:
            if name in found and len(found[name].shape) == len(row.shape):
                for field, size in zip(row.shape, found[name].shape, strict=True):
                    if isinstance(field, str):
                        sizes.setdefault(field, size)
    if "table_size" not in family.renamed and "table_size" in sizes:  # tables are as wide as the encoder
        sizes.setdefault("hidden_size", sizes["table_size"])
    if "up_size" in sizes:
        sizes.setdefault("intermediate_size", sizes["up_size"] // (1 + config.gated))
    if "head_size" in family.renamed and "inner_size" in sizes:
        sizes["head_size"] = sizes["inner_size"] // sizes.get("num_attention_heads", config.num_attention_heads)
    return sizes


def _relative_places(found: Mapping[str, Stored], asked: Asked) -> dict[str, int]:
    """The field that says how many relative places there are, where the file's table has other rows."""
    row = next((row for row in asked.encoder if row.ours == "places.table.weight"), None)
    if row is None or row.theirs[0] not in found or found[row.theirs[0]].shape[0] == row.shape[0]:
        return {}
    rows = found[row.theirs[0]].shape[0]
    match asked.config.positions:
        case RelativeBias():
            return {asked.family.renamed.get("num_buckets", "num_buckets"): rows}
        case Disentangled(position_buckets=buckets):
            return {"position_buckets" if buckets else "max_relative_positions": rows // 2}
    return {}


def _number(name: str, pattern: str) -> int:
    """Which block a tensor is of; -1 for none."""
    begin, _, end = pattern.partition("{i}")
    number, dot, rest = name.removeprefix(begin).partition(".")
    fits = bool(pattern) and name.startswith(begin) and (dot + rest).startswith(end)
    return int(number) if fits and re.fullmatch(r"[0-9]{1,6}", number) else -1


def _heads(found: Mapping[str, Stored], asked: Asked) -> tuple[dict[str, tuple[Row, ...]], list[str]]:
    """The heads that are there, and the names of those that are not. A pooler is the first half of a pair head."""
    heads: dict[str, tuple[Row, ...]] = {}
    absent: list[str] = []
    pooler = set(asked.shapes(asked.heads.get("pooler", ())))
    for kind, rows in asked.heads.items():
        rows = tuple(row for row in rows if not (row.optional and any(name not in found for name in row.theirs)))
        wanted = list(asked.shapes([row for row in rows if not row.optional]))
        missing = [name for name in wanted if name not in found]
        present = {name for name in wanted if name in found}
        if kind != "pooler":
            absent += missing
        if not missing and not (
            kind == "pooler" and any("out.weight" in row.ours for r in heads.values() for row in r)
        ):
            heads[kind] = rows
        elif present and missing and present != pooler:
            raise _incomplete(f"the {kind.upper()} head", missing, asked.folder)
    return heads, absent


def _other_family(stored: Sequence[Stored], family: Family) -> str:
    """The family that the names in the files begin like, where it is another than config.json says."""
    for other in FAMILIES.values():
        mine = family.prefix and any(entry.name.startswith(family.prefix) for entry in stored)
        if other.prefix and not mine and any(entry.name.startswith(other.prefix) for entry in stored):
            return other.model_type
    return ""


def _incomplete(part: str, missing: Sequence[str], folder: Path, other: str = "") -> UnmaskError:
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return UnmaskError(
        f"{part} is not whole: the file lacks {', '.join(missing[:5])}{more}",
        where=str(folder),
        do=f'the tensors are named as in a model of type "{other}": correct model_type in config.json'
        if other
        else "use a copy of the model that is whole; unmask never fills a hole with random numbers",
    )
