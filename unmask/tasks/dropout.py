"""A run's own dropout, in place of the model's while it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape


def learning(config: EncoderConfig, shape: HeadShape, rate: float, kind: str) -> tuple[EncoderConfig, HeadShape]:
    """Encoder and head as they learn: with dropout at `rate` wherever they have one; below 0 with their own.

    A head has one before its outputs, whatever its rate was. Where a rate of 0 stands before the dense layer, or in a head
    of answers without a dense layer, the published class has none there, and none is put there.
    """
    if rate < 0:
        return config, shape
    config = replace(config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
    none_there = kind == "answer" and shape.act is None and shape.dropout == 0
    last = 0.0 if none_there else rate
    return config, replace(shape, dropout=last, input_dropout=rate if shape.input_dropout else 0.0)


def as_they_came(shapes: Mapping[str, HeadShape], own: HeadShape) -> dict[str, HeadShape]:
    """The shapes of the heads with the rates of the model that the run began with."""
    return {
        kind: replace(shape, dropout=own.dropout, input_dropout=own.input_dropout) for kind, shape in shapes.items()
    }
