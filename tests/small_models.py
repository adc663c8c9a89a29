"""Small models in which every tensor is random, and batches for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from made_up import vocabulary
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import (
    Absolute,
    Disentangled,
    EncoderConfig,
    Infill,
    MaskedTokens,
    NextTokens,
    Objectives,
    RelativeBias,
    Rope,
    SentenceOrder,
    SentencePair,
)
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.build import build_objective
from unmask.text.vocabulary import Vocabulary

SMALL = EncoderConfig(
    vocab_size=97,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=80,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
_LONG = replace(SMALL, max_position_embeddings=64)
_NEW = replace(_LONG, type_vocab_size=0, norm_first=True, gated=True, linear_bias=False, layer_norm_eps=1e-5)

# One small network for each way in which published families differ.
VARIANTS = {
    "bert": _LONG,
    "roberta": replace(_LONG, positions=Absolute(after_padding=True), pad_token_id=1, type_vocab_size=1),
    "albert": replace(_LONG, num_hidden_layers=4, embedding_size=16, num_hidden_groups=2, hidden_act="gelu_tanh"),
    "electra": replace(_LONG, embedding_size=16),
    "deberta-v1": replace(
        _LONG,
        type_vocab_size=0,
        key_bias=False,
        layer_norm_eps=1e-7,
        positions=Disentangled(position_buckets=0, max_relative_positions=20, normed=False, shared_projections=False),
    ),
    "deberta-v2": replace(
        _LONG,
        type_vocab_size=0,
        conv_kernel_size=3,
        positions=Disentangled(position_buckets=8, max_relative_positions=64, shared_projections=False),
    ),
    "deberta-v3": replace(
        _LONG, type_vocab_size=0, positions=Disentangled(position_buckets=8, max_relative_positions=64)
    ),
    "modernbert": replace(
        _NEW,
        num_hidden_layers=4,
        positions=Rope(theta=160_000.0, local_theta=10_000.0),
        local_attention=8,
        global_attn_every_n_layers=3,
        first_norm=False,
        norm_bias=False,
        initializer="residual",
    ),
    "gpt2": replace(
        _LONG,
        type_vocab_size=0,
        causal=True,
        norm_first=True,
        embedding_norm=False,
        head_transform=False,
        head_bias=False,
        hidden_act="gelu_tanh",
        initializer="residual",
    ),
    "t5": replace(
        _NEW,
        gated=False,
        hidden_act="relu",
        head_size=10,
        positions=RelativeBias(num_buckets=8, max_distance=20),
        scale_attention=False,
        initializer="t5",
        norm="rms",
        embedding_norm=False,
        head_transform=False,
        head_bias=False,
    ),
    "neobert": replace(
        _NEW,
        hidden_act="silu",
        positions=Rope(),
        norm="rms",
        embedding_norm=False,
        head_transform=False,
        tie_word_embeddings=False,
    ),
}
GOALS: dict[str, Objectives] = {
    goal.kind: goal for goal in (MaskedTokens(), SentencePair(), SentenceOrder(), NextTokens(), Infill())
}


def goals_of(name: str) -> tuple[Objectives, ...]:
    """What the family of a variant is pre-trained with, as far as its own folders have heads for it."""
    kinds = {"bert": ("mlm", "nsp"), "albert": ("mlm", "sop"), "gpt2": ("causal",), "t5": ("infill",)}
    return tuple(GOALS[kind] for kind in kinds.get(name, ("mlm",)))


def vocabulary_of(config: EncoderConfig) -> Vocabulary:
    """One that every objective can work with: its last two ids are sentinels."""
    size = config.vocab_size
    return replace(vocabulary(size), special_ids=(0, 1, 2, 3, 4, size - 2, size - 1), sentinel_ids=(size - 1, size - 2))


def randomise(module: nn.Module, seed: int = 0) -> None:
    """Every parameter, biases and norms too: a fresh model's zeros and ones would hide a wrong row in a name table."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)


def our_model(config: EncoderConfig = SMALL, kinds: tuple[str, ...] = ("mlm", "nsp")) -> tuple[Encoder, Joint]:
    return our_network(config, [GOALS[kind] for kind in kinds])


def our_network(config: EncoderConfig, goals: Sequence[Objectives]) -> tuple[Encoder, Joint]:
    encoder, objective = Encoder(config), build_objective(config, goals, vocabulary_of(config))
    randomise(encoder, 1)
    randomise(objective, 2)
    return encoder.eval(), objective.eval()


def sequences(lengths: list[int], config: EncoderConfig = SMALL, seed: int = 0) -> PackedBatch:
    """Random ids; in each sequence a random tail is segment B."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(5, config.vocab_size, (n,), generator=generator).tolist() for n in lengths]
    cuts = [int(torch.randint(0, n + 1, (), generator=generator)) for n in lengths]
    types = [[int(place >= cut) for place in range(n)] for n, cut in zip(lengths, cuts, strict=True)]
    return PackedBatch.pack(ids, types if config.type_vocab_size > 1 else None)


def alone(batch: PackedBatch) -> list[PackedBatch]:
    """Each sequence of the batch as a batch of its own."""
    borders = list(zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True))
    ids, types = batch.input_ids, batch.token_type_ids
    return [PackedBatch.pack([ids[a:b].tolist()], None if types is None else [types[a:b].tolist()]) for a, b in borders]


def our_answers(encoder: Encoder, objective: Joint, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [T, D], MLM logits [T, V], NSP logits [B, 2]."""
    with torch.no_grad():
        hidden = encoder(batch)
        mlm = objective.parts["mlm"].head(hidden, encoder.token_table()).dense()
        nsp = objective.parts["nsp"].head(hidden[batch.starts[:-1].long()])
    return hidden, mlm, nsp


def padded(batch: PackedBatch, pad_token_id: int = 0) -> dict[str, Tensor]:
    """The batch as transformers takes it."""
    layout = batch.layout
    valid = layout.valid()
    given = {
        "input_ids": layout.pad(batch.input_ids).masked_fill(~valid, pad_token_id),
        "attention_mask": valid.long(),
    }
    types = batch.token_type_ids
    return given if types is None else {**given, "token_type_ids": layout.pad(types)}
