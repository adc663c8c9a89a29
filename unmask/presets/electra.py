"""ELECTRA's encoders, its discriminators (Clark et al. 2020, table 6). The generator beside each is part of the recipe."""

from __future__ import annotations

from dataclasses import replace

from unmask.config import EncoderConfig
from unmask.presets.bert import bert_base, bert_large


def electra_small(vocab_size: int = 30522) -> EncoderConfig:
    """12 layers, 256 wide, tables 128 wide: 14 M parameters. Released model and paper's have the same encoder."""
    return replace(
        bert_base(vocab_size), hidden_size=256, embedding_size=128, num_attention_heads=4, intermediate_size=1024
    )


def electra_base(vocab_size: int = 30522) -> EncoderConfig:
    """BERT base: 109 M parameters."""
    return bert_base(vocab_size)


def electra_large(vocab_size: int = 30522) -> EncoderConfig:
    """BERT large: 334 M parameters."""
    return bert_large(vocab_size)
