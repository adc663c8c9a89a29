"""A small network of words, and sequences of characters for it."""

from __future__ import annotations

import numpy as np
import torch
from small_models import randomise

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, Recurrent
from unmask.nn.characters import ALONE, BEGINS, CONTINUES
from unmask.nn.encoder import Encoder

ELMO = EncoderConfig(
    layer=Recurrent(
        cell_size=20, character_size=6, filters=((1, 5), (2, 4), (5, 7)), highway_layers=2, max_characters=8
    ),
    layer_mix=True,
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=1,
    hidden_act="relu",
    max_position_embeddings=64,
    type_vocab_size=0,
    embedding_norm=False,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
KINDS = np.array([ALONE] * 5 + [BEGINS] * 25 + [CONTINUES] * 30, np.int8)  # by id
CLS, SEP = 2, 3


def elmo(seed: int = 1) -> Encoder:
    """With every parameter random."""
    encoder = Encoder(ELMO)
    assert encoder.words is not None
    encoder.words.tell(KINDS)
    randomise(encoder, seed)
    return encoder.eval()


def sentence(words: int, draw: np.random.Generator) -> list[list[int]]:
    """Words of one to six characters between [CLS] and [SEP]."""
    inner = [
        [int(draw.integers(5, 30)), *draw.integers(30, 60, int(draw.integers(0, 6))).tolist()] for _ in range(words)
    ]
    return [[CLS], *inner, [SEP]]


def sentences(*words: int, seed: int = 0) -> list[list[list[int]]]:
    draw = np.random.default_rng(seed)
    return [sentence(count, draw) for count in words]


def packed(texts: list[list[list[int]]]) -> PackedBatch:
    """Sequences of words end to end, with names for the loader's sake."""
    batch = PackedBatch.pack([[id for word in text for id in word] for text in texts])
    return batch.with_(examples=torch.arange(len(texts)))
