"""What the model would put at [MASK]: for a text a person typed, and for samples of held-out text while training goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from unmask.batch import PackedBatch
from unmask.errors import UnmaskError
from unmask.measure.heldout import evaluating
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.masked import MaskedTokenObjective
from unmask.text.inspect import piece_text
from unmask.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Guess:
    """A token for one [MASK], and how likely the model holds it."""

    token: str
    probability: float


def fill_mask(
    encoder: Encoder, mlm: MaskedTokenObjective, tokenizer: Tokenizer, text: str, top: int = 5
) -> list[list[Guess]]:
    """For each mask token in `text`, in order, the `top` likeliest tokens. Special tokens are not guessed."""
    mask = tokenizer.token(tokenizer.mask_token_id)
    ids = [tokenizer.cls_token_id, *tokenizer.encode_marked(text).ids.tolist(), tokenizer.sep_token_id]
    where = [place for place, i in enumerate(ids) if i == tokenizer.mask_token_id]
    if not where:
        raise UnmaskError(
            f"the text has no {mask}", where=repr(text[:80]), do=f"write {mask} where a word is to be guessed"
        )
    limit = encoder.config.max_position_embeddings
    if len(ids) > limit:
        raise UnmaskError(f"the text has {len(ids)} tokens, but this model has {limit} positions", do="shorten it")
    guesses = _guess(encoder, mlm, tokenizer, PackedBatch.pack([ids]), torch.tensor(where), top)
    return [[replace(guess, token=_readable(tokenizer, guess.token)) for guess in row] for row in guesses]


def _readable(tokenizer: Tokenizer, piece: str) -> str:
    """Byte-level pieces are bytes under other letters; the rest can be read as it is."""
    return piece_text(tokenizer, piece) if tokenizer.kind == "bpe" else piece


def _guess(
    encoder: Encoder, mlm: MaskedTokenObjective, tokenizer: Tokenizer, batch: PackedBatch, where: torch.Tensor, top: int
) -> list[list[Guess]]:
    device = next(encoder.parameters()).device
    with evaluating(encoder, mlm):
        logits = mlm.logits(encoder, encoder(batch.to(device))[where.to(device)]).float()
        logits[:, list(tokenizer.special_ids)] = -torch.inf
        likely = logits.softmax(-1).topk(min(top, logits.shape[-1]))
    return [
        [Guess(tokenizer.token(i), p) for i, p in zip(row, chances, strict=True)]
        for row, chances in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
    ]


def samples(
    encoder: Encoder, objective: Joint, tokenizer: Tokenizer, batch: PackedBatch, count: int = 3
) -> list[dict[str, Any]]:
    """Masked held-out sentences with the model's guesses, as records of kind "sample" (without the step)."""
    mlm = objective.parts["mlm"] if "mlm" in objective.parts else None
    if not isinstance(mlm, MaskedTokenObjective):
        return []
    where, value = batch.labels["mlm"]
    records = []
    starts: Sequence[int] = batch.starts.tolist()
    for begin, end in list(zip(starts, starts[1:], strict=False))[-count:]:
        inside = (where >= begin) & (where < end)
        if not bool(inside.any()):
            continue
        shown = batch.input_ids[begin:end]
        truth = shown.index_copy(0, where[inside] - begin, value[inside])
        kinds = None if batch.token_type_ids is None else [batch.token_type_ids[begin:end].tolist()]
        one = PackedBatch.pack([shown.tolist()], kinds)
        guesses = _guess(encoder, mlm, tokenizer, one, where[inside] - begin, 3)
        records.append(
            {
                "kind": "sample",
                "tokens": [tokenizer.token(i) for i in truth.tolist()],
                "shown": [tokenizer.token(i) for i in shown.tolist()],
                "masked": (where[inside] - begin).tolist(),
                "guesses": [[[g.token, round(g.probability, 4)] for g in row] for row in guesses],
            }
        )
    return records
