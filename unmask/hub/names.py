"""Which tensor of another format is which of ours: one row per tensor pattern, read in both directions.

`{i}` in a name is a block. Names on the other side are those of the bare encoder, without the prefix of its class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from unmask.config import EncoderConfig

Dimension = str | int  # a size of EncoderConfig by name, or a fixed one
Form = Literal["stacked", "transposed", "per_head", "per_head_pairs"]


@dataclass(frozen=True)
class Row:
    """One tensor of ours and what it is there.

    `stacked`: parts one under the other; `transposed`: a matrix turned over (GPT-2); `per_head`: a matrix whose rows go head
    by head, each with its query, key and value (DeBERTa v1); `per_head_pairs`: so too, and the numbers that RoPE turns
    together are neighbours there, half a head apart here (NeoBERT). A head without its `optional` tensors is whole.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[Dimension, ...]  # of each part, as it lies there
    form: Form = "stacked"
    optional: bool = False

    def at(self, block: int) -> Row:
        """The row of one block."""
        theirs = tuple(name.replace("{i}", str(block)) for name in self.theirs)
        return replace(self, ours=self.ours.replace("{i}", str(block)), theirs=theirs)

    def export(self, ours: Tensor, config: EncoderConfig) -> list[Tensor]:
        """Our tensor as its parts there."""
        if self.form == "stacked":
            return list(ours.chunk(len(self.theirs)))
        if self.form == "transposed":
            return [ours.T]
        heads = ours.unflatten(0, (3, config.num_attention_heads, config.key_size))
        if self.form == "per_head_pairs":
            heads = torch.cat([heads[:2].unflatten(2, (2, -1)).transpose(2, 3).flatten(2, 3), heads[2:]])
        return [heads.transpose(0, 1).flatten(0, 2)]

    def take(self, parts: Sequence[Tensor], config: EncoderConfig) -> Tensor:
        """The parts as our tensor: undoes `export`, bit for bit."""
        if self.form == "stacked":
            return torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        if self.form == "transposed":
            return parts[0].T.contiguous()
        heads = parts[0].unflatten(0, (config.num_attention_heads, 3, config.key_size)).transpose(0, 1)
        if self.form == "per_head_pairs":
            heads = torch.cat([heads[:2].unflatten(2, (-1, 2)).transpose(2, 3).flatten(2, 3), heads[2:]])
        return heads.flatten(0, 2)


def linear(
    ours: str, theirs: str | tuple[str, ...], out: Dimension, into: Dimension, *, bias: bool = True
) -> tuple[Row, ...]:
    """A linear layer, or several there that are one of ours."""
    names = (theirs,) if isinstance(theirs, str) else theirs
    weight = Row(f"{ours}.weight", tuple(f"{name}.weight" for name in names), (out, into))
    return (weight, Row(f"{ours}.bias", tuple(f"{name}.bias" for name in names), (out,))) if bias else (weight,)


def norm(ours: str, theirs: str, width: Dimension = "hidden_size", *, bias: bool = True) -> tuple[Row, ...]:
    """A norm's weight, and its bias where it has one."""
    weight = Row(f"{ours}.weight", (f"{theirs}.weight",), (width,))
    return (weight, Row(f"{ours}.bias", (f"{theirs}.bias",), (width,))) if bias else (weight,)


def table(ours: str, theirs: str, rows: Dimension, width: Dimension) -> Row:
    """An embedding table."""
    return Row(f"{ours}.weight", (f"{theirs}.weight",), (rows, width))


def expand(rows: Sequence[Row], blocks: int) -> Iterator[Row]:
    """The rows of every block, in the order of the table."""
    for row in rows:
        if "{i}" in row.ours:
            yield from (row.at(i) for i in range(blocks))
        else:
            yield row


def shapes(rows: Sequence[Row], config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Every name there with the shape this configuration gives it."""
    return {
        name: tuple(size if isinstance(size, int) else int(getattr(config, size)) for size in row.shape)
        for row in expand(rows, config.num_blocks)
        for name in row.theirs
    }


def to_theirs(rows: Sequence[Row], ours: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Our tensors under their names there; each is a copy of its own."""
    return {
        name: part.detach().clone(memory_format=torch.contiguous_format)
        for row in expand(rows, config.num_blocks)
        for name, part in zip(row.theirs, row.export(ours[row.ours], config), strict=True)
    }


def to_ours(rows: Sequence[Row], theirs: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Tensors from there under our names: undoes `to_theirs`, bit for bit."""
    return {
        row.ours: row.take([theirs[name] for name in row.theirs], config) for row in expand(rows, config.num_blocks)
    }
