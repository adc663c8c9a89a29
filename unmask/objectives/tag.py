"""One tag for each word, read at its first piece.

Legend: T tokens, W words of the batch, M of them with a known tag, B sequences, S of them that have words, D hidden_size, K tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import Layout, PackedBatch, Targets
from unmask.config import EncoderConfig, Tagging
from unmask.config.tasks import HeadShape
from unmask.nn.bilstm import BiLSTM
from unmask.nn.crf import CRF, allowed_transitions
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TaskHead
from unmask.objectives.base import Losses, Objective, Sum

UNKNOWN = -100  # the value of a word without a tag: it is predicted, but not learned from


class TagObjective(Objective):
    """The head of the encoder's family gives each word's scores; `decoder` says what is made of them (see `Tagging`).

    A batch's label `tag` names each word's first token, and its tag or UNKNOWN. A word that stands in several windows of a
    long text has its label in one of them, so it is learned once. `tag_edges` [B, 2] says of each sequence that it begins and
    ends its text; only a CRF reads it, and takes a window as a piece of a path. Words of unknown tag are not in that path.
    """

    def __init__(self, config: EncoderConfig, task: Tagging, shape: HeadShape):
        super().__init__()
        self.lstm = BiLSTM(config.hidden_size) if task.decoder == "bilstm_crf" else None
        self.head = TaskHead(config, len(task.labels), shape)
        self.crf = None if task.decoder == "linear" else CRF(allowed_transitions(task.labels, task.scheme))

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        value_W = batch.labels["tag"].value
        known_M = (value_W != UNKNOWN).nonzero().squeeze(1)
        return batch.with_(labels={**batch.labels, "tagged": Targets(known_M, value_W[known_M])})

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {"tag": len(batch.labels["tagged"].where)}

    def reads(self, batch: PackedBatch) -> Tensor | None:
        return batch.labels["tag"].where

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        matrices = (matrix.numel() for matrix in self.parameters() if matrix.dim() == 2)
        return 2.0 * len(batch.labels["tag"].where) * sum(matrices)

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        """Cross entropy, or the CRF's negative log-likelihood; both a sum, counted in words."""
        known_M, value_M = batch.labels["tagged"]
        scores_MK = self._scores(layers[-1], batch).index_select(0, known_M)
        if self.crf is None:
            total = F.cross_entropy(scores_MK, value_M, reduction="sum")
        else:
            total = -self.crf.log_likelihood(scores_MK, value_M, *self._pieces(batch, known_M))
        correct = None if self.training else (self._best(scores_MK, batch, known_M) == value_M).sum()
        return {"tag": Sum(total, len(value_M), correct)}

    def outputs(self, layers: Sequence[Tensor], batch: PackedBatch) -> dict[str, Tensor]:
        """Of each word of `tag`: `scores` [W, K]; `tags` [W], the best tag, or with a CRF the tag on the best path; and
        `confidence` [W], that tag's probability, with a CRF over all paths."""
        scores_WK = self._scores(layers[-1], batch)
        every = torch.arange(len(scores_WK), device=scores_WK.device)
        tags_W = self._best(scores_WK, batch, every)
        if self.crf is None or not len(every):
            likely_WK = scores_WK.softmax(-1)
        else:
            likely_WK = self.crf.marginals(scores_WK, *self._pieces(batch, every))
        return {"scores": scores_WK, "tags": tags_W, "confidence": likely_WK.gather(1, tags_W[:, None]).squeeze(1)}

    def _scores(self, hidden_TD: Tensor, batch: PackedBatch) -> Tensor:
        """[W, K] in fp32 also under autocast: in half the bits many tags would be equally good."""
        where_W = batch.labels["tag"].where
        words_WD = hidden_TD.index_select(0, where_W).float()
        with torch.autocast(hidden_TD.device.type, enabled=False):
            if self.lstm is not None:
                words_WD = self.lstm(words_WD, _ragged(batch.layout.rows[where_W])[1])
            return self.head.answer(words_WD)

    def _best(self, scores_MK: Tensor, batch: PackedBatch, chosen_M: Tensor) -> Tensor:
        if self.crf is None or not len(chosen_M):
            return scores_MK.argmax(-1)
        return self.crf.best(scores_MK, *self._pieces(batch, chosen_M))

    def _pieces(self, batch: PackedBatch, chosen_M: Tensor) -> tuple[Layout, Tensor]:
        """What a CRF needs to know of some of the words: which stand in one sequence, and `edges_S2` of these sequences."""
        rows_S, layout = _ragged(batch.layout.rows[batch.labels["tag"].where[chosen_M]])
        return layout, batch.labels["tag_edges"].value[rows_S]


def _ragged(rows_W: Tensor) -> tuple[Tensor, Layout]:
    """The sequences that have words, given each word's in ascending order, and how the words lie in them. Waits for a GPU."""
    rows_S, sizes_S = rows_W.unique_consecutive(return_counts=True)
    starts = F.pad(sizes_S.cumsum(0), (1, 0)).int().cpu()
    return rows_S, Layout.of(starts).to(rows_W.device)
