from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from unmask.measure.correlation import mean_absolute_error, mean_squared_error, pearson, r_squared, ranks, spearman

# Few different values, so that ties are the rule.
pairs = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30).map(
    lambda rows: tuple(np.array(column) / 4 for column in zip(*rows, strict=True))
)


@settings(max_examples=80, deadline=None)
@given(pairs)
def test_correlations_and_errors_agree_with_scipy_and_scikit_learn(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    truth, predicted = drawn
    assert mean_squared_error(truth, predicted) == pytest.approx(metrics.mean_squared_error(truth, predicted))
    assert mean_absolute_error(truth, predicted) == pytest.approx(metrics.mean_absolute_error(truth, predicted))
    np.testing.assert_array_equal(ranks(truth), stats.rankdata(truth))
    if np.ptp(truth) == 0:
        assert math.isnan(r_squared(truth, predicted))
    else:
        assert r_squared(truth, predicted) == pytest.approx(metrics.r2_score(truth, predicted))
    if np.ptp(truth) == 0 or np.ptp(predicted) == 0:
        assert math.isnan(pearson(truth, predicted)) and math.isnan(spearman(truth, predicted))
    else:
        assert pearson(truth, predicted) == pytest.approx(stats.pearsonr(truth, predicted).statistic, abs=1e-12)
        assert spearman(truth, predicted) == pytest.approx(stats.spearmanr(truth, predicted).statistic, abs=1e-12)


def test_a_model_that_always_says_the_same_has_no_correlation() -> None:
    truth = [1.0, 2.0, 3.0]
    same = [0.1 + 0.2] * 3  # a constant whose mean is not itself after rounding
    assert math.isnan(pearson(truth, same)) and math.isnan(spearman(truth, same))
    assert math.isnan(pearson(same, truth)) and math.isnan(r_squared(same, truth))
    assert r_squared(truth, [2.0] * 3) == 0


@pytest.mark.parametrize("measure", [pearson, spearman])
def test_undefined_correlations_are_nan_without_a_warning(measure) -> None:  # type: ignore[no-untyped-def]
    for values in ([], [1.0], [1.0, math.nan, 2.0]):
        assert math.isnan(measure(values, [2.0, 5.0, 7.0][: len(values)]))


def test_nothing_to_score_is_nan() -> None:
    assert math.isnan(mean_squared_error([], [])) and math.isnan(mean_absolute_error([], []))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_correlation_does_not_depend_on_the_unit(scale: float) -> None:
    truth = np.array([0.1, 0.4, 0.2, 0.9])
    predicted = np.array([0.3, 0.5, 0.1, 0.8])
    assert pearson(truth * scale, predicted) == pytest.approx(pearson(truth, predicted))
    assert pearson(truth, truth * scale) == pytest.approx(1.0)
    assert pearson(truth, -truth) == -1.0 or pearson(truth, -truth) == pytest.approx(-1.0)


def test_half_precision_predictions_are_summed_in_full_precision() -> None:
    values = np.arange(5000)
    assert mean_squared_error(values.astype(np.float16) * 0 + 300, np.zeros(5000, np.float16)) == 90000
