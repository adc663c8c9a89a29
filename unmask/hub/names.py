"""Which Hugging Face tensor is which of ours: one row per tensor pattern, read in both directions.

Names on the Hugging Face side are those of `BertModel` (no `bert.` in front) and of the heads (`cls.`). `{i}` is a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.config import EncoderConfig

Dimension = str | int  # a field of EncoderConfig, or a fixed size


@dataclass(frozen=True)
class Row:
    """One tensor of ours and its one or more parts there, which are stacked along the first dimension."""

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[Dimension, ...]  # of each part

    def at(self, block: int) -> Row:
        """The row of one block."""
        theirs = tuple(name.replace("{i}", str(block)) for name in self.theirs)
        return Row(self.ours.replace("{i}", str(block)), theirs, self.shape)


def _linear(ours: str, theirs: tuple[str, ...], out: Dimension, into: Dimension) -> tuple[Row, Row]:
    return (
        Row(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), (out, into)),
        Row(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), (out,)),
    )


def _norm(ours: str, theirs: str) -> tuple[Row, Row]:
    return (
        Row(f"{ours}.weight", (f"{theirs}.weight",), ("hidden_size",)),
        Row(f"{ours}.bias", (f"{theirs}.bias",), ("hidden_size",)),
    )


H = "hidden_size"
THERE = "encoder.layer.{i}."

WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"

ENCODER = (
    Row("embeddings.tokens.weight", (WORD_EMBEDDINGS,), ("vocab_size", H)),
    Row("embeddings.positions.weight", ("embeddings.position_embeddings.weight",), ("max_position_embeddings", H)),
    Row("embeddings.segments.weight", ("embeddings.token_type_embeddings.weight",), ("type_vocab_size", H)),
    *_norm("embeddings.norm", "embeddings.LayerNorm"),
    *_linear("blocks.{i}.attention.qkv", tuple(f"{THERE}attention.self.{x}" for x in ("query", "key", "value")), H, H),
    *_linear("blocks.{i}.attention.out", (f"{THERE}attention.output.dense",), H, H),
    *_norm("blocks.{i}.attention_norm", f"{THERE}attention.output.LayerNorm"),
    *_linear("blocks.{i}.feed_forward.up", (f"{THERE}intermediate.dense",), "intermediate_size", H),
    *_linear("blocks.{i}.feed_forward.down", (f"{THERE}output.dense",), H, "intermediate_size"),
    *_norm("blocks.{i}.feed_forward_norm", f"{THERE}output.LayerNorm"),
)

MLM = (
    *_linear("dense", ("cls.predictions.transform.dense",), H, H),
    *_norm("norm", "cls.predictions.transform.LayerNorm"),
    Row("bias", ("cls.predictions.bias",), ("vocab_size",)),
)

POOLER = _linear("dense", ("pooler.dense",), H, H)

NSP = (*POOLER, *_linear("out", ("cls.seq_relationship",), 2, H))

# By the kind of objective that owns the head; a pooler is the first half of a pair head.
TABLES = {"mlm": MLM, "nsp": NSP, "pooler": POOLER}

# Second names under which a file may hold a tensor that is tied to another: {second: first}.
TIED = {
    "cls.predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

# Buffers some versions of transformers stored: they follow from the shapes.
BUFFERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})


def expand(table: tuple[Row, ...], blocks: int) -> Iterator[Row]:
    """The rows of every block, in the order of the table."""
    for row in table:
        if "{i}" in row.ours:
            yield from (row.at(i) for i in range(blocks))
        else:
            yield row


def shapes(table: tuple[Row, ...], config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Every Hugging Face name of a table with the shape this configuration gives it."""
    return {
        name: tuple(size if isinstance(size, int) else int(getattr(config, size)) for size in row.shape)
        for row in expand(table, config.num_hidden_layers)
        for name in row.theirs
    }


def to_hf(table: tuple[Row, ...], ours: Mapping[str, Tensor], blocks: int) -> dict[str, Tensor]:
    """Our tensors under their Hugging Face names; each is a copy of its own."""
    return {
        name: part.detach().clone(memory_format=torch.contiguous_format)
        for row in expand(table, blocks)
        for name, part in zip(row.theirs, ours[row.ours].chunk(len(row.theirs)), strict=True)
    }


def from_hf(table: tuple[Row, ...], theirs: Mapping[str, Tensor], blocks: int) -> dict[str, Tensor]:
    """Hugging Face tensors under our names: undoes `to_hf`, bit for bit."""
    return {
        row.ours: torch.cat([theirs[name] for name in row.theirs]) if len(row.theirs) > 1 else theirs[row.theirs[0]]
        for row in expand(table, blocks)
    }


def canonical(name: str) -> str:
    """A name as this table spells it: without `bert.`, and norms with weight and bias instead of TensorFlow's gamma and beta."""
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name
