"""Loss, perplexity and accuracy on held-out text, and what to compare them with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import PackedBatch
from unmask.loader import Batches, Cursor
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Losses, Objective

# Losses whose exponential is a perplexity; a run has one of them at most, or one for each direction.
OVER_VOCABULARY = ("mlm", "causal", "infill", "forward", "backward")


def held_out_batches(batches: Batches, tokens: int) -> list[PackedBatch]:
    """The first batches of the held-out split until `tokens` tokens, never more than one epoch: always the same ones."""
    kept, seen = [], 0
    for batch, after in batches.since(Cursor()):
        kept.append(batch)
        seen += batch.num_tokens
        if seen >= tokens or after.epoch > 0:
            return kept
    raise AssertionError("batches never end")


@contextmanager
def evaluating(encoder: Encoder, objective: Objective) -> Iterator[None]:
    """Dropout off and no gradients inside; as it was after."""
    before = encoder.training
    encoder.eval()
    objective.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        encoder.train(before)
        objective.train(before)


def evaluate(encoder: Encoder, objective: Objective, batches: list[PackedBatch]) -> dict[str, Any]:
    """`figures` of all batches."""
    device = next(encoder.parameters()).device
    with evaluating(encoder, objective):
        return figures(objective(encoder, batch.to(device)) for batch in batches)


def figures(found: Iterable[Losses]) -> dict[str, Any]:
    """Losses (nats), perplexity and accuracies over all batches: sums first, then one division.

    `loss` is the plain sum of the losses: a weight such as RTD's 50 decides what the gradient is made of, not how good a
    model is. `perplexity` is that of the loss over the vocabulary; with RTD it is the generator's, with two directions that
    of the mean of both losses.
    """
    total: dict[str, list[float]] = {}
    judged: dict[str, None] = {}  # losses that have right answers
    for of_batch in found:
        for name, part in of_batch.items():
            sums = total.setdefault(name, [0.0, 0.0, 0.0])
            sums[0] += float(part.total)
            sums[1] += part.count
            if part.correct is not None:
                sums[2] += float(part.correct)
                judged[name] = None
    losses = {name: sums[0] / max(1.0, sums[1]) for name, sums in total.items()}
    out: dict[str, Any] = {"loss": sum(losses.values()), "losses": losses}
    if wide := [losses[name] for name in OVER_VOCABULARY if name in losses]:
        out["perplexity"] = math.exp(min(sum(wide) / len(wide), 700.0))
    out["accuracy"] = {name: total[name][2] / max(1.0, total[name][1]) for name in judged}
    return out


def unigram_entropy(counts_V: NDArray[np.integer], left_out: frozenset[int] = frozenset()) -> float:
    """Entropy of the token frequencies themselves, in nats: the loss of the best guess that never looks at the context.

    `left_out` are ids that are never targets.
    """
    counts = counts_V.astype(np.float64)
    counts[[i for i in left_out if i < len(counts)]] = 0
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())
