"""What a network costs before it is built or run: parameters, arithmetic, memory."""

from __future__ import annotations

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig


def count_parameters(config: EncoderConfig, *, mlm: bool = False, nsp: bool = False) -> int:
    """Parameters of the encoder, plus those of the heads asked for; the tied matrix counts once."""
    d, inner = config.hidden_size, config.intermediate_size
    tables = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    block = 4 * (d * d + d) + 2 * d * inner + inner + d + 4 * d
    encoder = tables * d + 2 * d + config.num_hidden_layers * block
    return encoder + mlm * (d * d + d + 2 * d + config.vocab_size) + nsp * (d * d + d + 2 * d + 2)


def training_flops(config: EncoderConfig, batch: PackedBatch, scored_tokens: int) -> float:
    """Useful arithmetic of one forward and backward pass: real tokens, true lengths, logits at scored places only.

    A multiply-add counts 2, and the backward pass twice the forward one (Kaplan et al. 2020, section 2.1).
    """
    squares = sum(n * n for n in batch.layout.lengths)
    return _training(config, batch.num_tokens, squares, scored_tokens)


def estimated_flops(config: EncoderConfig, tokens: int, length: int, scored_tokens: int) -> float:
    """The same for a batch that does not exist yet: `tokens` tokens in sequences of `length`."""
    return _training(config, tokens, tokens * length, scored_tokens)


def _training(config: EncoderConfig, tokens: int, squares: int, scored_tokens: int) -> float:
    d = config.hidden_size
    matrices = 2 * tokens * config.num_hidden_layers * (4 * d * d + 2 * d * config.intermediate_size)
    attention = 4 * squares * d * config.num_hidden_layers
    head = 2 * scored_tokens * (d * d + d * config.vocab_size)
    return 3.0 * (matrices + attention + head)


def training_bytes(config: EncoderConfig, tokens: int, length: int, scored_tokens: int) -> int:
    """Memory of a training step in fp32, roughly: weights, gradient, two moments, and what the backward pass needs.

    Per token and layer about 16 hidden-sized and 3 intermediate-sized values are kept, and the logits three times.
    """
    weights = 4 * 4 * count_parameters(config, mlm=True, nsp=True)
    per_token = 4 * config.num_hidden_layers * (16 * config.hidden_size + 3 * config.intermediate_size)
    return weights + tokens * per_token + 3 * 4 * scored_tokens * config.vocab_size
