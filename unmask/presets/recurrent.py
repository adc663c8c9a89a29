"""ELMo (Peters et al. 2018, section 3.4), in the sizes of its release: words from characters under two layers of LSTMs."""

from __future__ import annotations

from unmask.config import EncoderConfig, Recurrent


def elmo_mini(vocab_size: int = 262) -> EncoderConfig:
    """256 wide with 512 cells, of 240 filters: 3 M parameters, for a CPU; the width of the released small model."""
    filters = ((1, 16), (2, 16), (3, 32), (4, 48), (5, 64), (6, 64))
    return _elmo(256, Recurrent(cell_size=512, filters=filters, highway_layers=1), vocab_size)


def elmo_small(vocab_size: int = 262) -> EncoderConfig:
    """256 wide with 1,024 cells: 14 M parameters."""
    return _elmo(256, Recurrent(cell_size=1024, highway_layers=1), vocab_size)


def elmo_medium(vocab_size: int = 262) -> EncoderConfig:
    """512 wide with 2,048 cells: 28 M parameters."""
    return _elmo(512, Recurrent(cell_size=2048, highway_layers=1), vocab_size)


def elmo(vocab_size: int = 262) -> EncoderConfig:
    """1,024 wide with 4,096 cells, the model of the paper: 94 M parameters."""
    return _elmo(1024, Recurrent(), vocab_size)


def _elmo(hidden: int, layer: Recurrent, vocab_size: int) -> EncoderConfig:
    """The released models read bytes, of which there are 262 with marks; ours read the characters of a tokenizer."""
    return EncoderConfig(
        layer=layer,
        layer_mix=True,
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=1,
        hidden_act="relu",
        max_position_embeddings=2048,
        type_vocab_size=0,
        embedding_norm=False,
    )
