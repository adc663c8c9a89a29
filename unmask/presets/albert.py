"""ALBERT, version 2 (Lan et al. 2020, section 3.1 and table 1; version 2 has no dropout)."""

from __future__ import annotations

from dataclasses import replace

from unmask.config import EncoderConfig


def _albert(layers: int, hidden: int, heads: int, vocab_size: int) -> EncoderConfig:
    """Tables 128 wide, projected to the encoder's width, and one set of weights for all layers."""
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        embedding_size=128,
        num_hidden_layers=layers,
        num_hidden_groups=1,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_act="gelu_tanh",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def albert_base(vocab_size: int = 30000) -> EncoderConfig:
    """12 layers, 768 wide: 12 M parameters."""
    return _albert(12, 768, 12, vocab_size)


def albert_large(vocab_size: int = 30000) -> EncoderConfig:
    """24 layers, 1024 wide: 18 M parameters."""
    return _albert(24, 1024, 16, vocab_size)


def albert_xlarge(vocab_size: int = 30000) -> EncoderConfig:
    """24 layers, 2048 wide, with heads of width 128: 59 M parameters."""
    return replace(albert_large(vocab_size), hidden_size=2048, intermediate_size=8192)


def albert_xxlarge(vocab_size: int = 30000) -> EncoderConfig:
    """12 layers, 4096 wide: 223 M parameters, and the arithmetic of a network of 2.4 G."""
    return _albert(12, 4096, 64, vocab_size)
