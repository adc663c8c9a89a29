"""MLM: some tokens are hidden, and the encoder says what they were (BERT section 3.1)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig, MaskedTokens
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead
from unmask.objectives.base import Losses, Objective, Sum
from unmask.objectives.choose import choose_tokens, choose_words
from unmask.randomness import keys, uniform
from unmask.text.vocabulary import Vocabulary

SALT = 0x4D4C4D  # keeps these draws apart from every other use of (seed, example)


class MaskedTokenObjective(Objective):
    """Masks in `prepare`, predicts at the masked places only: no logits are made elsewhere."""

    def __init__(self, config: EncoderConfig, goal: MaskedTokens, vocabulary: Vocabulary):
        super().__init__()
        self.head = TokenHead(config)
        self.goal, self.vocabulary = goal, vocabulary
        self._special, self._ordinary = vocabulary.is_special(), vocabulary.ordinary_ids()

    def know_frequencies(self, counts_V: np.ndarray) -> None:
        """Sets the output bias to the log of the tokens' frequencies, so that the loss begins at the unigram entropy.

        BERT's bias begins at 0, and the embeddings spend the first steps on learning these frequencies.
        """
        share = (counts_V + 0.5) / (counts_V + 0.5).sum()
        with torch.no_grad():
            self.head.bias.copy_(torch.from_numpy(np.log(share)).float())

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        assert batch.examples is not None, "masks are drawn from the examples' numbers"
        ids = batch.input_ids.numpy()
        rows, places = batch.layout.rows.numpy(), batch.layout.position_ids.numpy()
        row_keys = keys(SALT, seed, batch.examples.numpy())
        candidates = ~self._special[ids]
        if self.goal.whole_word:
            assert batch.word_starts is not None, "whole-word masking needs word_starts"
            chosen = choose_words(candidates, batch.word_starts.numpy(), rows, places, row_keys, self.goal.mask_rate)
        else:
            chosen = choose_tokens(candidates, rows, places, row_keys, self.goal.mask_rate)
        where = np.flatnonzero(chosen)
        draw = keys(row_keys[rows[where]].view(np.int64), places[where])
        shown = self._corrupt(ids[where], draw)
        input_ids = batch.input_ids.clone()
        input_ids[torch.from_numpy(where)] = torch.from_numpy(shown)
        targets = Targets(torch.from_numpy(where), torch.from_numpy(ids[where].astype(np.int64)))
        return batch.with_(input_ids=input_ids, labels={**batch.labels, "mlm": targets})

    def _corrupt(self, value: np.ndarray, draw: np.ndarray) -> np.ndarray:
        """What is shown instead of each target: [MASK], a random ordinary token, or the token itself; decided per token."""
        fate = uniform(keys(draw.view(np.int64), 3))
        noise = self._ordinary[(uniform(keys(draw.view(np.int64), 4)) * len(self._ordinary)).astype(np.int64)]
        masked = np.where(fate < self.goal.replace_mask, self.vocabulary.mask_token_id, value)
        random = (fate >= self.goal.replace_mask) & (fate < self.goal.replace_mask + self.goal.replace_random)
        return np.where(random, noise, masked).astype(np.int64)

    def vocabulary_rows(self, batch: PackedBatch) -> int:
        return len(batch.labels["mlm"].where)

    def logits(self, encoder: Encoder, hidden_MD: Tensor) -> Tensor:
        """[M, V] for the hidden states given."""
        out: Tensor = self.head(hidden_MD, encoder.embeddings.tokens.weight)
        return out

    def loss(self, encoder: Encoder, hidden_TD: Tensor, batch: PackedBatch) -> Losses:
        where, value = batch.labels["mlm"]
        logits = self.logits(encoder, hidden_TD[where])
        correct = None if self.training else (logits.argmax(-1) == value).sum()
        return {"mlm": Sum(F.cross_entropy(logits.float(), value, reduction="sum"), len(value), correct)}
