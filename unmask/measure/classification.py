"""How good is a classifier? Scores of one label for each example, of several, and of the probabilities themselves.

Labels are whole numbers from 0. Every share lies between 0 and 1. Where a share would be divided by nothing (precision of a
label that is never predicted, recall of one that never occurs) it is 0, as in scikit-learn. No examples at all: nan.

Legend: N examples, L labels, K thresholds, M bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Scores(NamedTuple):
    """Precision: how much of what was predicted is right; recall: how much of what is true was found; F1: both."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class LabelCounts:
    """The table of labels: how often each was predicted rightly, predicted at all, and true. A row for each label that counts.

    Averages as scikit-learn names them: micro pools the counts, macro is the mean over the rows, weighted the mean over the
    rows by support. All are 0 where there are no rows.
    """

    labels: Ints
    right_L: Ints
    predicted_L: Ints
    support_L: Ints

    @property
    def precision_L(self) -> Floats:
        return _shares(self.right_L, self.predicted_L)

    @property
    def recall_L(self) -> Floats:
        return _shares(self.right_L, self.support_L)

    @property
    def f1_L(self) -> Floats:
        """2 PR / (P + R), which is twice the right ones out of all that are predicted or true."""
        return _shares(2 * self.right_L, self.predicted_L + self.support_L)

    def micro(self) -> Scores:
        pooled = (counts.sum(keepdims=True) for counts in (self.right_L, self.predicted_L, self.support_L))
        return LabelCounts(np.zeros(1, np.int64), *pooled).macro()

    def macro(self) -> Scores:
        return self._mean(np.ones(len(self.labels)))

    def weighted(self) -> Scores:
        return self._mean(self.support_L.astype(np.float64))

    def _mean(self, weights_L: Floats) -> Scores:
        whole = weights_L.sum() or 1.0
        means = [float(values_L @ weights_L / whole) for values_L in (self.precision_L, self.recall_L, self.f1_L)]
        return Scores(*means)


def label_counts(truth_N: ArrayLike, predicted_N: ArrayLike, num_labels: int) -> LabelCounts:
    """The table where each example has one label: a row for each label that occurs or is predicted, as in scikit-learn."""
    truth, predicted = _numbers(truth_N, num_labels), _numbers(predicted_N, num_labels)
    support = np.bincount(truth, minlength=num_labels)
    given = np.bincount(predicted, minlength=num_labels)
    right = np.bincount(truth[truth == predicted], minlength=num_labels)
    labels = np.flatnonzero(support + given)
    return LabelCounts(labels, right[labels], given[labels], support[labels])


def multi_label_counts(truth_NL: ArrayLike, predicted_NL: ArrayLike) -> LabelCounts:
    """The table where an example has any number of labels (true or false for each): a row for every label, as in
    scikit-learn, so that one which never occurs and is never predicted counts as 0 in the macro average."""
    truth, predicted = np.asarray(truth_NL, bool), np.asarray(predicted_NL, bool)
    assert truth.shape == predicted.shape and truth.ndim == 2
    columns = [counted.sum(0, dtype=np.int64) for counted in (truth & predicted, predicted, truth)]
    return LabelCounts(np.arange(truth.shape[1]), *columns)


def accuracy(truth_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """The share of examples whose label is right."""
    return _mean(np.asarray(truth_N) == np.asarray(predicted_N))


def subset_accuracy(truth_NL: ArrayLike, predicted_NL: ArrayLike) -> float:
    """The share of examples all of whose labels are right (exact match ratio)."""
    return _mean((np.asarray(truth_NL, bool) == np.asarray(predicted_NL, bool)).all(-1))


def confusion(truth_N: ArrayLike, predicted_N: ArrayLike, num_labels: int) -> Ints:
    """How often label `row` was taken for label `column` [L, L]."""
    truth, predicted = _numbers(truth_N, num_labels), _numbers(predicted_N, num_labels)
    pairs = np.bincount(truth * num_labels + predicted, minlength=num_labels**2)
    return pairs.reshape(num_labels, num_labels)


def matthews(confusion_LL: ArrayLike) -> float:
    """Matthews correlation of a confusion matrix, for any number of labels (Gorodkin 2004, equation 8).

    1: all right, 0: no better than chance, and 0 also where truth or predictions are all of one label (scikit-learn too).
    """
    counts_LL = np.asarray(confusion_LL, np.float64)
    truth_L, predicted_L, whole = counts_LL.sum(1), counts_LL.sum(0), counts_LL.sum()
    spread = (whole**2 - truth_L @ truth_L) * (whole**2 - predicted_L @ predicted_L)
    return float((np.trace(counts_LL) * whole - truth_L @ predicted_L) / math.sqrt(spread)) if spread > 0 else 0.0


def log_loss(truth_N: ArrayLike, probabilities_NL: NDArray[Any]) -> float:
    """The mean of -ln p(true label), in nats (cross entropy; Good 1952).

    A probability of 0 counts as the smallest step of its float type, as in scikit-learn: one sure mistake is dear, not
    infinitely so.
    """
    least = np.finfo(probabilities_NL.dtype).eps
    truth = _numbers(truth_N, probabilities_NL.shape[1])
    true_N = probabilities_NL[np.arange(len(truth)), truth].astype(np.float64)
    return _mean(-np.log(np.clip(true_N, least, 1 - least)))


def expected_calibration_error(truth_N: ArrayLike, probabilities_NL: ArrayLike, bins: int = 15) -> float:
    """How far confidence and accuracy lie apart on average (Guo et al. 2017, equation 3; 15 bins in their section 4).

    The probability of the likeliest label falls into one of `bins` equal bins, each closed above; the gaps between a bin's
    mean confidence and its accuracy are weighed by its examples. 0: of what it holds to be 80 % sure, 80 % is right.
    """
    probabilities = np.asarray(probabilities_NL, np.float64)
    if not len(probabilities):
        return math.nan
    right_N = probabilities.argmax(1) == np.asarray(truth_N)
    confidence_N = probabilities.max(1)
    bin_N = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence_N, side="left")
    gaps_M = np.bincount(bin_N, right_N - confidence_N, minlength=bins)
    return float(np.abs(gaps_M).sum() / len(probabilities))


