"""MLM: some tokens are hidden, and the encoder says what they were (BERT section 3.1).

Legend: T tokens, B sequences, M targets, D hidden_size, V vocab_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig, MaskedTokens
from unmask.nn.cost import layer_flops, token_head_flops
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead
from unmask.nn.kernels.vocabulary import Logits
from unmask.objectives.base import Losses, Objective, Sum
from unmask.objectives.choose import choose, sequence_keys
from unmask.objectives.corrupt import Corruption, corrupt
from unmask.text.vocabulary import Vocabulary

SALT = 0x4D4C4D  # keeps these draws apart from every other use of (seed, example)
REFINEMENTS = 2  # times the enhanced mask decoder applies the last block (DeBERTa section 3.2 and released code)


class MaskedTokenObjective(Objective):
    """Masks in `prepare`, predicts at the masked places only: no logits are made elsewhere.

    Raises UnmaskError where the tokenizer has no [MASK].
    """

    def __init__(self, config: EncoderConfig, goal: MaskedTokens, vocabulary: Vocabulary):
        super().__init__()
        self.head = EnhancedMaskDecoder(config) if goal.enhanced_decoder else TokenHead(config)
        self.goal, self.vocabulary = goal, vocabulary
        shares = goal.replace_mask, goal.replace_random
        self._corruption = Corruption(
            vocabulary.require("mask"), vocabulary.ordinary_ids(), *shares, goal.unit == "span"
        )
        self._ordinary = ~vocabulary.is_special()

    def know_frequencies(self, counts_V: np.ndarray) -> None:
        """Sets the output bias to the log of the tokens' frequencies, so that the loss begins at the unigram entropy.

        BERT's bias begins at 0, and the embeddings spend the first steps on learning these frequencies. A head without a
        bias stays as it is.
        """
        if self.head.bias is None:
            return
        share = (counts_V + 0.5) / (counts_V + 0.5).sum()
        with torch.no_grad():
            self.head.bias.copy_(torch.from_numpy(np.log(share)).float())

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        assert batch.examples is not None, "masks are drawn from the examples' numbers"
        ids = batch.input_ids.numpy()
        words = None if batch.word_starts is None else batch.word_starts.numpy()
        rows, places = batch.layout.rows.numpy(), batch.layout.position_ids.numpy()
        keys_B = sequence_keys(SALT, seed, batch.examples.numpy())
        rate = self.goal.rate_at(batch.progress)
        where = np.flatnonzero(choose(self._ordinary[ids], words, rows, places, keys_B, rate, self.goal.unit))
        shown, value = corrupt(ids, where, rows, places, keys_B, self._corruption)
        targets = Targets(torch.from_numpy(where), torch.from_numpy(value))
        return batch.with_(input_ids=torch.from_numpy(shown), labels={**batch.labels, "mlm": targets})

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {"mlm": len(batch.labels["mlm"].where)}

    def depth(self, config: EncoderConfig) -> int:
        """The enhanced mask decoder applies the last layer itself."""
        return config.num_hidden_layers - self.goal.enhanced_decoder

    def reads(self, batch: PackedBatch) -> Tensor | None:
        return None if self.goal.enhanced_decoder else batch.labels["mlm"].where

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        asking, lengths = len(batch.labels["mlm"].where), batch.layout.lengths
        work = token_head_flops(config, asking)
        if self.goal.enhanced_decoder:
            work += REFINEMENTS * layer_flops(config, config.num_hidden_layers - 1, lengths, asking)
        return work

    def logits(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch, where_M: Tensor) -> Tensor:
        """[M, V] for the tokens at `where_M`, which should be few."""
        return self.answers(encoder, layers, batch, where_M).dense()

    def answers(
        self,
        encoder: Encoder,
        layers: Sequence[Tensor],
        batch: PackedBatch,
        where_M: Tensor,
        table_VE: Tensor | None = None,
    ) -> Logits:
        """[M, V], not multiplied out, from the encoder's layers as far as `depth`, or all of them.

        `table_VE` is the matrix of token vectors, where the encoder has none of its own (a tied generator).
        """
        hidden_TD = layers[self.depth(encoder.config)]
        if isinstance(self.head, EnhancedMaskDecoder):
            hidden_MD = self.head.refine(encoder, hidden_TD, batch, where_M)
        else:
            hidden_MD = hidden_TD.index_select(0, where_M)
        out: Logits = self.head(hidden_MD, encoder.token_table() if table_VE is None else table_VE)
        return out

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        where, value = batch.labels["mlm"]
        scored = self.answers(encoder, layers, batch, where).score(value, count=not self.training)
        return {"mlm": Sum.of(scored, len(value))}


class EnhancedMaskDecoder(TokenHead):
    """A TokenHead with a table of absolute places, which come in only where a token is guessed (DeBERTa section 3.2)."""

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def refine(self, encoder: Encoder, hidden_TD: Tensor, batch: PackedBatch, where_M: Tensor) -> Tensor:
        """The output [M, D] to guess the tokens at `where_M` from. `hidden_TD` is the input of the last block: it answers,
        and with the places added it asks, and the answer asks once more."""
        limit = self.positions.num_embeddings
        if not torch.compiler.is_compiling() and batch.layout.longest > limit:
            longest = batch.layout.longest
            raise ValueError(f"sequence of {longest} tokens, but this mask decoder has {limit} positions; shorten it")
        places_M = batch.layout.position_ids.index_select(0, where_M)
        query_MD = hidden_TD.index_select(0, where_M) + self.positions(places_M)
        out: Tensor = encoder.norm(encoder.refine(query_MD, where_M, hidden_TD, batch, REFINEMENTS))
        return out
