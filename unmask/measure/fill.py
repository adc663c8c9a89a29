"""What the model would put at [MASK]: for a text a person typed, and for samples of held-out text while training goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unmask.batch import PackedBatch, Targets
from unmask.errors import UnmaskError
from unmask.measure.heldout import evaluating
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.masked import MaskedTokenObjective
from unmask.objectives.replaced import ReplacedTokenObjective
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
    vocabulary = tokenizer.vocabulary()
    mask_id = vocabulary.require("mask")
    framed = (vocabulary.cls_token_id, *tokenizer.encode_marked(text).ids.tolist(), vocabulary.sep_token_id)
    ids = [i for i in framed if i is not None]
    where = torch.tensor([place for place, i in enumerate(ids) if i == mask_id])
    mask = tokenizer.token(mask_id)
    if not len(where):
        raise UnmaskError(
            f"the text has no {mask}", where=repr(text[:80]), do=f"write {mask} where a word is to be guessed"
        )
    limit = encoder.config.max_position_embeddings
    if len(ids) > limit:
        raise UnmaskError(f"the text has {len(ids)} tokens, but this model has {limit} positions", do="shorten it")
    batch = PackedBatch.pack([ids]).to(next(encoder.parameters()).device)
    with evaluating(encoder, mlm):
        logits = mlm.logits(encoder, mlm.states(encoder, batch), batch, where.to(batch.input_ids.device))
        guesses = _likeliest(logits, tokenizer, top)
    return [[replace(guess, token=_readable(tokenizer, guess.token)) for guess in row] for row in guesses]


def _readable(tokenizer: Tokenizer, piece: str) -> str:
    """Byte-level pieces are bytes under other letters; the rest can be read as it is."""
    return piece_text(tokenizer, piece) if tokenizer.kind == "bpe" else piece


def _likeliest(logits_MV: Tensor, tokenizer: Tokenizer, top: int) -> list[list[Guess]]:
    logits_MV = logits_MV.float().clone()
    logits_MV[:, list(tokenizer.special_ids)] = -torch.inf
    likely = logits_MV.softmax(-1).topk(min(top, logits_MV.shape[-1]))
    return [
        [Guess(tokenizer.token(i), p) for i, p in zip(row, chances, strict=True)]
        for row, chances in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
    ]


def samples(
    encoder: Encoder, objective: Joint, tokenizer: Tokenizer, batch: PackedBatch, count: int = 3
) -> list[dict[str, Any]]:
    """Held-out sentences with some tokens hidden and the guesses, as records of kind "sample" (without the step).

    With RTD the guesses are the generator's, and the record also has `filled`, the text with a draw in each blank, and
    `doubts`, for each token how likely the encoder holds that it is not the original. Goals that hide no single tokens
    (causal, infill) show nothing.
    """
    if not {"mlm", "rtd"} & objective.members().keys():
        return []
    rows = range(max(0, batch.num_sequences - count), batch.num_sequences)
    shown = (_alone(batch, row) for row in rows)
    return [_sample(encoder, objective, tokenizer, one) for one in shown if len(one.labels["mlm"].where)]


def _sample(encoder: Encoder, objective: Joint, tokenizer: Tokenizer, one: PackedBatch) -> dict[str, Any]:
    """The record of a batch that is one sequence."""
    where, value = one.labels["mlm"]
    names = lambda ids: [tokenizer.token(i) for i in ids.tolist()]  # noqa: E731
    there = one.to(next(encoder.parameters()).device)
    replaced = objective.members().get("rtd")
    with evaluating(encoder, objective):
        if isinstance(replaced, ReplacedTokenObjective):
            logits_MV = replaced.answers(encoder, there).dense()
            found = _doubted(encoder, replaced, there, tokenizer)
        else:
            mlm = objective.members()["mlm"]
            assert isinstance(mlm, MaskedTokenObjective)
            logits_MV = mlm.logits(encoder, objective.states(encoder, there), there, there.labels["mlm"].where)
            found = {}
        guesses = _likeliest(logits_MV, tokenizer, 3)
    return {
        "kind": "sample",
        "tokens": names(one.input_ids.index_copy(0, where, value)),
        "shown": names(one.input_ids),
        "masked": where.tolist(),
        "guesses": [[[g.token, round(g.probability, 4)] for g in row] for row in guesses],
        **found,
    }


def _doubted(
    encoder: Encoder, replaced: ReplacedTokenObjective, batch: PackedBatch, tokenizer: Tokenizer
) -> dict[str, Any]:
    """The text with the generator's draws in it, and the chance that each token of it is not the original."""
    filled, _ = replaced.begin(encoder, batch)
    hidden_TD = replaced.states(encoder, filled)[-1]
    chances_T = replaced.head(hidden_TD, batch.starts[:-1].long().index_select(0, batch.layout.rows)).float().sigmoid()
    return {
        "filled": [tokenizer.token(i) for i in filled.input_ids.tolist()],
        "doubts": [round(p, 4) for p in chances_T.tolist()],
    }


def _alone(batch: PackedBatch, row: int) -> PackedBatch:
    """One sequence as a batch of its own, with what was hidden in it."""
    begin, end = batch.starts[row : row + 2].tolist()
    types = None if batch.token_type_ids is None else batch.token_type_ids[begin:end]
    labels = {}
    for name in ("mlm", "draw"):
        if name in batch.labels:
            where, value = batch.labels[name]
            inside = (where >= begin) & (where < end)
            labels[name] = Targets(where[inside] - begin, value[inside])
    starts = torch.tensor([0, end - begin], dtype=torch.int32)
    return PackedBatch(batch.input_ids[begin:end], starts, types, labels=labels)