class Curve(NamedTuple):
    """Precision and recall of "score >= threshold", from the strictest threshold to the loosest; nan recall: none is true."""

    threshold_K: Floats
    precision_K: Floats
    recall_K: Floats


def precision_recall_curve(truth_N: ArrayLike, scores_N: ArrayLike) -> Curve:
    """The curve of a yes-or-no question: a point for each different score (scikit-learn's, from its other end, without the
    point of recall 0 that belongs to no threshold)."""
    steps = _steps(truth_N, scores_N)
    recall_K = steps.right_K / steps.true if steps.true else np.full(len(steps.right_K), math.nan)
    return Curve(steps.threshold_K, steps.right_K / steps.chosen_K, recall_K)


def average_precision(truth_NL: ArrayLike, scores_NL: ArrayLike) -> Floats:
    """The area under each label's precision-recall curve as a sum of steps, sum_k (R_k - R_(k-1)) P_k [L].

    scikit-learn's definition, equal scores as one step; nan where a label never occurs (scikit-learn: 0 and a warning).
    """
    columns = zip(np.asarray(truth_NL).T, np.asarray(scores_NL).T, strict=True)
    curves = [precision_recall_curve(truth_N, scores_N) for truth_N, scores_N in columns]
    return np.array([np.diff(c.recall_K, prepend=0.0) @ c.precision_K if len(c.recall_K) else math.nan for c in curves])


def best_threshold(scores_N: ArrayLike, truth_N: ArrayLike, otherwise: float = 0.5) -> float:
    """The threshold with the best F1 of "score >= threshold"; of equally good ones the largest.

    It lies halfway between the lowest score that it lets in and the next one below, so that rounding in a later run moves
    no example across. `otherwise` where no example is true: F1 is 0 whatever the threshold.
    """
    steps = _steps(truth_N, scores_N)
    if not steps.true:
        return otherwise
    best = int(np.argmax(2 * steps.right_K / (steps.chosen_K + steps.true)))  # the first of equals is the strictest
    at = float(steps.threshold_K[best])
    if best + 1 == len(steps.threshold_K):
        return at
    below = float(steps.threshold_K[best + 1])
    halfway = below + (at - below) / 2
    return halfway if halfway > below else at


class _Steps(NamedTuple):
    """What each different score as a threshold lets in, strictest first: how many, and how many of them are true."""

    threshold_K: Floats
    chosen_K: Ints
    right_K: Ints
    true: int


def _steps(truth_N: ArrayLike, scores_N: ArrayLike) -> _Steps:
    truth, scores = np.asarray(truth_N, bool), np.asarray(scores_N, np.float64)
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    last_of_equals = np.append(falling[1:] != falling[:-1], True)[: len(falling)]
    at = np.flatnonzero(last_of_equals)
    return _Steps(falling[at], at + 1, np.cumsum(truth[order])[at], int(truth.sum()))


def _numbers(labels_N: ArrayLike, num_labels: int) -> Ints:
    labels = np.asarray(labels_N, np.int64)
    assert labels.ndim == 1 and (not len(labels) or 0 <= labels.min() <= labels.max() < num_labels)
    return labels


def _shares(part: Ints, whole: Ints) -> Floats:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


def _mean(values_N: NDArray[Any]) -> float:
    return float(values_N.mean()) if len(values_N) else math.nan
