"""Every objective on a small backbone, tokenizers of several shapes, and text for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from unmask.batch import PackedBatch, Targets
from unmask.config import (
    Disentangled,
    EncoderConfig,
    Infill,
    MaskedTokens,
    NextTokens,
    Objectives,
    RelativeBias,
    ReplacedTokens,
    Rope,
    SentenceOrder,
    SentencePair,
    SpanBoundary,
)
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.base import Joint
from unmask.objectives.build import build_objective
from unmask.objectives.replaced import ReplacedTokenObjective
from unmask.text.vocabulary import Vocabulary

SIZE = 60
BERT = EncoderConfig(
    vocab_size=SIZE,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
MODERN = replace(
    BERT,
    num_hidden_layers=3,
    positions=Rope(),
    type_vocab_size=0,
    gated=True,
    local_attention=8,
    global_attn_every_n_layers=3,
    norm_first=True,
    first_norm=False,
    norm_bias=False,
    linear_bias=False,
)
DEBERTA = replace(BERT, positions=Disentangled(position_buckets=8, max_relative_positions=32), type_vocab_size=0)
ALBERT = replace(BERT, embedding_size=16, num_hidden_groups=1)
GPT = replace(
    BERT, causal=True, type_vocab_size=0, norm_first=True, embedding_norm=False, head_transform=False, head_bias=False
)
T5 = replace(
    BERT,
    positions=RelativeBias(),
    type_vocab_size=0,
    hidden_act="relu",
    norm="rms",
    norm_first=True,
    embedding_norm=False,
    linear_bias=False,
    scale_attention=False,
    initializer="t5",
    head_transform=False,
    head_bias=False,
)
Case = tuple[EncoderConfig, tuple[Objectives, ...]]


def replaced(sharing: str, **changes: object) -> ReplacedTokens:
    return ReplacedTokens(**{"sharing": sharing, "generator_width": 0.5, **changes})


CASES: dict[str, Case] = {
    "mlm on BERT": (BERT, (MaskedTokens(),)),
    "whole words and NSP on BERT": (BERT, (MaskedTokens(unit="word"), SentencePair())),
    "n-grams and SOP on ALBERT": (ALBERT, (MaskedTokens(unit="ngram"), SentenceOrder())),
    "spans and SBO on BERT": (replace(BERT, type_vocab_size=0), (SpanBoundary(), MaskedTokens(unit="span"))),
    "mlm on ModernBERT": (MODERN, (MaskedTokens(mask_rate=0.3),)),
    "enhanced decoder on DeBERTa": (DEBERTA, (MaskedTokens(enhanced_decoder=True),)),
    "enhanced decoder on BERT": (BERT, (MaskedTokens(enhanced_decoder=True),)),
    "rtd on BERT": (BERT, (replaced("none"),)),
    "tied rtd on ALBERT": (replace(ALBERT, num_hidden_groups=0), (replaced("tied", generator_width=1.0),)),
    "disentangled rtd on DeBERTa": (
        DEBERTA,
        (replaced("gradient_disentangled", generator_width=1.0, generator_depth=0.5),),
    ),
    "disentangled rtd on ModernBERT": (MODERN, (replaced("gradient_disentangled", add_first=True),)),
    "rtd and SOP on BERT": (BERT, (replaced("tied"), SentenceOrder())),
    "mlm and SOP on ModernBERT": (MODERN, (MaskedTokens(), SentenceOrder())),
    "causal on GPT": (GPT, (NextTokens(),)),
    "infill on T5": (T5, (Infill(),)),
    "infill on BERT": (BERT, (Infill(),)),
}


def vocabulary(pad: int, unk: int, cls: int, sep: int, mask: int, sentinels: tuple[int, ...]) -> Vocabulary:
    special = tuple(sorted({pad, unk, cls, sep, mask, *sentinels}))
    return Vocabulary(
        size=SIZE,
        pad_token_id=pad,
        unk_token_id=unk,
        cls_token_id=cls,
        sep_token_id=sep,
        mask_token_id=mask,
        special_ids=special,
        sentinel_ids=sentinels,
    )


VOCABULARIES = {
    "special ids first": vocabulary(0, 1, 2, 3, 4, (59, 58, 57, 56)),
    "special ids scattered": vocabulary(31, 7, 59, 58, 1, (20, 40, 41, 2)),  # id 0 is a word
    "padding ends the text": vocabulary(5, 4, 6, 5, 9, (50, 51, 52, 53)),  # one id in two roles
}
USUAL = VOCABULARIES["special ids first"]


@dataclass(frozen=True)
class Text:
    """Framed sequences: one or two segments each, words of several tokens, unknown tokens among them."""

    rows: Sequence[Sequence[int]]
    types: Sequence[Sequence[int]]
    words: Sequence[Sequence[bool]]

    def batch(self, chosen: Sequence[int] | None = None) -> PackedBatch:
        """Some of the sequences, numbered as in the whole; their pair labels alternate."""
        chosen = list(range(len(self.rows))) if chosen is None else chosen
        packed = PackedBatch.pack([self.rows[i] for i in chosen], [self.types[i] for i in chosen])
        label = Targets(torch.arange(len(chosen)), torch.tensor([i % 2 for i in chosen]))
        words = torch.tensor([flag for i in chosen for flag in self.words[i]])
        return packed.with_(examples=torch.tensor(chosen), word_starts=words, labels={"pair": label})


def text(lengths: Sequence[int], seed: int, ids: Vocabulary, *, pairs: bool = False, longest_word: int = 3) -> Text:
    """`longest_word` 1 is English by whole words, 3 by word pieces, 6 Chinese characters in words of its segmenter."""
    rng = np.random.default_rng(seed)
    ordinary, rows, types, words = ids.ordinary_ids(), [], [], []
    for n in lengths:
        segments = [n - n // 2, n // 2] if pairs else [n]
        row, kind, begins = [ids.cls_token_id], [0], [True]
        for number, size in enumerate(segments):
            content = np.where(rng.random(size) < 0.1, ids.unk_token_id, rng.choice(ordinary, size))
            row += [*content.tolist(), ids.sep_token_id]
            kind += [number] * (size + 1)
            begins += [*(rng.integers(0, longest_word, size) == 0).tolist(), True]
        rows, types, words = [*rows, row], [*types, kind], [*words, begins]
    return Text(rows, types, words)


def model(case: str, ids: Vocabulary = USUAL, deviation: float = 0.02) -> tuple[Encoder, Joint]:
    config, goals = CASES[case]
    encoder, objective = Encoder(config), build_objective(config, goals, ids)
    draw = torch.Generator().manual_seed(0)
    for module in (encoder, objective):
        initialise(module, replace(config, initializer_range=deviation), draw)
    for part in objective.members().values():
        if isinstance(part, ReplacedTokenObjective):
            part.start(encoder)
    return encoder, objective
