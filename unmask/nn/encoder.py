"""The network: embeddings and a stack of blocks over packed tokens.

Legend: T tokens, D hidden_size, H heads, K head size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from unmask.batch import Layout, PackedBatch
from unmask.config import Activation, EncoderConfig
from unmask.nn.attend import attend


def activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """The feed-forward's non-linearity; `gelu` is exact, `gelu_tanh` the approximation of the first BERT code."""
    match name:
        case "gelu":
            return F.gelu
        case "gelu_tanh":
            return lambda x: F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu


class Encoder(nn.Module):
    """Packed tokens to one vector each: [T, D]."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))

    def forward(self, batch: PackedBatch) -> Tensor:
        self._require_fitting(batch)
        x = self.embeddings(batch)
        for block in self.blocks:
            x = block(x, batch.layout)
        return x

    def _require_fitting(self, batch: PackedBatch) -> None:
        """ValueError instead of an index error; ids are looked at on a CPU only, since on a GPU that would wait for it."""
        longest, limit = batch.layout.longest, self.config.max_position_embeddings
        if longest > limit:
            raise ValueError(f"sequence of {longest} tokens, but this model has {limit} positions; shorten it")
        for name, ids, size in (
            ("input_ids", batch.input_ids, self.config.vocab_size),
            ("token_type_ids", batch.token_type_ids, self.config.type_vocab_size),
        ):
            if ids is None or ids.device.type != "cpu":
                continue
            for worst in (int(ids.min()), int(ids.max())):
                if not 0 <= worst < size:
                    raise ValueError(f"{name} holds {worst}, but this model has {size}, from 0 to {size - 1}")


class Embeddings(nn.Module):
    """Sum of token, position and segment vectors, normed (BERT section 3)."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segments = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, batch: PackedBatch) -> Tensor:
        segments = self.segments.weight[0] if batch.token_type_ids is None else self.segments(batch.token_type_ids)
        x = self.tokens(batch.input_ids) + self.positions(batch.layout.position_ids) + segments
        out: Tensor = self.dropout(self.norm(x))
        return out


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and then normed (post-norm)."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        x = self.attention_norm(x_TD + self.dropout(self.attention(x_TD, layout)))
        out: Tensor = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return out


class Attention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        qkv = self.qkv(x_TD).unflatten(-1, (3, self.heads, -1))
        out: Tensor = self.out(attend(qkv, layout, dropout=self.dropout if self.training else 0.0).flatten(-2))
        return out


class FeedForward(nn.Module):
    """Two matrices with an activation between them, at every token alike."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.activation = activation(config.hidden_act)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x_TD: Tensor) -> Tensor:
        out: Tensor = self.down(self.activation(self.up(x_TD)))
        return out
