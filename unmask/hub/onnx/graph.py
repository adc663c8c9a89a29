"""A network over padded batches, as the rest of the world feeds it, around ours over packed tokens.

Legend: B sequences, L longest, T = B × L places, D hidden_size, V vocab_size, M target tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.batch import Layout, PackedBatch
from unmask.errors import UnmaskError
from unmask.hub.files import LoadedModel, build_encoder
from unmask.hub.onnx.tasks import LOGITS, TASK_HEADS, PaddedTask, build_task_head, dense_batch, task_outputs
from unmask.hub.restore import fill_head
from unmask.hub.sentence_layout import MODULES, SentenceLayout
from unmask.nn.encoder import Encoder
from unmask.nn.heads import PairHead, ReplacedHead, TokenHead
from unmask.objectives.infill import InfillHead
from unmask.objectives.masked import EnhancedMaskDecoder

HIDDEN, SENTENCE = "last_hidden_state", "sentence_embedding"
HEADS = ("mlm", "causal", "rtd", "nsp", "sop", "infill", *TASK_HEADS)
DECODER_INPUTS = ("input_ids", "encoder_hidden_states", "encoder_attention_mask")  # as Optimum names them


@dataclass(frozen=True)
class Graph:
    """One file to write: the network in it, and what its inputs and outputs are called."""

    file: str
    network: nn.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def build_graphs(loaded: LoadedModel, head: str, sentences: SentenceLayout | None) -> list[Graph]:
    """The graphs of a model: its encoder with the head asked for ("none": hidden states alone); two for an encoder–decoder;
    of a task's head its answers alone.

    `sentences` adds a text's vector as a sentence-transformers folder wants it made. Raises UnmaskError for a head that the
    folder does not have.
    """
    encoder = build_encoder(loaded).requires_grad_(False)
    inputs = ("input_ids", "attention_mask", *["token_type_ids"] * (loaded.config.type_vocab_size > 1))
    if head == "infill":
        decoder = InfillHead(loaded.config, loaded.weights().decoder_layers)
        _fill(decoder, loaded, head)
        return [
            Graph("encoder_model.onnx", PaddedEncoder(encoder, None, None), inputs, (HIDDEN,)),
            Graph("decoder_model.onnx", PaddedDecoder(encoder, decoder), DECODER_INPUTS, (LOGITS,)),
        ]
    if head in TASK_HEADS:
        network = PaddedTask(encoder, build_task_head(loaded, head), head)
        return [Graph("model.onnx", network, inputs, task_outputs(head))]
    answer = None if head == "none" else _build_head(loaded, head)
    outputs = (HIDDEN, *[LOGITS] * (answer is not None), *[SENTENCE] * (sentences is not None))
    return [Graph("model.onnx", PaddedEncoder(encoder, answer, sentences), inputs, outputs)]


class PaddedEncoder(nn.Module):
    """Ids and mask [B, L] to hidden states [B, L, D], a head's logits, and a text's vector [B, D].

    Padding stands behind the text (the mask's zeros), and places are counted from the first column.
    """

    def __init__(self, encoder: Encoder, head: nn.Module | None, sentences: SentenceLayout | None):
        super().__init__()
        self.encoder, self.head, self.sentences = encoder, head, sentences

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        found = self.answers(dense_batch(input_ids, attention_mask, token_type_ids))
        return tuple(x.unflatten(0, input_ids.shape) if of_tokens else x for x, of_tokens in found)

    def answers(self, batch: PackedBatch) -> list[tuple[Tensor, bool]]:
        """What comes out for a batch, dense or not, in the order of the outputs: [T, …] and True, or [B, …] and False."""
        layers = self.encoder.layers(batch)
        found = [(layers[-1], True)]
        if self.head is not None:
            found.append((_answer(self.encoder, self.head, layers, batch), not isinstance(self.head, PairHead)))
        if self.sentences is not None:
            found.append((_sentence_vector(layers[-1], batch.layout, self.sentences), False))
        return found


class PaddedDecoder(nn.Module):
    """Target ids [B, M] and the encoder's states [B, L, D] to logits [B, M, V]; each place sees those before it."""

    def __init__(self, encoder: Encoder, head: InfillHead):
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor) -> Tensor:
        source = dense_batch(encoder_attention_mask, encoder_attention_mask, None)  # its ids are never looked at
        target = dense_batch(input_ids, torch.ones_like(input_ids), None)
        logits = self.head(self.encoder, encoder_hidden_states.flatten(0, 1), source.with_(decoder=target)).dense()
        out: Tensor = logits.unflatten(0, input_ids.shape)
        return out


def sentences_of(layout: SentenceLayout, folder: Path) -> SentenceLayout | None:
    """The layout where the graph can make its vectors: one mode, mean or cls, over all tokens. None elsewhere."""
    computed = layout.pooling in (("mean",), ("cls",)) and layout.include_prompt
    return layout if computed and (folder / MODULES).is_file() else None


def _answer(encoder: Encoder, head: nn.Module, layers: list[Tensor], batch: PackedBatch) -> Tensor:
    """[T, V] or, of RTD, [T]; of a pair [B, 2]."""
    hidden_TD, first_B = layers[-1], batch.starts[:-1].long()
    match head:
        case EnhancedMaskDecoder():
            everywhere = torch.arange(len(batch.input_ids))
            return head(head.refine(encoder, layers[-2], batch, everywhere), encoder.token_table()).dense()
        case TokenHead():
            return head(hidden_TD, encoder.token_table()).dense()
        case ReplacedHead():
            of_each: Tensor = head(hidden_TD, first_B.index_select(0, batch.layout.rows))
            return of_each
    pair: Tensor = head(hidden_TD[first_B])
    return pair


def _sentence_vector(hidden_TD: Tensor, layout: Layout, sentences: SentenceLayout) -> Tensor:
    """[B, D]."""
    hidden_BLD = layout.pad(hidden_TD)
    mean = sentences.pooling == ("mean",)
    vector_BD = hidden_BLD.sum(1) / layout.valid().sum(1, keepdim=True) if mean else hidden_BLD[:, 0]
    return F.normalize(vector_BD, dim=-1) if sentences.normalize else vector_BD


def _build_head(loaded: LoadedModel, kind: str) -> nn.Module:
    state = loaded.heads.get(kind, {})
    head: nn.Module
    match kind:
        case "mlm":
            head = EnhancedMaskDecoder(loaded.config) if "positions.weight" in state else TokenHead(loaded.config)
        case "causal":
            head = TokenHead(loaded.config)
        case "rtd":
            head = ReplacedHead(loaded.config, add_first="norm.weight" in state)
        case _:
            head = PairHead(loaded.config)
    return _fill(head, loaded, kind)


def _fill(head: nn.Module, loaded: LoadedModel, kind: str) -> nn.Module:
    lacking = fill_head(head, loaded.heads[kind], kind)
    assert not lacking, "the loader gives whole heads only"
    return head.eval().requires_grad_(False)


def require_head(loaded: LoadedModel, head: str, where: Path) -> None:
    """UnmaskError for a head that the folder lacks, or that no graph is written of: span boundaries."""
    there = [kind for kind in HEADS if kind in loaded.heads]
    if head == "none" or head in there:
        return
    why = "has no graph" if head in loaded.heads else "is not in the folder"
    raise UnmaskError(
        f"the head {head!r} {why}",
        where=str(where),
        do=f"give one of: none (hidden states){''.join(', ' + kind for kind in there)}",
    )
