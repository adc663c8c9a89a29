"""What all recipes choose alike, so that a published run fits one machine."""

from __future__ import annotations

from unmask.config import BatchSize, EncoderConfig, Steps

SMALL_BATCH = BatchSize(tokens=4096)  # for examples of up to 128 tokens
BATCH = BatchSize(tokens=8192)
STEPS = Steps(steps=20_000)


def peak_rate(config: EncoderConfig) -> float:
    """The highest learning rate, for batches of a few thousand tokens: 5e-4 up to a width of 256, then less as width grows.

    Published rates belong to batches a hundred times as large; that Adam's should fall as the width grows is from Yang et
    al. 2022 ("Tensor Programs V").
    """
    return float(f"{5e-4 * min(1.0, 256 / config.hidden_size):.1e}")


def fitting(length: int, config: EncoderConfig) -> int:
    """`length`, or what the encoder has room for."""
    return min(length, config.max_position_embeddings)
