"""Small models in which every tensor is random, ours and transformers' with the same weights."""

from __future__ import annotations

import torch
from made_up import vocabulary
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, MaskedTokens, SentencePair
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.build import build_objective

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


def randomise(module: nn.Module, seed: int = 0) -> None:
    """Every parameter, biases and norms too: a fresh model's zeros and ones would hide a wrong row in a name table."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)


def our_model(config: EncoderConfig = SMALL, kinds: tuple[str, ...] = ("mlm", "nsp")) -> tuple[Encoder, Joint]:
    goals = [goal for goal in (MaskedTokens(), SentencePair()) if goal.kind in kinds]
    encoder, objective = Encoder(config), build_objective(config, goals, vocabulary(config.vocab_size))
    randomise(encoder, 1)
    randomise(objective, 2)
    return encoder.eval(), objective.eval()


def sequences(lengths: list[int], config: EncoderConfig = SMALL, seed: int = 0) -> PackedBatch:
    """Random ids; in each sequence a random tail is segment B."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(5, config.vocab_size, (n,), generator=generator).tolist() for n in lengths]
    cuts = [int(torch.randint(0, n + 1, (), generator=generator)) for n in lengths]
    types = [[int(place >= cut) for place in range(n)] for n, cut in zip(lengths, cuts, strict=True)]
    return PackedBatch.pack(ids, types)


def our_answers(encoder: Encoder, objective: Joint, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [T, D], MLM logits [T, V], NSP logits [B, 2]."""
    with torch.no_grad():
        hidden = encoder(batch)
        mlm = objective.parts["mlm"].head(hidden, encoder.embeddings.tokens.weight)
        nsp = objective.parts["nsp"].head(hidden[batch.starts[:-1].long()])
    return hidden, mlm, nsp


def padded(batch: PackedBatch) -> dict[str, Tensor]:
    """The batch as transformers takes it."""
    layout = batch.layout
    types = batch.token_type_ids
    return {
        "input_ids": layout.pad(batch.input_ids),
        "attention_mask": layout.valid().long(),
        "token_type_ids": layout.pad(torch.zeros_like(batch.input_ids) if types is None else types),
    }
