"""GPT-2 (Radford et al. 2019, section 2.3 and table 2), for contrast: it sees only what came before."""

from __future__ import annotations

from dataclasses import replace

from unmask.config import EncoderConfig


def gpt2(vocab_size: int = 50257) -> EncoderConfig:
    """12 layers, 768 wide: 124 M parameters."""
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_act="gelu_tanh",
        max_position_embeddings=1024,
        type_vocab_size=0,
        causal=True,
        norm_first=True,
        embedding_norm=False,
        layer_norm_eps=1e-5,
        initializer="residual",
        head_transform=False,
        head_bias=False,
    )


def gpt2_medium(vocab_size: int = 50257) -> EncoderConfig:
    """24 layers, 1024 wide: 355 M parameters."""
    return replace(
        gpt2(vocab_size), hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
