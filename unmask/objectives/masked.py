"""MLM: some tokens are hidden, and the encoder says what they were (BERT section 3.1).

Legend: T tokens, B sequences, M targets, D hidden_size, V vocab_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig, MaskedTokens
from unmask.nn.cost import attention_flops, block_matrices, token_head_flops
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead
from unmask.objectives.base import Losses, Objective, Sum
from unmask.objectives.choose import Keys, Numbers, choose, run_starts
from unmask.randomness import keys, uniform
from unmask.text.vocabulary import Vocabulary

SALT = 0x4D4C4D  # keeps these draws apart from every other use of (seed, example)
FATE, NOISE = 3, 4  # what a target's draw is for
REFINEMENTS = 2  # times the enhanced mask decoder applies the last block (DeBERTa section 3.2 and released code)


class MaskedTokenObjective(Objective):
    """Masks in `prepare`, predicts at the masked places only: no logits are made elsewhere.

    Raises UnmaskError where the tokenizer has no [MASK].
    """

    def __init__(self, config: EncoderConfig, goal: MaskedTokens, vocabulary: Vocabulary):
        super().__init__()
        self.head = EnhancedMaskDecoder(config) if goal.enhanced_decoder else TokenHead(config)
        self.goal, self.vocabulary = goal, vocabulary
        self._mask = vocabulary.require("mask")
        self._special, self._ordinary = vocabulary.is_special(), vocabulary.ordinary_ids()

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
        keys_B = keys(SALT, seed, batch.examples.numpy())
        rate = self.goal.rate_at(batch.progress)
        where = np.flatnonzero(choose(~self._special[ids], words, rows, places, keys_B, rate, self.goal.unit))
        shown = self._corrupt(ids[where], where, rows, places, keys_B)
        input_ids = batch.input_ids.clone()
        input_ids[torch.from_numpy(where)] = torch.from_numpy(shown)
        targets = Targets(torch.from_numpy(where), torch.from_numpy(ids[where].astype(np.int64)))
        return batch.with_(input_ids=input_ids, labels={**batch.labels, "mlm": targets})

    def _corrupt(self, value_M: Numbers, where_M: Numbers, rows_T: Numbers, places_T: Numbers, keys_B: Keys) -> Numbers:
        """What is shown instead of each target: [MASK], a random ordinary token, or the token itself.

        Decided for each token, but for each span as a whole where the unit is one: neighbouring spans count as one
        (SpanBERT section 3.1 and its released code).
        """
        decided_M = _span_starts(where_M, rows_T) if self.goal.unit == "span" else where_M
        fate_M = uniform(keys(keys_B[rows_T[decided_M]], places_T[decided_M], FATE))
        draw_M = uniform(keys(keys_B[rows_T[where_M]], places_T[where_M], NOISE))
        noise_M = self._ordinary[(draw_M * len(self._ordinary)).astype(np.int64)]
        random_M = (fate_M >= self.goal.replace_mask) & (fate_M < self.goal.replace_mask + self.goal.replace_random)
        shown_M = np.where(fate_M < self.goal.replace_mask, self._mask, value_M)
        return np.where(random_M, noise_M, shown_M).astype(np.int64)

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {"mlm": len(batch.labels["mlm"].where)}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        work = token_head_flops(config, len(batch.labels["mlm"].where))
        if self.goal.enhanced_decoder:
            lengths, window = batch.layout.lengths, config.window_of(config.num_hidden_layers - 1)
            block = 2.0 * sum(lengths) * block_matrices(config) + attention_flops(config, lengths, window)
            work += REFINEMENTS * block
        return work

    def logits(
        self,
        encoder: Encoder,
        layers: Sequence[Tensor],
        batch: PackedBatch,
        where_M: Tensor,
        table_VE: Tensor | None = None,
    ) -> Tensor:
        """[M, V] for the tokens at `where_M`; `layers` is what `encoder.layers(batch)` returns.

        `table_VE` is the matrix of token vectors, where the encoder has none of its own (a tied generator).
        """
        hidden_TD = layers[-1]
        if isinstance(self.head, EnhancedMaskDecoder):
            hidden_TD = self.head.refine(encoder, layers[-2], batch)
        out: Tensor = self.head(hidden_TD[where_M], encoder.token_table() if table_VE is None else table_VE)
        return out

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        where, value = batch.labels["mlm"]
        logits = self.logits(encoder, layers, batch, where)
        correct = None if self.training else (logits.argmax(-1) == value).sum()
        return {"mlm": Sum(F.cross_entropy(logits.float(), value, reduction="sum"), len(value), correct)}


class EnhancedMaskDecoder(TokenHead):
    """A TokenHead with a table of absolute places, which come in only where a token is guessed (DeBERTa section 3.2)."""

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def refine(self, encoder: Encoder, hidden_TD: Tensor, batch: PackedBatch) -> Tensor:
        """The output [T, D] to guess from. `hidden_TD` is the input of the last block: it answers, and with the places
        added it asks, and the answer asks once more."""
        longest, limit = batch.layout.longest, self.positions.num_embeddings
        if longest > limit:
            raise ValueError(f"sequence of {longest} tokens, but this mask decoder has {limit} positions; shorten it")
        query_TD = hidden_TD + self.positions(batch.layout.position_ids)
        for _ in range(REFINEMENTS):
            query_TD = encoder.refine(query_TD, hidden_TD, batch)
        out: Tensor = encoder.norm(query_TD)
        return out


def _span_starts(where_M: Numbers, rows_T: Numbers) -> Numbers:
    """[M] the first token of each target's span."""
    starts_M = run_starts(where_M, rows_T[where_M])
    return where_M[starts_M][np.cumsum(starts_M) - 1]
