"""Where a model is weak: its scores by the length of the records, and label by label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config import Answering, Classification, Contrast, Ranking, Regression, Tagging, Task
from unmask.tasks import answer, classify, rank, tag
from unmask.tasks.errors import cost
from unmask.tasks.job import Evaluation, Features
from unmask.tasks.jobs import language_of

BUCKETS = 5
Row = dict[str, Any]


def by_length(task: Task, features: Features, evaluation: Evaluation) -> list[Row]:
    """The records from the shortest to the longest in up to 5 buckets of about equal size: the range of `tokens`, the number
    of `records`, their `score` (the task's primary metric on them alone) and the mean `cost` of an answer.

    A record's tokens are those of all its windows, the shared ones counted in each; of a query with texts, those of the
    longest pair. Empty without a truth, and for vectors, which are not right or wrong one by one.
    """
    if not evaluation.metrics or isinstance(task, Contrast):
        return []
    tokens_E, rows = _tokens(task, features), []
    costs_E = np.array([cost(p, e) for p, e in zip(evaluation.predictions, features.examples, strict=True)])
    for chosen in _buckets(tokens_E):
        low, high = int(tokens_E[chosen].min()), int(tokens_E[chosen].max())
        rows.append(
            {
                "tokens": f"{low:,}" if low == high else f"{low:,} to {high:,}",
                "records": len(chosen),
                "score": _primary(task, features, evaluation, chosen.tolist()),
                "cost": float(costs_E[chosen].mean()),
            }
        )
    return rows


def by_label(task: Task, evaluation: Evaluation) -> list[Row]:
    """Each label's support, precision, recall and F1, the most frequent first: labels of texts, types of spans in strict mode,
    tags of a plain scheme. Empty for other tasks. A label that neither occurs nor is said is left out."""
    rows = evaluation.detail.get("labels", [])
    if isinstance(task, Classification) and task.multi_label:  # its scores have a row for every label
        said = {name for prediction in evaluation.predictions for name in prediction.label}
        rows = [row for row in rows if row["support"] or row["label"] in said]
    return sorted(rows, key=lambda row: -row["support"])


def _tokens(task: Task, features: Features) -> NDArray[np.int64]:
    """[E] tokens of each record; a record without a word has none."""
    sequences, tokens_E = features.sequences, np.zeros(len(features.examples), np.int64)
    together = np.maximum if isinstance(task, Ranking) else np.add
    together.at(tokens_E, sequences.example_N, sequences.lengths())
    return tokens_E


def _buckets(tokens_E: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Which records are in each bucket. Records of one length share a bucket, so there may be fewer buckets than 5."""
    tops = np.quantile(tokens_E, np.arange(1, BUCKETS) / BUCKETS, method="inverted_cdf")
    bucket_E = np.searchsorted(np.unique(tops), tokens_E)
    return [np.flatnonzero(bucket_E == bucket) for bucket in np.unique(bucket_E)]


def _primary(task: Task, features: Features, evaluation: Evaluation, chosen: Sequence[int]) -> float | None:
    """The metric that a run is judged by, on some of the records. None where there is nothing to judge: an F1 without a label
    or span, neither true nor said, or a correlation of equal numbers."""
    said, truth = [evaluation.predictions[at] for at in chosen], [features.examples[at] for at in chosen]
    match task:
        case Classification(multi_label=True) if not any(p.label or e.label for p, e in zip(said, truth, strict=True)):
            scores = {}
        case Classification() | Regression():
            scores = classify.score(said, truth, task)
        case Tagging():
            scores = tag.score(said, truth, task) if tag.label_rows(said, truth, task) else {}
        case Answering():
            scores = answer.score(said, truth, language_of(features.examples))
        case Ranking():  # a query that no text answers has no order to judge
            scores = {} if not any(e.positives for e in truth) else rank.score(said, truth)
        case Contrast():
            raise AssertionError("vectors have no score of their own")
    primary = next(iter(scores.values()), math.nan)
    return primary if math.isfinite(primary) else None
