"""BERT, and SpanBERT, which is the same network.

Sizes: base and large from Devlin et al. 2019, section 3; tiny to medium from Turc et al. 2019 ("Well-Read Students Learn
Better"), table 1; `bert_base_chinese` is the released character model for Chinese.
"""

from __future__ import annotations

from unmask.config import EncoderConfig


def _bert(layers: int, hidden: int, vocab_size: int) -> EncoderConfig:
    """Every BERT size has heads of width 64 and a feed-forward four times its width."""
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


def bert_tiny(vocab_size: int = 30522) -> EncoderConfig:
    """2 layers, 128 wide: 4.4 M parameters with the published vocabulary."""
    return _bert(2, 128, vocab_size)


def bert_mini(vocab_size: int = 30522) -> EncoderConfig:
    """4 layers, 256 wide: 11 M parameters."""
    return _bert(4, 256, vocab_size)


def bert_small(vocab_size: int = 30522) -> EncoderConfig:
    """4 layers, 512 wide: 29 M parameters."""
    return _bert(4, 512, vocab_size)


def bert_medium(vocab_size: int = 30522) -> EncoderConfig:
    """8 layers, 512 wide: 41 M parameters."""
    return _bert(8, 512, vocab_size)


def bert_base(vocab_size: int = 30522) -> EncoderConfig:
    """12 layers, 768 wide: 110 M parameters."""
    return _bert(12, 768, vocab_size)


def bert_large(vocab_size: int = 30522) -> EncoderConfig:
    """24 layers, 1024 wide: 335 M parameters."""
    return _bert(24, 1024, vocab_size)


def bert_base_chinese(vocab_size: int = 21128) -> EncoderConfig:
    """BERT base over Chinese characters: 102 M parameters with the published vocabulary."""
    return bert_base(vocab_size)


def spanbert_base(vocab_size: int = 28996) -> EncoderConfig:
    """BERT base with the cased vocabulary (Joshi et al. 2020, section 4.2): 108 M parameters."""
    return bert_base(vocab_size)


def spanbert_large(vocab_size: int = 28996) -> EncoderConfig:
    """BERT large with the cased vocabulary: 333 M parameters."""
    return bert_large(vocab_size)
