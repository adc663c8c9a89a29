"""DeBERTa 1 and 2 (He et al. 2021) and 3 (He et al. 2023), as released: sizes and traits are those of the weights.

All of them know places through disentangled attention alone: nothing about a place is added to the input, and there are no
segments. Absolute places come in with the enhanced mask decoder, which is part of the objective.
"""

from __future__ import annotations

from dataclasses import replace

from unmask.config import Disentangled, EncoderConfig
from unmask.presets.bert import bert_base, bert_large


def _deberta(bert: EncoderConfig) -> EncoderConfig:
    """Version 1: a row for every distance below 512, projections of their own for places, no bias on keys."""
    return replace(
        bert,
        type_vocab_size=0,
        positions=Disentangled(position_buckets=0, normed=False, shared_projections=False),
        key_bias=False,
        layer_norm_eps=1e-7,
    )


def _deberta_v2(bert: EncoderConfig) -> EncoderConfig:
    """Versions 2 and 3: 256 logarithmic buckets a side, normed, projected by the contents' own matrices."""
    return replace(_deberta(bert), positions=Disentangled(), key_bias=True)


def deberta_base(vocab_size: int = 50265) -> EncoderConfig:
    """12 layers, 768 wide: 139 M parameters."""
    return _deberta(bert_base(vocab_size))


def deberta_large(vocab_size: int = 50265) -> EncoderConfig:
    """24 layers, 1024 wide: 405 M parameters."""
    return _deberta(bert_large(vocab_size))


def deberta_v2_xlarge(vocab_size: int = 128100) -> EncoderConfig:
    """24 layers, 1536 wide, a convolution over three tokens beside the first layer: 885 M parameters."""
    return replace(
        _deberta_v2(bert_large(vocab_size)),
        hidden_size=1536,
        num_attention_heads=24,
        intermediate_size=6144,
        conv_kernel_size=3,
    )


def deberta_v2_xxlarge(vocab_size: int = 128100) -> EncoderConfig:
    """The same with 48 layers: 1.6 G parameters."""
    return replace(deberta_v2_xlarge(vocab_size), num_hidden_layers=48)


def deberta_v3_xsmall(vocab_size: int = 128100) -> EncoderConfig:
    """12 layers, 384 wide: 71 M parameters, 49 M of them in the token table."""
    return replace(deberta_v3_base(vocab_size), hidden_size=384, num_attention_heads=6, intermediate_size=1536)


def deberta_v3_small(vocab_size: int = 128100) -> EncoderConfig:
    """6 layers, 768 wide: 141 M parameters, 98 M of them in the token table."""
    return replace(deberta_v3_base(vocab_size), num_hidden_layers=6)


def deberta_v3_base(vocab_size: int = 128100) -> EncoderConfig:
    """12 layers, 768 wide: 184 M parameters."""
    return _deberta_v2(bert_base(vocab_size))


def deberta_v3_large(vocab_size: int = 128100) -> EncoderConfig:
    """24 layers, 1024 wide: 434 M parameters."""
    return _deberta_v2(bert_large(vocab_size))


def mdeberta_v3_base(vocab_size: int = 251000) -> EncoderConfig:
    """The base size for a hundred languages: 278 M parameters, 193 M of them in the token table."""
    return deberta_v3_base(vocab_size)
