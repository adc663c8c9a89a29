"""RoBERTa (Liu et al. 2019, section 4 and appendix A) and CamemBERT (Martin et al. 2020), which is RoBERTa for French."""

from __future__ import annotations

from dataclasses import replace

from unmask.config import Absolute, EncoderConfig
from unmask.presets.bert import bert_base, bert_large


def _roberta(bert: EncoderConfig) -> EncoderConfig:
    """One segment; 512 places whose rows begin after the padding token's id, hence a table of 514."""
    return replace(bert, type_vocab_size=1, pad_token_id=1, positions=Absolute(after_padding=True), layer_norm_eps=1e-5)


def roberta_base(vocab_size: int = 50265) -> EncoderConfig:
    """12 layers, 768 wide: 125 M parameters."""
    return _roberta(bert_base(vocab_size))


def roberta_large(vocab_size: int = 50265) -> EncoderConfig:
    """24 layers, 1024 wide: 355 M parameters."""
    return _roberta(bert_large(vocab_size))


def camembert_base(vocab_size: int = 32005) -> EncoderConfig:
    """RoBERTa base with a French SentencePiece vocabulary: 111 M parameters."""
    return roberta_base(vocab_size)
