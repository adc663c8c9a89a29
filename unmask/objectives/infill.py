"""Span corruption: spans of the text become sentinels, and a decoder writes each sentinel with its span (T5 section 3.1.4).

Legend: T tokens, B sequences, N tokens inside spans, P spans, S source tokens, D hidden_size, V vocab_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig, Infill
from unmask.nn.cost import attention_flops, block_matrices, token_head_flops
from unmask.nn.decoder import Decoder
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead
from unmask.nn.kernels.vocabulary import Logits
from unmask.objectives.base import Losses, Objective, Sum
from unmask.objectives.choose import run_starts
from unmask.randomness import keys, uniform
from unmask.text.vocabulary import Vocabulary

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Keys = NDArray[np.uint64]

SALT = 0x543549  # keeps these draws apart from every other use of (seed, example)
SETTLE, KEPT, HIDDEN = 1, 2, 3  # what a draw is for


class InfillObjective(Objective):
    """The encoder reads "Thank you <0> me to your party <1>", the decoder writes "<0> for inviting <1> last week </s>"."""

    def __init__(self, config: EncoderConfig, goal: Infill, vocabulary: Vocabulary):
        super().__init__()
        self.goal = goal
        self.head = InfillHead(config, goal.num_decoder_layers or config.num_hidden_layers)
        self._special, self._sentinels = vocabulary.is_special(), np.array(vocabulary.require_sentinels())
        self._start, self._end = vocabulary.require("pad"), vocabulary.require("sep")

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        """A batch with sentinels for spans, shorter than before; the target side is its `decoder`."""
        assert batch.examples is not None, "spans are drawn from the examples' numbers"
        ids, rows = batch.input_ids.numpy(), batch.layout.rows.numpy()
        row_keys = keys(SALT, seed, batch.examples.numpy())
        most = len(self._sentinels)
        hidden = choose_spans(~self._special[ids], rows, row_keys, self.goal.mask_rate, self.goal.mean_span, most)
        where = np.flatnonzero(hidden)
        begins, number = _number(where, rows[where], batch.num_sequences)
        fits = number < most  # a special token inside a span makes two of it
        where, begins, number = where[fits], begins[fits], number[fits]
        source, lengths_B = self._source(ids, rows, where, begins, number)
        return batch.with_(
            input_ids=torch.from_numpy(source),
            starts=_starts(lengths_B),
            token_type_ids=None,
            word_starts=None,
            decoder=self._target(ids[where], rows[where], begins, number, batch.num_sequences),
        )

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        assert batch.decoder is not None
        return {"infill": len(batch.decoder.input_ids)}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        assert batch.decoder is not None
        source, target = batch.layout.lengths, batch.decoder.layout.lengths
        inner = config.num_attention_heads * config.key_size
        cross = 4.0 * inner * sum(s * t for s, t in zip(source, target, strict=True))
        cross += 4.0 * config.hidden_size * inner * (sum(source) + sum(target))  # keys and values; queries and output
        layer = 2.0 * sum(target) * block_matrices(config) + attention_flops(config, target) + cross
        return len(self.head.decoder.blocks) * layer + token_head_flops(config, sum(target))

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        assert batch.decoder is not None
        value = batch.decoder.labels["infill"].value
        logits: Logits = self.head(encoder, layers[-1], batch)
        return {"infill": Sum.of(logits.score(value, count=not self.training), len(value))}

    def _source(
        self, ids_T: Numbers, rows_T: Numbers, where_N: Numbers, begins_N: Flags, number_N: Numbers
    ) -> tuple[Numbers, Numbers]:
        """The text with a sentinel for each span, and the length of each sequence."""
        shown, kept = ids_T.copy(), np.ones(len(ids_T), bool)
        shown[where_N[begins_N]] = self._sentinels[number_N[begins_N]]
        kept[where_N[~begins_N]] = False
        return shown[kept], np.bincount(rows_T[kept])

    def _target(
        self, ids_N: Numbers, rows_N: Numbers, begins_N: Flags, number_N: Numbers, sequences: int
    ) -> PackedBatch:
        """What the decoder writes, as labels, and what it reads: the same one place later, after a padding token."""
        lengths_B = np.bincount(rows_N, minlength=sequences) + np.bincount(rows_N[begins_N], minlength=sequences) + 1
        target = np.full(lengths_B.sum(), self._end)
        at_N = np.arange(len(ids_N)) + np.cumsum(begins_N) + rows_N  # behind one sentinel a span and one end a sequence
        target[at_N] = ids_N
        target[at_N[begins_N] - 1] = self._sentinels[number_N[begins_N]]
        read = np.roll(target, 1)
        read[np.cumsum(lengths_B) - lengths_B] = self._start
        labels = {"infill": Targets(torch.arange(len(target)), torch.from_numpy(target))}
        return PackedBatch(torch.from_numpy(read), _starts(lengths_B), labels=labels)


class InfillHead(nn.Module):
    """The decoder and its vocabulary head."""

    def __init__(self, config: EncoderConfig, layers: int):
        super().__init__()
        self.decoder, self.tokens = Decoder(config, layers), TokenHead(config)
        self.scale = (
            config.hidden_size**-0.5 if config.tie_word_embeddings else 1.0
        )  # T5's word vectors have deviation 1

    def forward(self, encoder: Encoder, source_SD: Tensor, batch: PackedBatch) -> Logits:
        """[T, V] of the target side, not multiplied out."""
        assert batch.decoder is not None
        x_TD = self.decoder(encoder.embeddings(batch.decoder), batch.decoder.layout, source_SD, batch.layout)
        out: Logits = self.tokens(x_TD * self.scale, encoder.token_table())
        return out


def choose_spans(candidates_T: Flags, rows_T: Numbers, keys_B: Keys, rate: float, mean_span: float, most: int) -> Flags:
    """[T] True inside spans: `rate` of each sequence's candidates, exactly on average, in at most `most` spans.

    As in the released code: what stays and what goes are both cut into as many parts as there are spans, and the parts
    alternate, beginning with one that stays. So the first candidate is never in a span, and the last one always is.
    """
    at = np.flatnonzero(candidates_T)
    count_B = np.bincount(rows_T[at], minlength=len(keys_B))
    hidden_B = (rate * count_B + uniform(keys(keys_B, SETTLE))).astype(np.int64)
    hidden_B = np.minimum(hidden_B, np.maximum(count_B - 1, 0))
    wanted_B = np.maximum(1, np.round(hidden_B / mean_span).astype(np.int64))
    spans_B = np.minimum.reduce([wanted_B, hidden_B, count_B - hidden_B, np.full_like(wanted_B, most)])
    kept_B = np.where(spans_B > 0, count_B - hidden_B, 0)
    stays, goes = (random_parts(n, spans_B, keys(keys_B, k)) for n, k in ((kept_B, KEPT), (hidden_B, HIDDEN)))
    chosen_T = np.zeros(len(candidates_T), bool)
    lengths = np.stack([stays, goes], 1).ravel()
    chosen_T[at[spans_B[rows_T[at]] > 0]] = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    return chosen_T


def random_parts(total_B: Numbers, parts_B: Numbers, keys_B: Keys) -> Numbers:
    """[P] lengths of the parts that each total is cut into; none is 0, and every way to cut is equally likely."""
    row = np.repeat(np.arange(len(total_B)), total_B)
    place = np.arange(len(row)) - (np.cumsum(total_B) - total_B)[row]
    draw = np.where(place == 0, -1.0, uniform(keys(keys_B[row], place)))  # a part begins at the first place for sure
    begins = np.zeros(len(row), bool)
    begins[np.lexsort((draw, row))] = place < parts_B[row]  # the smallest draws of each row
    return np.diff(np.flatnonzero(begins), append=len(row))


def _number(where_N: Numbers, rows_N: Numbers, sequences: int) -> tuple[Flags, Numbers]:
    """Where spans begin, and which span of its own sequence each token is in, from 0."""
    begins = run_starts(where_N, rows_N)
    spans_B = np.bincount(rows_N[begins], minlength=sequences)
    return begins, np.cumsum(begins) - 1 - (np.cumsum(spans_B) - spans_B)[rows_N]


def _starts(lengths_B: Numbers) -> Tensor:
    return torch.from_numpy(np.r_[0, np.cumsum(lengths_B)].astype(np.int32))
