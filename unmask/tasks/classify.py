"""A text or a pair of texts to a label, to several, or to a number: features, answers, scores.

Legend: N texts, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config import Classification, Regression
from unmask.errors import UnmaskError
from unmask.labelled.records import TextExample
from unmask.measure import classification, correlation
from unmask.tasks.outputs import softmax
from unmask.text.aligned import AlignedEncoder
from unmask.text.sequences import Labels, Sequences

Task = Classification | Regression
_CURVES, _POINTS, _CONFUSED = 3, 200, 100  # on the page; labels of the matrix that is kept


@dataclass(frozen=True)
class Classified:
    """What is said about a text: the label (or labels, or number), and the probability of each label, or the number under
    its own name."""

    label: str | tuple[str, ...] | float
    scores: dict[str, float]


def texts_of(example: TextExample) -> int:
    """How many texts a record has: 1, or 2, a pair."""
    return 1 if example.pair is None else 2


def sequences(examples: Sequence[TextExample], encoder: AlignedEncoder, task: Task) -> tuple[Sequences, int]:
    """One sequence for each text or pair, and how many were cut. UnmaskError where only some records have a pair."""
    paired = {example.pair is not None for example in examples}
    if len(paired) > 1:
        odd = next(e for e in examples if (e.pair is None) != (examples[0].pair is None))
        raise UnmaskError(
            "some records have two texts and some have one", where=str(odd.place), do="give one kind only"
        )
    pairs = [e.pair or "" for e in examples] if paired == {True} else None
    framed = encoder.texts([e.text for e in examples], pairs)
    labels = {} if any(e.label is None for e in examples) else {"label": Labels.one_each(_values(examples, task))}
    return framed.sequences(labels), framed.truncated


def _values(examples: Sequence[TextExample], task: Task) -> NDArray[Any]:
    if isinstance(task, Regression):
        return np.array([example.label for example in examples], np.float32)
    ids = {label: at for at, label in enumerate(task.labels)}
    if not task.multi_label:
        return np.array([ids[str(example.label)] for example in examples], np.int64)
    values = np.zeros((len(examples), len(ids)), np.float32)
    for row, example in enumerate(examples):
        assert isinstance(example.label, tuple), "the reader gives several labels as a tuple"
        values[row, [ids[label] for label in example.label]] = 1
    return values


def class_weights(examples: Sequence[TextExample], task: Classification) -> list[float]:
    """N / (C · how often a label occurs): their mean over the examples is 1, so the loss keeps its size."""
    counts = np.bincount(_values(examples, task), minlength=len(task.labels))
    weights: list[float] = (len(examples) / (len(counts) * np.maximum(counts, 1))).tolist()
    return weights


def decode(logits_NC: NDArray[np.floating], task: Task, thresholds: Sequence[float] | None = None) -> list[Classified]:
    """Answers in the order of the texts. `thresholds` of several labels, one each; 0.5 unless given."""
    if isinstance(task, Regression):
        numbers = map(float, logits_NC[:, 0])
        return [Classified(number, {task.target: number} if task.target else {}) for number in numbers]
    if task.multi_label:
        scores_NC = 1 / (1 + np.exp(-np.clip(logits_NC.astype(np.float64), -700, 700)))
        limits = np.full(len(task.labels), 0.5) if thresholds is None else np.asarray(thresholds)
        chosen_NC = scores_NC >= limits
    else:
        scores_NC = softmax(logits_NC)
        chosen_NC = np.arange(len(task.labels)) == scores_NC.argmax(1)[:, None]
    rows = []
    for scores, marks in zip(scores_NC, chosen_NC, strict=True):
        names = tuple(label for label, mark in zip(task.labels, marks, strict=True) if mark)
        said = names if task.multi_label else names[0]
        rows.append(Classified(said, dict(zip(task.labels, map(float, scores), strict=True))))
    return rows


def tune_thresholds(
    predictions: Sequence[Classified], examples: Sequence[TextExample], task: Classification
) -> list[float]:
    """For each of several labels, from which probability on it is given: what makes its F1 best on these examples."""
    truth_NC = _values(examples, task) > 0
    scores_NC = _scores(predictions, task)
    return [classification.best_threshold(scores_NC[:, c], truth_NC[:, c]) for c in range(len(task.labels))]


def at_thresholds(
    predictions: Sequence[Classified], task: Classification, thresholds: Sequence[float]
) -> list[Classified]:
    """The same answers with other thresholds."""
    limits = dict(zip(task.labels, thresholds, strict=True))
    return [replace(p, label=tuple(name for name, s in p.scores.items() if s >= limits[name])) for p in predictions]


def _scores(predictions: Sequence[Classified], task: Classification) -> NDArray[np.float64]:
    return np.array([[p.scores[label] for label in task.labels] for p in predictions])


def score(predictions: Sequence[Classified], examples: Sequence[TextExample], task: Task) -> dict[str, float]:
    """Metrics, the primary one first: accuracy, micro F1 of several labels, Spearman's correlation of numbers."""
    truth = _values(examples, task)
    if isinstance(task, Regression):
        said_N = np.array([p.label for p in predictions], np.float64)
        return {
            "spearman": correlation.spearman(truth, said_N),
            "pearson": correlation.pearson(truth, said_N),
            "mean_squared_error": correlation.mean_squared_error(truth, said_N),
            "mean_absolute_error": correlation.mean_absolute_error(truth, said_N),
            "r_squared": correlation.r_squared(truth, said_N),
        }
    scores_NC = _scores(predictions, task)
    counts = _counts(predictions, truth, task)
    if task.multi_label:
        return {
            "micro_f1": counts.micro().f1,
            "macro_f1": counts.macro().f1,
            "subset_accuracy": classification.subset_accuracy(truth, _said(predictions, task)),
            "average_precision": float(np.nanmean(classification.average_precision(truth, scores_NC)))
            if truth.any()
            else 0.0,
        }
    said = _said(predictions, task)
    return {
        "accuracy": classification.accuracy(truth, said),
        "macro_f1": counts.macro().f1,
        "weighted_f1": counts.weighted().f1,
        "matthews": classification.matthews(classification.confusion(truth, said, len(task.labels))),
        "log_loss": classification.log_loss(truth, scores_NC),
        "calibration_error": classification.expected_calibration_error(truth, scores_NC),
    }


