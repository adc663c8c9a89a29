from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics

from unmask.measure.classification import (
    LabelCounts,
    accuracy,
    average_precision,
    best_threshold,
    confusion,
    expected_calibration_error,
    label_counts,
    log_loss,
    matthews,
    multi_label_counts,
    precision_recall_curve,
    subset_accuracy,
)

LABELS = 4
few = settings(max_examples=40, deadline=None)
one_label = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[arrays(np.int64, n, elements=st.integers(0, LABELS - 1)) for _ in range(2)])
)
many_labels = st.tuples(st.integers(1, 20), st.integers(1, 5)).flatmap(
    lambda shape: st.tuples(*[arrays(bool, shape) for _ in range(2)])
)
# Tenths, so that equal scores are frequent.
scored = st.integers(1, 30).flatmap(
    lambda n: st.tuples(arrays(bool, n), arrays(np.int64, n, elements=st.integers(0, 10)).map(lambda a: a / 10))
)


def agrees(ours: LabelCounts, truth: np.ndarray, predicted: np.ndarray) -> None:
    for average in ("micro", "macro", "weighted"):
        theirs = metrics.precision_recall_fscore_support(truth, predicted, average=average, zero_division=0)
        assert getattr(ours, average)() == pytest.approx(theirs[:3])
    *shares, support = metrics.precision_recall_fscore_support(truth, predicted, average=None, zero_division=0)
    for mine, share in zip((ours.precision_L, ours.recall_L, ours.f1_L), shares, strict=True):
        np.testing.assert_allclose(mine, share, rtol=1e-12)
    np.testing.assert_array_equal(ours.support_L, support)


