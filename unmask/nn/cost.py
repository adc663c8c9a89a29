"""What a network costs before it is built or run: parameters, arithmetic, memory.

A multiply-add counts 2, only real tokens and true lengths count, and a training step costs three forward passes (Kaplan et
al. 2020, section 2.1). Legend: M scored places.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from unmask.config import Disentangled, EncoderConfig, Recurrent
from unmask.nn.kernels.vocabulary import rows_at_once

WORD = 5.0  # characters of an English word with its punctuation, about: what a network of words works on
TRAINING = 3.0  # forward passes that a forward and a backward pass cost together


def count_parameters(*modules: nn.Module) -> int:
    """Numbers that are learned; modules on torch's meta device will do, and a tied matrix counts once."""
    return sum({id(p): p.numel() for module in modules for p in module.parameters()}.values())


def encoder_flops(
    config: EncoderConfig, lengths: Sequence[int], until: int | None = None, reading: int | None = None
) -> float:
    """Arithmetic of one forward pass over sequences of these lengths, through the first `until` layers or all.

    `reading`: how many tokens' last states are looked at, where not all are.
    """
    tokens = sum(lengths)
    if isinstance(config.layer, Recurrent):
        return 2.0 * tokens / WORD * recurrent_matrices(config, config.layer, until)
    work = 2.0 * tokens * config.embedding_size * config.hidden_size
    work += 2.0 * tokens * config.conv_kernel_size * config.hidden_size**2
    layers = config.num_hidden_layers if until is None else until
    for layer in range(layers):
        asking = tokens if layer < layers - 1 or reading is None else reading
        work += layer_flops(config, layer, lengths, asking)
    return work


def layer_flops(config: EncoderConfig, layer: int, lengths: Sequence[int], asking: int) -> float:
    """Of one layer in which every token is a key and a value, but only so many ask for their next state."""
    tokens, answering = sum(lengths), 2 * config.hidden_size * config.inner_size
    scores = attention_flops(config, lengths, config.window_of(layer)) * asking / tokens
    return 2.0 * (tokens * answering + asking * (block_matrices(config) - answering)) + scores


def recurrent_matrices(config: EncoderConfig, layer: Recurrent, until: int | None = None) -> int:
    """Numbers that a word of average length is multiplied with, were no word twice in a batch."""
    half, filters = config.hidden_size // 2, layer.num_filters
    widths = sum(width * count for width, count in layer.filters)
    word = round(WORD + 2) * widths * layer.character_size + (2 * layer.highway_layers * filters + half) * filters
    layers = config.num_hidden_layers if until is None else until
    return word + layers * 2 * layer.cell_size * (4 * (half + half) + half)


def block_matrices(config: EncoderConfig) -> int:
    """Numbers in the matrices of one block."""
    inner = config.num_attention_heads * config.key_size
    feed_forward = (2 + config.gated) * config.hidden_size * config.intermediate_size
    return 4 * config.hidden_size * inner + feed_forward


def attention_flops(config: EncoderConfig, lengths: Sequence[int], window: int = 0) -> float:
    """Scores and weighted sums of one layer; DeBERTa scores every pair's places too, and projects their table."""
    inner = config.num_attention_heads * config.key_size
    pairs = sum(n * min(n, 2 * window + 1 if window else n) for n in lengths)
    match config.positions:
        case Disentangled() as d:
            kinds = d.content_to_position + d.position_to_content
            rows = min(2 * d.span, 2 * max(lengths))
            return ((4.0 + 2.0 * kinds) * pairs + 2.0 * kinds * rows * config.hidden_size) * inner
    return 4.0 * pairs * inner


def token_head_flops(config: EncoderConfig, rows: int) -> float:
    """One forward pass of a TokenHead at M = `rows` places."""
    transform = config.hidden_size * config.table_size if config.head_transform else 0
    return 2.0 * rows * (transform + config.table_size * config.vocab_size)


def training_bytes(config: EncoderConfig, parameters: int, tokens: int, scored_tokens: int) -> int:
    """Memory of a training step in fp32, roughly: weights, gradient, two moments, and what the backward pass needs.

    Per token and layer about 16 hidden-sized and 3 intermediate-sized values are kept, and a chunk of logits three times.
    """
    if isinstance(config.layer, Recurrent):
        cells = config.num_hidden_layers * 2 * 6 * config.layer.cell_size
        kept = cells + 8 * config.layer.num_filters + 8 * config.hidden_size
        return 4 * 4 * parameters + round(4 * tokens / WORD * kept)
    wide = (1 + config.gated) * config.intermediate_size
    per_token = 4 * config.num_hidden_layers * (16 * config.hidden_size + 3 * wide)
    rows = min(scored_tokens, rows_at_once(config.vocab_size, "cpu"))
    return 4 * 4 * parameters + tokens * per_token + 3 * 4 * rows * config.vocab_size
