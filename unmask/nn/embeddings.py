"""From ids to the first vectors.

Legend: T tokens, D hidden_size, E table_size, V vocab_size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.nn.kernels.dropout import Dropout
from unmask.nn.kernels.linear import Linear
from unmask.nn.parts import build_norm


class Tables(NamedTuple):
    """The weights of the embedding tables, [V, E], [places, E], [segments, E]; None where a model has no such table."""

    tokens: Tensor | None
    positions: Tensor | None
    segments: Tensor | None

    def detach(self) -> Tables:
        """The same numbers, through which no gradient flows."""
        return Tables(*(None if table is None else table.detach() for table in self))


class Embeddings(nn.Module):
    """Sum of token, position and segment vectors (BERT section 3), normed, and projected where tables are narrower."""

    def __init__(self, config: EncoderConfig, own_tables: bool = True):
        super().__init__()
        width, own = config.table_size, own_tables
        self.offset = config.position_offset
        self.tokens = nn.Embedding(config.vocab_size, width) if own else None
        self.positions = nn.Embedding(config.position_rows, width) if own and config.position_rows else None
        self.segments = nn.Embedding(config.type_vocab_size, width) if own and config.type_vocab_size else None
        self.norm = build_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.project = Linear(width, config.hidden_size) if config.embedding_size else nn.Identity()

    def tables(self) -> Tables:
        """Its own weights."""
        parts = (self.tokens, self.positions, self.segments)
        return Tables(*(None if part is None else part.weight for part in parts))

    def forward(self, batch: PackedBatch, *added: Tables) -> Tensor:
        """[T, D]; a vector is the sum of what its own tables and those `added` hold."""
        x = sum(self._look_up(batch, tables) for tables in (self.tables(), *added) if tables.tokens is not None)
        assert isinstance(x, Tensor), "an encoder without tables needs another's"
        out: Tensor = self.project(self.dropout(self.norm(x)))
        return out

    def _look_up(self, batch: PackedBatch, tables: Tables) -> Tensor:
        assert tables.tokens is not None
        x = F.embedding(batch.input_ids, tables.tokens)
        if tables.positions is not None:
            x = x + F.embedding(batch.layout.position_ids + self.offset, tables.positions)
        if tables.segments is not None:
            types = batch.token_type_ids if len(tables.segments) > 1 else None
            x = x + (tables.segments[0] if types is None else F.embedding(types, tables.segments))
        return x
