"""Any run at toy size."""

from __future__ import annotations

from dataclasses import replace

from unmask.config import Disentangled, EncoderConfig, Layer, Positions, Recurrent, RunConfig
from unmask.recipes.parts import peak_rate

LENGTH = "examples.max_length="  # the change of a phase that depends on the size


def shrunk(run: RunConfig, *, hidden: int = 64, layers: int = 3, heads: int = 2, length: int = 64) -> RunConfig:
    """The run with a small encoder of the same kind, on examples of `length` tokens, to see in minutes whether it learns.

    Widths keep their proportions, local windows and buckets of distance theirs to the length, and phases to each other; the
    peak learning rate grows as for a narrower encoder. Vocabulary, batch and number of steps stay.
    """
    shorter = length / run.examples.max_length
    changes = [tuple(_shorter(change, shorter) for change in phase.changes) for phase in run.phases]
    longest = max([length, *(_length(change) for later in changes for change in later)])
    encoder = _encoder(run.encoder, hidden, layers, heads, longest, shorter)
    rate = run.optimizer.learning_rate * peak_rate(encoder) / peak_rate(run.encoder)
    return replace(
        run,
        encoder=encoder,
        examples=replace(run.examples, max_length=length),
        optimizer=replace(run.optimizer, learning_rate=rate),
        phases=tuple(replace(phase, changes=later) for phase, later in zip(run.phases, changes, strict=True)),
    )


def _encoder(e: EncoderConfig, hidden: int, layers: int, heads: int, longest: int, shorter: float) -> EncoderConfig:
    narrower = hidden / e.hidden_size
    return replace(
        e,
        layer=_layer(e.layer, narrower),
        hidden_size=hidden,
        embedding_size=e.embedding_size and _eights(e.embedding_size * narrower),
        num_hidden_layers=layers,
        num_hidden_groups=min(e.num_hidden_groups, layers),
        num_attention_heads=heads,
        head_size=0,
        intermediate_size=_eights(e.intermediate_size * narrower),
        max_position_embeddings=longest,
        local_attention=e.local_attention and max(2, 2 * round(e.local_attention * shorter / 2)),
        positions=_positions(e.positions, longest / e.max_position_embeddings),
    )


def _layer(layer: Layer, narrower: float) -> Layer:
    """Cells and filters keep their proportion to the width."""
    if not isinstance(layer, Recurrent):
        return layer
    filters = tuple((width, _eights(count * narrower)) for width, count in layer.filters)
    return replace(layer, cell_size=_eights(layer.cell_size * narrower), filters=filters)


def _positions(positions: Positions, shorter: float) -> Positions:
    """DeBERTa's table of distances grows with the length; thetas and T5's buckets are the same for any."""
    match positions:
        case Disentangled(position_buckets=buckets, max_relative_positions=farthest):
            farthest = max(4, round(farthest * shorter))
            return replace(
                positions,
                position_buckets=buckets and max(2, 2 * round(buckets * shorter / 2)),
                max_relative_positions=farthest,
            )
    return positions


def _eights(size: float) -> int:
    return max(8, 8 * round(size / 8))


def _shorter(change: str, shorter: float) -> str:
    return f"{LENGTH}{round(_length(change) * shorter)}" if change.startswith(LENGTH) else change


def _length(change: str) -> int:
    """The length of examples that a phase asks for, 0 where it doesn't."""
    return int(change.removeprefix(LENGTH)) if change.startswith(LENGTH) else 0
