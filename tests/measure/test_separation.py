"""Clusters, silhouettes and pictures beside scikit-learn's, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.measure.separation import (
    choose_clusters,
    cosines,
    gap,
    k_means,
    lloyd,
    principal_axes,
    purity,
    silhouette,
    unit,
)

cluster = pytest.importorskip("sklearn.cluster")
decomposition = pytest.importorskip("sklearn.decomposition")
metrics = pytest.importorskip("sklearn.metrics")


def blobs(seed: int, groups: int = 3, each: int = 12, width: int = 7, noise: float = 0.5) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(groups, width)) * 1.5 + 1
    group_U = np.repeat(np.arange(groups), each)
    return unit(centres[group_U] + random.normal(scale=noise, size=(groups * each, width))), group_U


def test_the_gap_is_that_of_all_pairs_counted_one_by_one() -> None:
    unit_UD, group_U = blobs(0)
    within, between = [], []
    for i in range(len(unit_UD)):
        for j in range(len(unit_UD)):
            if i != j:
                cosine = float(np.dot(unit_UD[i], unit_UD[j]))
                (within if group_U[i] == group_U[j] else between).append(cosine)
    found = gap(cosines(unit_UD), group_U)
    assert found == pytest.approx((np.mean(within), np.mean(between)))
    assert found.size == pytest.approx(np.mean(within) - np.mean(between)) and found.size > 0
    assert math.isnan(gap(cosines(unit_UD), np.zeros(36)).between)


@pytest.mark.parametrize("seed", range(4))
def test_the_silhouette_is_scikit_learn_s(seed: int) -> None:
    unit_UD, group_U = blobs(seed, noise=2.0)
    group_U[0] = 7  # one alone
    wanted = metrics.silhouette_score(unit_UD, group_U, metric="cosine")
    assert silhouette(cosines(unit_UD), group_U) == pytest.approx(wanted, abs=1e-9)
    assert math.isnan(silhouette(cosines(unit_UD), np.zeros(len(unit_UD))))


def test_lloyd_goes_where_scikit_learn_goes_from_the_same_start() -> None:
    unit_UD, _ = blobs(3, noise=1.5)
    start = unit_UD[[0, 1, 20]]
    theirs = cluster.KMeans(3, init=start, n_init=1, algorithm="lloyd", tol=0).fit(unit_UD)
    found_U, inertia = lloyd(unit_UD, start)
    assert (found_U == theirs.labels_).all() and inertia == pytest.approx(theirs.inertia_)


@pytest.mark.parametrize("seed", range(3))
def test_k_means_finds_what_scikit_learn_s_many_tries_find(seed: int) -> None:
    unit_UD, group_U = blobs(seed, noise=1.0)
    found_U = k_means(unit_UD, 3)
    inertia = sum(((unit_UD[found_U == c] - unit_UD[found_U == c].mean(0)) ** 2).sum() for c in range(3))
    theirs = cluster.KMeans(3, n_init=50, random_state=0).fit(unit_UD)
    assert inertia <= theirs.inertia_ * 1.02
    assert (k_means(unit_UD, 3) == found_U).all() and found_U[0] == 0


def test_as_many_clusters_are_chosen_as_there_are() -> None:
    for groups in (2, 3, 5):
        unit_UD, group_U = blobs(groups, groups, noise=0.1)
        found_U = choose_clusters(unit_UD, cosines(unit_UD))
        assert purity(found_U, group_U) == 1 and found_U.max() + 1 == groups


def test_vectors_that_are_all_equal_have_no_clusters_and_no_picture() -> None:
    same = unit(np.tile(np.random.default_rng(0).normal(size=300).astype(np.float32), (9, 1)))
    assert (cosines(same) == 1).all()
    assert (k_means(same, 3) == 0).all() and (choose_clusters(same, cosines(same)) == 0).all()
    assert silhouette(cosines(same), [0] * 4 + [1] * 5) == 0
    assert (principal_axes(same).points_U2 == 0).all()
    assert gap(cosines(same), [0] * 4 + [1] * 5).size == 0


def test_a_zero_vector_is_like_nothing() -> None:
    cosine_UU = cosines(unit(np.array([[1.0, 0], [0, 0], [3, 4]])))
    assert cosine_UU == pytest.approx(np.array([[1, 0, 0.6], [0, 0, 0], [0.6, 0, 1]]))


def test_purity_by_hand() -> None:
    # Manning et al. 2008, figure 16.4: (5 + 4 + 3) / 17
    clusters = [0] * 6 + [1] * 6 + [2] * 5
    senses = [*"xxxxxo", *"xoooo.", *"xx..."]
    assert purity(clusters, senses) == pytest.approx(12 / 17)
    assert purity([0] * 5, [*"aabbb"]) == pytest.approx(0.6) and purity(range(5), [*"aabbb"]) == 1


@pytest.mark.parametrize("shape", [(30, 8), (6, 40)])
def test_the_picture_is_scikit_learn_s_whatever_the_sign(shape: tuple[int, int]) -> None:
    points = np.random.default_rng(1).normal(size=shape) * np.linspace(3, 1, shape[1])
    found = principal_axes(points)
    theirs = decomposition.PCA(2, svd_solver="full").fit(points)
    wanted = theirs.transform(points)
    assert np.abs(found.points_U2) == pytest.approx(np.abs(wanted), abs=1e-9)
    assert found.share_2 == pytest.approx(theirs.explained_variance_ratio_)
    assert principal_axes(-points).points_U2 == pytest.approx(-found.points_U2)  # the axes keep their sign


def test_one_number_a_vector_makes_a_line() -> None:
    found = principal_axes(np.array([[1.0], [2.0], [4.0]]))
    assert found.points_U2[:, 1].tolist() == [0, 0, 0] and found.share_2.tolist() == [1, 0]


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_clusters_are_numbered_without_holes_and_never_more_than_asked(seed: int, count: int, clusters: int) -> None:
    points = np.random.default_rng(seed).integers(0, 3, (count, 2)).astype(np.float64)
    found = k_means(points, clusters)
    assert sorted(set(found.tolist())) == list(range(found.max() + 1)) and found.max() < clusters
    for one in range(count):
        for other in range(count):
            assert found[one] == found[other] or (points[one] != points[other]).any()
