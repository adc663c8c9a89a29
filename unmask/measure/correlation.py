"""How near do predicted numbers come to the true ones? Correlations and errors; all in float64.

Correlations and R² are nan where they are undefined: with fewer than two values, where one side is constant (it has no
spread that could be explained), and where a value is nan. nan is never a good score: a model that says the same of every
text has learned nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def pearson(truth_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """Do both rise and fall together, on a line? The product-moment correlation (Pearson 1895), -1 to 1."""
    truth, predicted = _pair(truth_N, predicted_N)
    if _undefined(truth) or _undefined(predicted):
        return math.nan
    return float(np.clip(_unit(truth) @ _unit(predicted), -1.0, 1.0))


def spearman(truth_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """Are both in the same order? Pearson's correlation of the ranks (Spearman 1904); equal values share their mean rank."""
    truth, predicted = _pair(truth_N, predicted_N)
    if _undefined(truth) or _undefined(predicted):
        return math.nan
    return pearson(ranks(truth), ranks(predicted))


def ranks(values_N: ArrayLike) -> Floats:
    """Places from 1 in rising order; equal values get the mean of their places."""
    _, group_N, sizes = np.unique(np.asarray(values_N, np.float64), return_inverse=True, return_counts=True)
    mean_places = np.cumsum(sizes) - (sizes - 1) / 2
    return mean_places[group_N]


def mean_squared_error(truth_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """The mean of the squared differences; nan of no values."""
    truth, predicted = _pair(truth_N, predicted_N)
    return float(np.square(truth - predicted).mean()) if len(truth) else math.nan


def mean_absolute_error(truth_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """The mean of the differences without their signs; nan of no values."""
    truth, predicted = _pair(truth_N, predicted_N)
    return float(np.abs(truth - predicted).mean()) if len(truth) else math.nan


def r_squared(truth_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """How much of the truth's variance is explained: 1 - squared errors / squared deviations from the true mean.

    0 is as good as always saying the mean; below 0 is worse. scikit-learn's definition but for a constant truth: nan here.
    """
    truth, predicted = _pair(truth_N, predicted_N)
    if _undefined(truth):
        return math.nan
    return float(1 - np.square(truth - predicted).sum() / np.square(truth - truth.mean()).sum())


def _pair(truth_N: ArrayLike, predicted_N: ArrayLike) -> tuple[Floats, Floats]:
    truth, predicted = np.asarray(truth_N, np.float64), np.asarray(predicted_N, np.float64)
    assert truth.shape == predicted.shape and truth.ndim == 1
    return truth, predicted


def _undefined(values_N: Floats) -> bool:
    return len(values_N) < 2 or bool(np.isnan(values_N).any()) or values_N.min() == values_N.max()


def _unit(values_N: Floats) -> Floats:
    """Deviations from the mean as a vector of length 1; scaled first, since squares of tiny numbers are 0."""
    deviations = values_N - values_N.mean()
    deviations = deviations / np.abs(deviations).max()
    return deviations / np.linalg.norm(deviations)
