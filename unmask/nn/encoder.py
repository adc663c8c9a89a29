"""The network: embeddings and a stack of blocks over packed tokens.

Legend: T tokens, M of them that ask, D hidden_size, E table_size, V vocab_size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.batch import Layout, PackedBatch
from unmask.config import Absolute, EncoderConfig, Recurrent
from unmask.nn.attention import Attention
from unmask.nn.characters import CharacterWords
from unmask.nn.embeddings import Embeddings, Tables
from unmask.nn.kernels.activation import activation
from unmask.nn.kernels.dropout import Dropout
from unmask.nn.layer_mix import LayerMix
from unmask.nn.parts import FeedForward, build_norm
from unmask.nn.places import Known, Places
from unmask.nn.recurrent import RecurrentBlock

MULTIPLE = 64  # tokens of a training step: were they any number, each step would leave holes in memory that the next can't fill


class Encoder(nn.Module):
    """Packed tokens to one vector each: [T, D].

    While training, a batch is filled up to a multiple of `multiple` tokens with a sequence of its own; nothing outside sees it.
    `own_tables` False makes an encoder that reads the embedding tables of another one, given with every call (the generator
    of a tied ELECTRA).
    """

    def __init__(self, config: EncoderConfig, own_tables: bool = True):
        super().__init__()
        self.config = config
        self.multiple = MULTIPLE
        recurrent = config.layer if isinstance(config.layer, Recurrent) else None
        self.words = None if recurrent is None else CharacterWords(config, recurrent)
        self.embeddings = Embeddings(config, own_tables and recurrent is None)
        self.places = Places(config)
        self.blocks = nn.ModuleList(
            Block(config, first=i == 0) if recurrent is None else RecurrentBlock(config, recurrent, first=i == 0)
            for i in range(config.num_blocks)
        )
        self.convolution = Convolution(config) if config.conv_kernel_size else None
        self.norm = build_norm(config, config.hidden_size) if config.norm_first else nn.Identity()
        self.mix = LayerMix(config.num_hidden_layers + 1) if config.layer_mix else None

    def forward(self, batch: PackedBatch, *added: Tables) -> Tensor:
        for x in self._states(batch, added, self.config.num_hidden_layers, None):
            out = x
        return out

    def layers(
        self, batch: PackedBatch, *added: Tables, until: int | None = None, read_M: Tensor | None = None
    ) -> list[Tensor]:
        """The embedded tokens and the state after each layer, num_hidden_layers + 1 in all, and the mix of these where the
        network has one; the last is the output.

        What no one looks at costs nothing: with `until` the first layers only, that many; with `read_M` the last state is
        right at these tokens only, and zero elsewhere: in the last layer no other token asks.
        """
        until = self.config.num_hidden_layers if until is None else until
        if not torch.is_grad_enabled() or self.words is not None:
            return list(self._states(batch, added, until, read_M))
        count = len(batch.input_ids)
        filled = batch.padded_to(self.multiple * math.ceil(count / self.multiple))
        states = self._states(filled, added, until, read_M)
        return [x if len(x) == count else x[:count] for x in states]

    def token_table(self) -> Tensor:
        """The matrix of token vectors [V, E]: the output matrix too, where the two are tied."""
        tokens = self.embeddings.tables().tokens
        assert tokens is not None, "an encoder without tables of its own has no matrix to tie to"
        return tokens

    def refine(self, query_MD: Tensor, where_M: Tensor, keys_TD: Tensor, batch: PackedBatch, times: int) -> Tensor:
        """[M, D]: the tokens at `where_M` ask the last block with states of their own, and what it answers asks anew.

        `keys_TD` answers every time (DeBERTa's enhanced mask decoder). What comes out stands before the final norm, where
        the network has one.
        """
        last = self.config.num_hidden_layers - 1
        block, window = self.blocks[self.config.block_of(last)], self.config.window_of(last)
        assert isinstance(block, Block)
        known = self.places(batch.layout)
        for _ in range(times):
            query_MD = block.answer(query_MD, where_M, keys_TD, batch.layout, known, window=window)
        return query_MD

    def _states(
        self, batch: PackedBatch, added: tuple[Tables, ...], until: int, read_M: Tensor | None
    ) -> Iterator[Tensor]:
        self._require_fitting(batch)
        if self.words is None:
            states = self._token_states(batch, added, until, read_M)
        else:
            states = self._word_states(self.words, batch, until)
        if self.mix is None or until < self.config.num_hidden_layers:
            yield from states
            return
        kept = list(states)
        yield from kept
        yield self.mix(kept)

    def _word_states(self, read: CharacterWords, batch: PackedBatch, until: int) -> Iterator[Tensor]:
        """The layers work on words; outside, each token has its word's vector."""
        words = read.words(batch)
        x_WD = read(batch, words)
        yield words.spread(x_WD)
        for block in list(self.blocks)[:until]:
            x_WD = block(x_WD, words.layout)
            yield words.spread(x_WD)

    def _token_states(
        self, batch: PackedBatch, added: tuple[Tables, ...], until: int, read_M: Tensor | None
    ) -> Iterator[Tensor]:
        layout, known = batch.layout, self.places(batch.layout)
        x = self.embeddings(batch, *added)
        yield x
        norm = self.norm if until == self.config.num_hidden_layers else nn.Identity()
        for layer in range(until):
            block, window = self.blocks[self.config.block_of(layer)], self.config.window_of(layer)
            assert isinstance(block, Block)
            if layer == until - 1 and read_M is not None and (layer > 0 or self.convolution is None):
                asked = block.answer(x.index_select(0, read_M), read_M, x, layout, known, window=window)
                yield x.new_zeros(x.shape).index_copy(0, read_M, norm(asked).to(x.dtype))
                return
            before, x = x, block(x, layout, known, window=window)
            if layer == 0 and self.convolution is not None:
                x = self.convolution(before, x, layout)
            yield x if layer < until - 1 else norm(x)

    def _require_fitting(self, batch: PackedBatch) -> None:
        """ValueError instead of an index error; ids are looked at on a CPU only, since on a GPU that would wait for it."""
        if torch.compiler.is_compiling():
            return
        longest, limit = batch.layout.longest, self.config.max_position_embeddings
        if isinstance(self.config.positions, Absolute) and longest > limit:
            raise ValueError(f"sequence of {longest} tokens, but this model has {limit} positions; shorten it")
        types = batch.token_type_ids if self.config.type_vocab_size > 1 else None
        for name, ids, size in (
            ("input_ids", batch.input_ids, self.config.vocab_size),
            ("token_type_ids", types, self.config.type_vocab_size),
        ):
            if ids is None or ids.device.type != "cpu":
                continue
            for worst in (int(ids.min()), int(ids.max())):
                if not 0 <= worst < size:
                    raise ValueError(f"{name} holds {worst}, but this model has {size}, from 0 to {size - 1}")


class Block(nn.Module):
    """Attention and feed-forward, each added to its input: normed after (post-norm) or, with `norm_first`, before."""

    def __init__(self, config: EncoderConfig, *, first: bool):
        super().__init__()
        self.norm_first = config.norm_first
        self.attention = Attention(config)
        without = config.norm_first and first and not config.first_norm
        self.attention_norm = nn.Identity() if without else build_norm(config, config.hidden_size)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = build_norm(config, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x_TD: Tensor, layout: Layout, known: Known, *, window: int = 0) -> Tensor:
        """[T, D]"""
        return self._add(x_TD, self.attention(self._read(x_TD), layout, known, window=window))

    def answer(
        self, query_MD: Tensor, where_M: Tensor, keys_TD: Tensor, layout: Layout, known: Known, *, window: int = 0
    ) -> Tensor:
        """[M, D]: the tokens at `where_M` ask and are added to, while `keys_TD` gives keys and values."""
        keys_TD = self._read(keys_TD)
        attended = self.attention.answer(self._read(query_MD), where_M, keys_TD, layout, known, window=window)
        return self._add(query_MD, attended)

    def _read(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention_norm(x) if self.norm_first else x
        return out

    def _add(self, x: Tensor, attended: Tensor) -> Tensor:
        if self.norm_first:
            x = x + self.dropout(attended)
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(attended))
        out: Tensor = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return out


class Convolution(nn.Module):
    """A convolution over neighbouring tokens of the embedded text, added to layer 0's output and normed (DeBERTa v2 xlarge)."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.reach = config.conv_kernel_size // 2
        self.kernel = nn.Conv1d(config.hidden_size, config.hidden_size, config.conv_kernel_size)
        self.activation = activation(config.conv_act)
        self.norm = build_norm(config, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, embedded_TD: Tensor, x_TD: Tensor, layout: Layout) -> Tensor:
        grid = F.pad(layout.pad(embedded_TD), (0, 0, self.reach, self.reach)).transpose(1, 2)
        seen = layout.unpad(self.kernel(grid).transpose(1, 2))
        out: Tensor = self.norm(x_TD + self.activation(self.dropout(seen)))
        return out
