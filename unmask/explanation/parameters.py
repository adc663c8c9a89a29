"""Which part of a network has how many parameters."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from unmask.config import EncoderConfig
from unmask.explanation.result import Part
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint

# What a parameter is for, by a part of its name; the first that fits.
_KINDS = (
    ("embeddings.tokens", "token table"),
    ("embeddings.positions", "position table"),
    ("embeddings.segments", "segment table"),
    ("embeddings.norm", "norm of the embeddings"),
    ("embeddings.project", "projection of the tables to the hidden size"),
    ("places.norm", "norm of the relative places"),
    ("places.", "table of relative places"),
    ("attention.position_", "attention: projections of relative places"),
    ("attention.out", "attention: output"),
    ("attention.", "attention: queries, keys, values"),
    ("cross.out", "attention to the encoder: output"),
    ("cross.", "attention to the encoder: queries, keys, values"),
    ("feed_forward.", "feed-forward"),
    ("convolution.", "convolution"),
    ("head.positions", "table of places"),
    ("transform", "dense layer before the answer"),
    ("head.dense", "dense layer before the answer"),
    ("head.norm", "dense layer before the answer"),
    ("matrix", "output matrix"),
    ("head.out", "answer"),
    ("_norm", "norms of the layers"),
    ("norm", "final norm"),
    ("bias", "one bias a token"),
)
_OWNERS = (
    ("rtd.generator.", "generator"),
    ("rtd.mlm.", "generator's MLM head"),
    ("infill.head.decoder.", "decoder"),
    ("infill.", "vocabulary head"),
    ("causal.", "vocabulary head"),
    ("mlm.", "MLM head"),
    ("sbo.", "SBO head"),
    ("nsp.", "NSP head"),
    ("sop.", "SOP head"),
    ("rtd.", "RTD head"),
)


def parts_of(encoder: Encoder, objective: Joint) -> tuple[Part, ...]:
    """Parts in the order of the network; a tied or shared matrix counts once, where it lies. They add up to all there is."""
    counts: dict[tuple[str, str], int] = {}
    for owner, name, parameter in _each(encoder, objective):
        kind = next(kind for piece, kind in _KINDS if piece in name)
        counts[owner, kind] = counts.get((owner, kind), 0) + parameter.numel()
    total = sum(counts.values())
    notes = _notes(encoder.config)
    return tuple(
        Part(owner, kind, count, count / total, notes.get((owner, kind), "")) for (owner, kind), count in counts.items()
    )


def _each(encoder: Encoder, objective: Joint) -> Iterator[tuple[str, str, nn.Parameter]]:
    seen: set[int] = set()
    for name, parameter in encoder.named_parameters():
        seen.add(id(parameter))
        yield "encoder", name, parameter
    for name, parameter in objective.named_parameters():
        if id(parameter) not in seen:
            inside = name.removeprefix("parts.")
            yield next(owner for begin, owner in _OWNERS if inside.startswith(begin)), inside, parameter


def _notes(config: EncoderConfig) -> dict[tuple[str, str], str]:
    """What one set of numbers is used for more than once."""
    found = {}
    if config.num_blocks < config.num_hidden_layers:
        sets = f"{config.num_blocks} set{'s' * (config.num_blocks > 1)}"
        shared = f"{sets} of weights for {config.num_hidden_layers} layers, counted once"
        for kind in ("attention: queries, keys, values", "attention: output", "feed-forward", "norms of the layers"):
            found["encoder", kind] = shared
    if config.tie_word_embeddings:
        found["encoder", "token table"] = "also the output matrix of the vocabulary heads, counted once"
    return found
