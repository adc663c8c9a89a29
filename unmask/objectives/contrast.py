"""Texts to vectors that are near where texts belong together: a bi-encoder, trained with InfoNCE.

A batch has these labels, each at the first token of its sequences:

    query     of queries: the number of their unit
    document  of documents: the number of their unit
    positive  of documents: whether they answer the query of their unit, which one of each unit does
    text      of all sequences: a number equal for equal texts
    known     of queries: the text of each document known to answer them, in the batch or not
    teacher   of documents, if there is a teacher: the score it gives query and document

Every document of the batch that does not answer a query is a negative of it, those of other units too. Gradient caching (Gao
et al. 2021) lets such a batch be larger than memory: its vectors are made chunk by chunk without keeping how, and while the
loss's gradient goes back, each chunk is computed once more with the same dropout. Parts of an accumulated step, in
contrast, never are each other's negatives.

Legend: T tokens, B sequences, Q queries, C documents, D hidden_size, K known answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unmask.batch import Layout, PackedBatch
from unmask.config import Contrast, EncoderConfig
from unmask.errors import UnmaskError
from unmask.nn.encoder import Encoder
from unmask.nn.pooling import Mode, Pooling, pool
from unmask.objectives.base import Losses, Objective, Sum

MODES: Mapping[str, Mode] = {"mean": "mean", "cls": "cls", "weighted": "weightedmean"}
BESIDE_TEACHER = 0.2  # what InfoNCE counts beside the divergence from a teacher: alpha of E5 (Wang et al. 2022)


class ContrastObjective(Objective):
    """Has no parameters. It passes batches through the encoder itself, in `begin`, for the sake of gradient caching.

    Raises UnmaskError for `dimensions` that are not below the model's own.
    """

    def __init__(self, config: EncoderConfig, task: Contrast):
        super().__init__()
        self.task, self.pooling = task, Pooling((MODES[task.pooling],))
        self.dimensions = (*sorted({*task.dimensions}), config.hidden_size)
        if not all(0 < size < config.hidden_size for size in task.dimensions):
            raise UnmaskError(
                f"dimensions are {', '.join(map(str, task.dimensions))}, but the vectors have {config.hidden_size}",
                do="give dimensions below that; the full width is trained always",
            )

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        queries = len(batch.labels["query"].where)
        return {name: queries for name in ("contrast", "distill")[: 1 + ("teacher" in batch.labels)]}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        products = len(batch.labels["query"].where) * len(batch.labels["document"].where)
        return 2.0 * products * sum(self.dimensions)

    def depth(self, config: EncoderConfig) -> int:
        return 0

    def reads(self, batch: PackedBatch) -> Tensor | None:
        return batch.starts[:-1].long() if self.task.pooling == "cls" else None

    def begin(self, encoder: Encoder, batch: PackedBatch) -> tuple[PackedBatch, Losses]:
        return batch, self._losses(self.vectors(encoder, batch), batch)

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        return {}

    def predict(self, encoder: Encoder, batch: PackedBatch) -> dict[str, Tensor]:
        """`vectors` [B, D] of length 1."""
        return {"vectors": F.normalize(self.vectors(encoder, batch), dim=-1)}

    def judge(self, encoder: Encoder, batch: PackedBatch) -> tuple[Losses, dict[str, Tensor]]:
        vectors_BD = self.vectors(encoder, batch)
        return self._losses(vectors_BD, batch), {"vectors": F.normalize(vectors_BD, dim=-1)}

    def vectors(self, encoder: Encoder, batch: PackedBatch) -> Tensor:
        """[B, D] in fp32, as pooled. Not more than `chunk_tokens` of the batch, or one sequence, are in memory at a time."""
        parts = _chunks(batch, self.task.chunk_tokens)
        if len(parts) == 1:
            return self._pooled(encoder, batch, batch.input_ids)
        made = [
            # The ids are an argument because it looks at tensors alone to know whose random state to keep.
            checkpoint(partial(self._pooled, encoder, part), part.input_ids, use_reentrant=False)
            for part in parts
        ]
        return torch.cat(made)

    def _pooled(self, encoder: Encoder, batch: PackedBatch, ids_T: Tensor) -> Tensor:
        hidden_TD = encoder.layers(batch.with_(input_ids=ids_T), read_M=self.reads(batch))[-1]
        return pool(hidden_TD, batch.starts.diff().long(), self.pooling)

    def _losses(self, vectors_BD: Tensor, batch: PackedBatch) -> Losses:
        with torch.autocast(vectors_BD.device.type, enabled=False):  # half the bits would merge near cosines
            return self._sums(vectors_BD, batch)

    def _sums(self, vectors_BD: Tensor, batch: PackedBatch) -> Losses:
        asked = _Asked.of(batch)
        contrast = divergence = vectors_BD.new_zeros(())
        for size in self.dimensions:  # Matryoshka: each is to serve on its own (Kusupati et al. 2022)
            unit_BD = F.normalize(vectors_BD[:, :size], dim=-1)
            score_QC = unit_BD[asked.query_Q] @ unit_BD[asked.document_C].T / self.task.temperature
            among_QC = score_QC.masked_fill(~asked.allowed_QC, -torch.inf)
            contrast = contrast + F.cross_entropy(among_QC, asked.right_Q, reduction="sum")
            if asked.teacher_C is not None:
                divergence = divergence + _divergence(asked.teacher_C, score_QC, asked.own_QC)
        correct = None if self.training else (among_QC.argmax(1) == asked.right_Q).sum()
        queries, sizes = len(asked.query_Q), len(self.dimensions)
        if asked.teacher_C is None:
            return {"contrast": Sum(contrast / sizes, queries, correct)}
        return {
            "contrast": Sum(contrast / sizes, queries, correct, weight=BESIDE_TEACHER),
            "distill": Sum(divergence / sizes, queries),
        }


@dataclass(frozen=True, eq=False)
class _Asked:
    """Which sequence of a batch is what to which."""

    query_Q: Tensor
    document_C: Tensor
    own_QC: Tensor  # of the query's own unit
    allowed_QC: Tensor  # the unit's positive, and whatever is not known to answer the query
    right_Q: Tensor  # the unit's positive, as a column
    teacher_C: Tensor | None

    @classmethod
    def of(cls, batch: PackedBatch) -> _Asked:
        labels, rows_T = batch.labels, batch.layout.rows
        query_Q, document_C = rows_T[labels["query"].where], rows_T[labels["document"].where]
        text_B = labels["text"].value
        own_QC = labels["query"].value[:, None] == labels["document"].value
        positive_QC = own_QC & labels["positive"].value.bool()
        place_B = torch.zeros_like(text_B).index_copy(0, query_Q, torch.arange(len(query_Q), device=query_Q.device))
        known_KC = labels["known"].value[:, None] == text_B[document_C]
        known_QC = torch.zeros_like(own_QC, dtype=torch.int32).index_add(
            0, place_B[rows_T[labels["known"].where]], known_KC.int()
        )
        same_QC = text_B[query_Q][:, None] == text_B[document_C]
        return cls(
            query_Q,
            document_C,
            own_QC,
            positive_QC | ~((known_QC > 0) | same_QC),
            positive_QC.int().argmax(1),
            labels["teacher"].value.float() if "teacher" in labels else None,
        )


def _divergence(teacher_C: Tensor, score_QC: Tensor, own_QC: Tensor) -> Tensor:
    """Kullback and Leibler's divergence of our softmax over each unit's documents from the teacher's, summed."""
    wanted_QC = teacher_C.expand_as(score_QC).masked_fill(~own_QC, -torch.inf).log_softmax(1)
    given_QC = score_QC.masked_fill(~own_QC, -torch.inf).log_softmax(1)
    return (wanted_QC.exp() * torch.where(own_QC, wanted_QC - given_QC, 0.0)).sum()


def _chunks(batch: PackedBatch, tokens: int) -> list[PackedBatch]:
    """Consecutive sequences of at most `tokens` tokens together, or one; 0: all of them. Without labels."""
    lengths = batch.layout.lengths
    if not tokens or sum(lengths) <= tokens:
        return [batch]
    borders, spent = [0], 0
    for row, length in enumerate(lengths):
        if spent and spent + length > tokens:
            borders.append(row)
            spent = 0
        spent += length
    ends = [*borders[1:], len(lengths)]
    return [_rows(batch, first, end) for first, end in zip(borders, ends, strict=True)]


def _rows(batch: PackedBatch, first: int, end: int) -> PackedBatch:
    layout = Layout.of(torch.tensor([0, *batch.layout.lengths[first:end]]).cumsum(0).int())
    begin = sum(batch.layout.lengths[:first])
    tokens = slice(begin, begin + len(layout.rows))
    layout = layout.to(batch.input_ids.device)
    types = None if batch.token_type_ids is None else batch.token_type_ids[tokens]
    part = PackedBatch(batch.input_ids[tokens], layout.starts, types)
    part.__dict__["layout"] = layout  # made from lengths on the CPU, where a batch on a GPU would wait for its own
    return part
