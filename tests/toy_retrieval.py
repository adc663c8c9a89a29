"""A made-up language for retrieval: queries and documents on a topic use different words for it, among many others."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from unmask.config import EncoderConfig
from unmask.labelled.records import Place, RankedExample

TOPICS, FILLERS = 8, 16
WORDS = [f"{kind}{i}" for kind, count in (("q", TOPICS), ("d", TOPICS), ("w", FILLERS)) for i in range(count)]
WORDS += ["find:", "text:", "same", "a", "b", "c", "one", "two", "three"]
CONFIG = EncoderConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
NOWHERE = Place("made up", 0, 1)


class ToyTexts:
    """Words to ids, in BERT's frame; stands for an AlignedEncoder."""

    max_length = 64

    def texts(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Any:
        rows = [[2, *map(word_id, text.lower().split()), 3] for text in texts]
        types = [[0] * len(row) for row in rows]
        for row, kinds, pair in zip(rows, types, pairs or [], strict=False):
            more = [*map(word_id, pair.lower().split()), 3]
            row += more
            kinds += [1] * len(more)
        return SimpleNamespace(
            ids_T=np.array([i for row in rows for i in row], np.int32),
            starts=np.cumsum([0, *map(len, rows)]),
            token_type_ids_T=np.array([i for row in types for i in row], np.int8) if pairs is not None else None,
            truncated=0,
            truncated_N=np.zeros(len(rows), bool),
        )


def word_id(word: str) -> int:
    return 5 + WORDS.index(word)


def example(query: str, positives: Sequence[str], negatives: Sequence[str] = (), scores: Any = None) -> RankedExample:
    return RankedExample(query, tuple(positives), tuple(negatives), NOWHERE, scores)


def topic_examples(
    count: int, seed: int = 0, negatives: int = 1, topics: int = TOPICS, fillers: int = 5
) -> list[RankedExample]:
    """Queries with a document on their topic, and others."""
    rng = np.random.default_rng(seed)

    def text(word: str) -> str:
        words = [word, *(f"w{i}" for i in rng.integers(0, FILLERS, rng.integers(fillers // 2, fillers + 1)))]
        return " ".join(rng.permutation(words))

    out = []
    for _ in range(count):
        topic, *others = rng.permutation(topics)[: 1 + negatives]
        out.append(example(text(f"q{topic}"), [text(f"d{topic}")], [text(f"d{other}") for other in others]))
    return out