def detail(predictions: Sequence[Classified], examples: Sequence[TextExample], task: Task) -> dict[str, Any]:
    """What the report draws: confusion, each label's figures, precision against recall; nothing for numbers."""
    if isinstance(task, Regression):
        return {}
    truth, counts = _values(examples, task), _counts(predictions, _values(examples, task), task)
    columns = (counts.labels, counts.precision_L, counts.recall_L, counts.f1_L, counts.support_L)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    found: dict[str, Any] = {
        "labels": [
            {"label": task.labels[at], "precision": p, "recall": r, "f1": f1, "support": support}
            for at, p, r, f1, support in rows
        ]
    }
    truth_NC = truth > 0 if task.multi_label else truth[:, None] == np.arange(len(task.labels))
    if not task.multi_label:
        matrix = classification.confusion(truth, _said(predictions, task), len(task.labels))
        kept = np.sort(np.argsort(-matrix.sum(1), kind="stable")[:_CONFUSED])
        found["confusion"] = {"labels": [task.labels[c] for c in kept], "counts": matrix[np.ix_(kept, kept)].tolist()}
    frequent = np.argsort(-truth_NC.sum(0), kind="stable")[:_CURVES]
    scores_NC = _scores(predictions, task)
    found["curves"] = {
        task.labels[c]: _curve(truth_NC[:, c], scores_NC[:, c]) for c in frequent if truth_NC[:, c].any()
    }
    return found


def _curve(truth_N: NDArray[np.bool_], scores_N: NDArray[np.float64]) -> dict[str, list[float]]:
    """Few enough points for a page."""
    curve = classification.precision_recall_curve(truth_N, scores_N)
    kept = np.unique(np.linspace(0, len(curve.recall_K) - 1, _POINTS).round().astype(int))
    return {"recall": curve.recall_K[kept].tolist(), "precision": curve.precision_K[kept].tolist()}


def _counts(predictions: Sequence[Classified], truth: NDArray[Any], task: Classification) -> classification.LabelCounts:
    said = _said(predictions, task)
    if task.multi_label:
        return classification.multi_label_counts(truth, said)
    return classification.label_counts(truth, said, len(task.labels))


def _said(predictions: Sequence[Classified], task: Classification) -> NDArray[Any]:
    """[N] the number of each label, or [N, C] whether it is among those said."""
    ids = {label: at for at, label in enumerate(task.labels)}
    if not task.multi_label:
        return np.array([ids[str(p.label)] for p in predictions], np.int64)
    said = np.zeros((len(predictions), len(ids)), bool)
    for row, prediction in enumerate(predictions):
        said[row, [ids[label] for label in prediction.label]] = True  # type: ignore[union-attr]
    return said
