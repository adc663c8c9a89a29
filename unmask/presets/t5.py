"""T5, first version (Raffel et al. 2020, sections 2.1 and 3.1.1): its encoders. The objective adds a decoder as deep."""

from __future__ import annotations

from dataclasses import replace

from unmask.config import EncoderConfig, RelativeBias


def t5_small(vocab_size: int = 32128) -> EncoderConfig:
    """6 layers on each side, 512 wide: 61 M parameters with the decoder."""
    return replace(
        t5_base(vocab_size), hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048
    )


def t5_base(vocab_size: int = 32128) -> EncoderConfig:
    """12 layers on each side, 768 wide: 223 M parameters with the decoder."""
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_act="relu",
        type_vocab_size=0,
        positions=RelativeBias(),
        scale_attention=False,
        norm="rms",
        norm_first=True,
        embedding_norm=False,
        linear_bias=False,
        layer_norm_eps=1e-6,
        initializer="t5",
        head_transform=False,
        head_bias=False,
    )
