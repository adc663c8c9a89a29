"""ModernBERT (Warner et al. 2024), Ettin (Weller et al. 2025) and NeoBERT (Le Breton et al. 2025), as released.

All turn queries and keys by their place, norm before each part and once at the end, and have no biases in their layers.
The thetas are those of the released models, after the extension of the context; recipes begin with 10,000.
"""

from __future__ import annotations

from dataclasses import replace

from unmask.config import EncoderConfig, Rope


def _modernbert(layers: int, hidden: int, intermediate: int, vocab_size: int) -> EncoderConfig:
    """Heads of width 64; every third layer sees everything, the others 64 tokens on each side."""
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=intermediate,
        gated=True,
        max_position_embeddings=8192,
        type_vocab_size=0,
        positions=Rope(theta=160_000.0, local_theta=10_000.0),
        local_attention=128,
        global_attn_every_n_layers=3,
        norm_first=True,
        first_norm=False,
        norm_bias=False,
        linear_bias=False,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer="residual",
        pad_token_id=50283,
    )


def _ettin(layers: int, hidden: int, intermediate: int, vocab_size: int) -> EncoderConfig:
    """ModernBERT in other sizes, with one theta for all layers and the length it was extended to."""
    modernbert = _modernbert(layers, hidden, intermediate, vocab_size)
    return replace(modernbert, positions=Rope(theta=160_000.0), max_position_embeddings=7999)


def modernbert_base(vocab_size: int = 50368) -> EncoderConfig:
    """22 layers, 768 wide: 149 M parameters."""
    return _modernbert(22, 768, 1152, vocab_size)


def modernbert_large(vocab_size: int = 50368) -> EncoderConfig:
    """28 layers, 1024 wide: 395 M parameters."""
    return _modernbert(28, 1024, 2624, vocab_size)


def ettin_17m(vocab_size: int = 50368) -> EncoderConfig:
    """7 layers, 256 wide."""
    return _ettin(7, 256, 384, vocab_size)


def ettin_32m(vocab_size: int = 50368) -> EncoderConfig:
    """10 layers, 384 wide."""
    return _ettin(10, 384, 576, vocab_size)


def ettin_68m(vocab_size: int = 50368) -> EncoderConfig:
    """19 layers, 512 wide."""
    return _ettin(19, 512, 768, vocab_size)


def ettin_150m(vocab_size: int = 50368) -> EncoderConfig:
    """22 layers, 768 wide."""
    return _ettin(22, 768, 1152, vocab_size)


def ettin_400m(vocab_size: int = 50368) -> EncoderConfig:
    """28 layers, 1024 wide."""
    return _ettin(28, 1024, 2624, vocab_size)


def ettin_1b(vocab_size: int = 50368) -> EncoderConfig:
    """28 layers, 1792 wide."""
    return _ettin(28, 1792, 3840, vocab_size)


def neobert(vocab_size: int = 30522) -> EncoderConfig:
    """28 layers, 768 wide: 245 M parameters with the output matrix, which is one of its own.

    The published weights began uniform within ±0.02; ours begin normal with that deviation.
    """
    return EncoderConfig(
        vocab_size=vocab_size,
        num_hidden_layers=28,
        intermediate_size=2048,  # two thirds of 3072, since the gate is a third matrix
        hidden_act="silu",
        gated=True,
        max_position_embeddings=4096,
        type_vocab_size=0,
        positions=Rope(),
        norm="rms",
        norm_first=True,
        embedding_norm=False,
        linear_bias=False,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        head_transform=False,
        tie_word_embeddings=False,
    )
