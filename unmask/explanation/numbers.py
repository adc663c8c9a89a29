"""The forward pass of a training step, with what its heads answered: from the logits to -log p, place by place.

Legend: M targets of one loss, V answers of its head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch, Targets
from unmask.explanation.result import Candidate, Loss, Target, Worked
from unmask.measure.heldout import evaluating
from unmask.nn.encoder import Encoder
from unmask.nn.kernels.vocabulary import Logits
from unmask.objectives.base import Joint, Losses, combine
from unmask.objectives.replaced import ReplacedTokenObjective
from unmask.text.tokenizer import Tokenizer

MOST_LIKELY = 5  # answers shown beside the true one
ANSWERS = {  # of heads that choose between two
    "nsp": ("B follows A", "B is from elsewhere"),
    "sop": ("in order", "swapped"),
    "rtd": ("original", "replaced"),
}


@dataclass(frozen=True)
class Pass:
    """One forward pass: the batch as the encoder read it, the losses, the logits [M, V] of each, their sum to minimise."""

    batch: PackedBatch
    losses: Losses
    logits: Mapping[str, Tensor]
    loss: float


def forward(encoder: Encoder, objective: Joint, batch: PackedBatch) -> Pass:
    """What a training step computes before its gradient, dropout off; logits are what the objectives' own heads gave."""
    with evaluating(encoder, objective), _heads_watched(objective) as logits:
        filled, before = objective.begin(encoder, batch)
        layers = encoder.layers(filled, *objective.tables())
        losses = {**before, **objective.loss(encoder, layers, filled)}
        loss = float(combine(losses, objective.counts(batch)))
    return Pass(filled, losses, logits, loss)


@contextmanager
def _heads_watched(objective: Joint) -> Iterator[dict[str, Tensor]]:
    """Keeps the answers of each head by the name of its loss."""
    found: dict[str, Tensor] = {}
    handles = []
    for kind, part in objective.members().items():
        heads = {kind: part.get_submodule("head")}
        if isinstance(part, ReplacedTokenObjective):
            heads["mlm"] = part.mlm.get_submodule("head")
        for name, head in heads.items():
            handles.append(head.register_forward_hook(_keep(found, name)))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _keep(found: dict[str, Tensor], name: str) -> Any:
    def hook(head: nn.Module, given: Any, out: Tensor | Logits) -> None:
        found[name] = (out.dense() if isinstance(out, Logits) else out).float()

    return hook


def losses_of(passed: Pass, tokenizer: Tokenizer) -> tuple[Loss, ...]:
    """Every loss with its targets, and one place worked out."""
    return tuple(_loss(name, passed, tokenizer) for name in passed.losses)


def _loss(name: str, passed: Pass, tokenizer: Tokenizer) -> Loss:
    found = passed.losses[name]
    logits_MV, (where, value) = _with_two_answers(passed.logits[name]), _targets(name, passed.batch)
    labels = value.long()
    cost_M = logits_MV.logsumexp(-1) - logits_MV.gather(1, labels[:, None]).squeeze(1)
    place = _places(name, passed.batch, where)
    names = ANSWERS.get(name)
    write = names.__getitem__ if names else tokenizer.token
    targets = tuple(
        Target(sequence, at, label, write(label), cost)
        for (sequence, at), label, cost in zip(place, labels.tolist(), cost_M.tolist(), strict=True)
    )
    shown = _shown(name, passed.batch, labels)
    worked = None if shown is None else _worked(name, targets[shown], logits_MV[shown], names, tokenizer)
    mean = float(found.total) / max(1, found.count)
    return Loss(name, targets, mean, math.log(logits_MV.shape[-1]), found.weight, worked)


def _with_two_answers(logits: Tensor) -> Tensor:
    """[M, V]; one number z of a yes-or-no head becomes the logits (0, z), whose softmax is (1 - sigmoid(z), sigmoid(z))."""
    return torch.stack([torch.zeros_like(logits), logits], -1) if logits.dim() == 1 else logits


def _targets(name: str, batch: PackedBatch) -> Targets:
    if name in ("nsp", "sop"):
        return batch.labels["pair"]
    if name == "infill":
        assert batch.decoder is not None
        return batch.decoder.labels["infill"]
    return batch.labels[name]


def _places(name: str, batch: PackedBatch, where: Tensor) -> list[tuple[int, int]]:
    """Sequence and place of each target; a pair's is the first token, which its head reads."""
    if name in ("nsp", "sop"):
        return [(row, 0) for row in where.tolist()]
    layout = batch.layout if name != "infill" or batch.decoder is None else batch.decoder.layout
    rows, places = layout.rows[where], layout.position_ids[where]
    return list(zip(rows.tolist(), places.tolist(), strict=True))


def _shown(name: str, batch: PackedBatch, labels: Tensor) -> int | None:
    """Which target is worked out: of RTD the first replaced token, else the first."""
    if name == "rtd" and bool(labels.any()):
        return int(labels.argmax())
    return 0 if len(labels) else None


def _worked(name: str, target: Target, logits_V: Tensor, names: tuple[str, str] | None, tokenizer: Tokenizer) -> Worked:
    chances_V = logits_V.softmax(-1)

    def candidate(id: int) -> Candidate:
        token = names[id] if names else tokenizer.token(id)
        return Candidate(id, token, float(logits_V[id]), float(chances_V[id]))

    likely = chances_V.topk(min(MOST_LIKELY, len(chances_V))).indices.tolist()
    side: Literal["encoder", "decoder", "sequence"] = "decoder" if name == "infill" else "encoder"
    return Worked(
        target.sequence,
        target.place,
        "sequence" if name in ("nsp", "sop") else side,
        tuple(logits_V.tolist()),
        float(logits_V.logsumexp(-1)),
        tuple(map(candidate, likely)),
        candidate(target.label),
        target.loss,
    )