@few
@given(one_label)
def test_scores_of_one_label_agree_with_scikit_learn(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    truth, predicted = drawn
    counts = label_counts(truth, predicted, LABELS)
    agrees(counts, truth, predicted)
    assert list(counts.labels) == sorted(set(truth) | set(predicted))
    assert accuracy(truth, predicted) == pytest.approx(metrics.accuracy_score(truth, predicted))
    assert counts.micro().f1 == pytest.approx(accuracy(truth, predicted))  # one label each: the three are one number


@pytest.mark.filterwarnings(
    "ignore:A single label was found:UserWarning"
)  # scikit-learn's, of a matrix it makes inside
@few
@given(one_label)
def test_confusion_and_matthews_agree_with_scikit_learn(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    truth, predicted = drawn
    matrix = confusion(truth, predicted, LABELS)
    np.testing.assert_array_equal(matrix, metrics.confusion_matrix(truth, predicted, labels=range(LABELS)))
    expected = metrics.matthews_corrcoef(truth, predicted)
    assert matthews(matrix) == pytest.approx(expected, abs=1e-12)


@few
@given(many_labels)
def test_scores_of_several_labels_agree_with_scikit_learn(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    truth, predicted = drawn
    assert subset_accuracy(truth, predicted) == pytest.approx((truth == predicted).all(1).mean())
    if truth.shape[1] > 1:  # scikit-learn takes a single column for one label each
        agrees(multi_label_counts(truth, predicted), truth, predicted)
        assert subset_accuracy(truth, predicted) == pytest.approx(metrics.accuracy_score(truth, predicted))


def test_a_label_that_is_never_predicted_or_never_true_scores_zero_and_divides_by_nothing() -> None:
    counts = label_counts([0, 0, 1], [0, 0, 2], 4)
    assert list(counts.labels) == [0, 1, 2]  # the fourth neither occurs nor is predicted
    assert counts.f1_L.tolist() == [1, 0, 0]
    assert counts.macro().f1 == pytest.approx(1 / 3)
    assert counts.weighted().f1 == pytest.approx(2 / 3)


def test_an_empty_set_of_labels_is_a_legal_answer() -> None:
    nothing = np.zeros((3, 2), bool)
    assert multi_label_counts(nothing, nothing).micro().f1 == 0
    assert subset_accuracy(nothing, nothing) == 1


def test_nothing_to_score_is_nan_or_zero_and_never_an_exception() -> None:
    assert math.isnan(accuracy([], []))
    assert math.isnan(log_loss([], np.zeros((0, 3))))
    assert math.isnan(expected_calibration_error([], np.zeros((0, 3))))
    assert label_counts([], [], 3).macro() == (0, 0, 0)
    assert matthews(confusion([], [], 3)) == 0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_log_loss_agrees_with_scikit_learn_even_where_the_truth_had_probability_zero(kind: type) -> None:
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(3), 20).astype(kind)
    probabilities[0] = [0, 1, 0]
    truth = rng.integers(0, 3, 20)
    truth[0] = 0
    probabilities /= probabilities.sum(1, keepdims=True)
    expected = metrics.log_loss(truth, probabilities, labels=[0, 1, 2])
    assert log_loss(truth, probabilities) == pytest.approx(expected, rel=1e-6)
    assert log_loss(truth, probabilities) < 40


def slow_calibration_error(truth: np.ndarray, probabilities: np.ndarray, bins: int) -> float:
    total = 0.0
    for m in range(bins):
        inside = [
            (row.max(), row.argmax() == label)
            for row, label in zip(probabilities, truth, strict=True)
            if m / bins < row.max() <= (m + 1) / bins
        ]
        if inside:
            confidence, right = np.mean([c for c, _ in inside]), np.mean([r for _, r in inside])
            total += len(inside) / len(truth) * abs(right - confidence)
    return total


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_error_agrees_with_its_definition(bins: int) -> None:
    rng = np.random.default_rng(bins)
    probabilities, truth = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    assert expected_calibration_error(truth, probabilities, bins) == pytest.approx(
        slow_calibration_error(truth, probabilities, bins)
    )


def test_calibration_error_has_the_value_worked_by_hand() -> None:
    sure = [[0.9, 0.1]] * 10
    assert expected_calibration_error([0] * 9 + [1], sure) == pytest.approx(0)  # nine of ten right, as it says
    assert expected_calibration_error([1] * 10, sure) == pytest.approx(0.9)
    assert expected_calibration_error([0], [[1.0, 0.0]]) == 0
    edge = [[0.5, 0.5], [0.9, 0.1]]  # a bin has its upper edge: 0.5 is in the first of two, 0.9 in the second
    assert expected_calibration_error([0, 1], edge, bins=2) == pytest.approx((0.5 + 0.9) / 2)


@few
@given(scored)
def test_the_precision_recall_curve_agrees_with_scikit_learn(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    truth, scores = drawn
    curve = precision_recall_curve(truth, scores)
    if not truth.any():
        assert np.isnan(curve.recall_K).all()
        assert np.isnan(average_precision(truth[:, None], scores[:, None])).all()
        return
    precision, recall, threshold = metrics.precision_recall_curve(truth, scores)
    np.testing.assert_allclose(curve.threshold_K[::-1], threshold)
    np.testing.assert_allclose(curve.precision_K[::-1], precision[:-1])
    np.testing.assert_allclose(curve.recall_K[::-1], recall[:-1])
    assert average_precision(truth[:, None], scores[:, None])[0] == pytest.approx(
        metrics.average_precision_score(truth, scores)
    )


def test_average_precision_is_one_number_for_each_label() -> None:
    truth = np.array([[1, 0], [0, 0], [1, 0]])
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.3]])
    first, second = average_precision(truth, scores)
    assert first == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert math.isnan(second)  # never true: there is nothing to find


@few
@given(scored)
def test_the_best_threshold_reaches_the_best_f1_with_the_fewest_chosen(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    truth, scores = drawn
    threshold = best_threshold(scores, truth)
    if not truth.any():
        assert threshold == 0.5
        return
    f1 = {t: metrics.f1_score(truth, scores >= t) for t in sorted(set(scores), reverse=True)}
    assert metrics.f1_score(truth, scores >= threshold) == max(f1.values())
    strictest = next(t for t, value in f1.items() if value == max(f1.values()))
    np.testing.assert_array_equal(scores >= threshold, scores >= strictest)
    order = np.random.default_rng(0).permutation(len(scores))
    assert best_threshold(scores[order], truth[order]) == threshold


def test_of_equally_good_thresholds_the_largest_is_taken() -> None:
    threshold = best_threshold([0.9, 0.7, 0.5, 0.3], [1, 0, 0, 1])
    assert threshold == pytest.approx(0.8)  # F1 is 2/3 for one chosen and for all four


def test_the_best_threshold_stands_clear_of_every_score() -> None:
    assert best_threshold([0.9, 0.7, 0.3, 0.1], [1, 1, 0, 0]) == pytest.approx(0.5)
    assert best_threshold([0.9, 0.7], [1, 1]) == 0.7  # nothing below: all are let in
    above = np.nextafter(0.5, 1)
    assert best_threshold([above, 0.5], [1, 0]) == above  # no number lies between
    assert best_threshold([0.4, 0.4, 0.2], [True, False, False]) == pytest.approx(0.3)
