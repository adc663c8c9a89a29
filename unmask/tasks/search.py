"""Which runs a search over hyper-parameters tries: random search (Bergstra and Bengio 2012), trial by trial, from one seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from unmask.config import FineTuning
from unmask.errors import UnmaskError
from unmask.randomness import generator

TRIAL = 5  # what a generator is for: keeps this use of the seed apart from others
SPREAD = 5.0  # the learning rate is drawn from a fifth of the set one to five times it
LONGER = (1.0, 1.5, 2.0)  # times the set epochs
SMALLER = (1.0, 0.5)  # times the set examples; never more, which memory may not bear
ENOUGH = 3  # other trials that a median is taken of


class Unpromising(UnmaskError):
    """A trial is given up; its run can be gone on with like any other."""


def trial(run: FineTuning, number: int) -> FineTuning:
    """The settings of one trial: the first is the run as it is, each other a draw of its own, however many there are.

    Learning rates are log-uniform; what a trial learns from (seed, records, model) is the same for all.
    """
    if number == 0:
        return run
    rng = generator(run.seed, TRIAL, number)
    rate = run.optimizer.learning_rate * SPREAD ** rng.uniform(-1, 1)
    epochs = run.epochs * float(rng.choice(LONGER))
    examples = max(1, round(run.examples * float(rng.choice(SMALLER))))
    optimizer = replace(run.optimizer, learning_rate=float(f"{rate:.3g}"))
    return replace(run, optimizer=optimizer, epochs=min(epochs, 100_000.0), examples=examples)


def primary(found: Sequence[Mapping[str, float]]) -> str:
    """The metric that trials are compared by: the first one. A trial in which it is undefined may lack it."""
    most = max(map(len, found), default=0)
    return next((name for metrics in found if len(metrics) == most for name in metrics), "")


def best(scores: Sequence[float]) -> int:
    """The number of the trial with the highest score; of equal ones the first. NaN is no score, below every other."""
    return max(range(len(scores)), key=lambda at: -math.inf if math.isnan(scores[at]) else scores[at])


def unpromising(scores: Sequence[float], others: Sequence[Sequence[float]], evaluations: int) -> bool:
    """Whether the best score so far is below the median of what the other trials had reached at their evaluation of the same
    number: the median rule of Golovin et al. 2017 (section 3.2), which compares means over time instead of bests.

    Each row begins with the score before training, which says nothing; the last of the `evaluations` is the end anyway.
    """
    at = len(scores) - 1
    if not 0 < at < evaluations:
        return False
    reached = [max(row[1 : at + 1]) for row in others if len(row) > at]
    return len(reached) >= ENOUGH and max(scores[1:]) < statistics.median(reached)


def fits(ended: Sequence[tuple[float, float]], epochs: float, minutes: float) -> bool:
    """Whether a trial of so many epochs is over in time if its epochs are as slow as the slowest before them; the first trial
    always is. `ended`: seconds and epochs of each trial before it. 0 minutes: no end."""
    if not ended or not minutes:
        return True
    spent, pace = sum(seconds for seconds, _ in ended), max(seconds / passed for seconds, passed in ended)
    return spent + pace * epochs <= 60 * minutes
