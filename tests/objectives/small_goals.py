"""Tiny models with their objectives, one for each kind of pre-training, and batches for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from made_up import VOCABULARY

from unmask.batch import PackedBatch, Targets
from unmask.config import Disentangled, EncoderConfig, MaskedTokens, SentenceOrder, SentencePair, SpanBoundary
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.base import Joint, Objective, combine
from unmask.objectives.boundary import SpanBoundaryObjective
from unmask.objectives.masked import MaskedTokenObjective
from unmask.objectives.pair import SentencePairObjective

CONFIG = EncoderConfig(
    vocab_size=VOCABULARY.size,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
PLACES = Disentangled(position_buckets=8, max_relative_positions=32)
GOALS = {
    "bert": (CONFIG, (MaskedTokens(), SentencePair())),
    "albert": (replace(CONFIG, embedding_size=16), (MaskedTokens(unit="ngram"), SentenceOrder())),
    "spanbert": (CONFIG, (MaskedTokens(unit="span"), SpanBoundary(position_size=8))),
    "deberta": (replace(CONFIG, positions=PLACES), (MaskedTokens(unit="word", enhanced_decoder=True),)),
}


def objective_of(config: EncoderConfig, goal: object) -> Objective:
    match goal:
        case MaskedTokens():
            return MaskedTokenObjective(config, goal, VOCABULARY)
        case SpanBoundary():
            return SpanBoundaryObjective(config, goal)
        case SentencePair() | SentenceOrder():
            return SentencePairObjective(config, goal.kind)
    raise AssertionError(goal)


def model(name: str = "bert", seed: int = 0, std: float = 0.02) -> tuple[Encoder, Joint]:
    """New weights of deviation `std`."""
    config, goals = GOALS[name]
    encoder, objective = Encoder(config), Joint({goal.kind: objective_of(config, goal) for goal in goals})
    draw = torch.Generator().manual_seed(seed)
    for module in (encoder, objective):
        initialise(module, replace(config, initializer_range=std), draw)
    return encoder, objective


def rows_of(count: int, seed: int = 0, low: int = 4, high: int = 60) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[2, *rng.integers(5, 64, rng.integers(low, high)).tolist(), 3] for _ in range(count)]


def prepared(objective: Joint, rows: list[list[int]], first: int = 0) -> PackedBatch:
    """Words of one and two tokens; the labels of the pairs alternate."""
    labels = torch.tensor([i % 2 for i in range(first, first + len(rows))])
    batch = PackedBatch.pack(rows)
    batch = batch.with_(
        examples=torch.arange(first, first + len(rows)),
        word_starts=batch.layout.position_ids % 3 != 2,
        labels={"pair": Targets(torch.arange(len(rows)), labels)},
    )
    return objective.prepare(batch, 7)


def gradient(encoder: Encoder, objective: Joint, batches: list[PackedBatch]) -> torch.Tensor:
    """Of the step that these micro-batches make, all parameters in one vector."""
    for module in (encoder, objective):
        module.zero_grad()
    counts: dict[str, int] = {}
    for batch in batches:
        for name, count in objective.counts(batch).items():
            counts[name] = counts.get(name, 0) + count
    for batch in batches:
        combine(objective(encoder, batch), counts).backward()
    parameters = [p for m in (encoder, objective) for p in m.parameters()]
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
