"""Texts to explain, and what several tests ask of an explanation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from unmask.explanation import Explanation, explain

ENGLISH = "The unbelievable cat sat on the mat. It purred and slept, because the day was long."
OTHER = "Interest rates rose again. Banks were not surprised at all."
CHINESE = "猫坐在垫子上。我们研究自然语言处理，并训练模型。"

# A preset of every family with the objectives that its tokenizer allows.
HIDING = ("mlm", "wwm", "ngram", "span", "nsp", "sop", "rtd")
FAMILIES = {
    "bert_tiny": (*HIDING, "causal", "infill"),
    "roberta_base": (*HIDING, "causal", "infill"),
    "albert_base": (*HIDING, "causal"),
    "electra_small": (*HIDING, "causal"),
    "deberta_base": (*HIDING, "causal", "infill"),
    "deberta_v2_xlarge": (*HIDING, "causal", "infill"),
    "deberta_v3_xsmall": (*HIDING, "causal", "infill"),
    "modernbert_base": (*HIDING, "causal", "infill"),
    "neobert": (*HIDING, "causal", "infill"),
    "gpt2": ("causal", "infill"),
    "t5_small": ("causal", "infill"),
}
PAIRS = [(preset, objective) for preset, objectives in FAMILIES.items() for objective in objectives]


@cache
def explained(preset: str, objective: str) -> Explanation:
    """Of the English text."""
    return explain(ENGLISH, objective=objective, preset=preset)


@cache
def drawn(objective: str, count: int = 12, second: str = "") -> tuple[Explanation, ...]:
    """The English text with several seeds, on a small network."""
    small = {"sop": "bert_tiny", "rtd": "electra_small"}.get(objective, "bert_tiny")
    return tuple(explain(ENGLISH, objective=objective, preset=small, second=second, seed=seed) for seed in range(count))


def size(letters: str, sizes: Mapping[str, int]) -> int:
    """The number that a dimension such as "3·A·K" or "2·H+Q" stands for."""
    total = 0
    for term in letters.split("+"):
        product = 1
        for factor in term.split("·"):
            product *= int(factor) if factor.isdigit() else sizes[factor]
        total += product
    return total


def measured(letters: str) -> bool:
    """Whether a dimension is no size of the network: a head's own M, or the relative places R."""
    return re.fullmatch("[MR]", letters) is not None
