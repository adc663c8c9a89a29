"""Do vectors fall apart into the groups they should? Cosines, clusters, how clear they are, and a picture. NumPy alone.

Legend: U vectors (uses of a word), D their numbers, K clusters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.randomness import generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SAME = 1e-9  # a distance below is rounding
_TRIES, _ROUNDS = 8, 100  # of k-means
_STREAM = 0x6B6D  # keeps its draws apart from those for other ends


def unit(vectors_UD: NDArray[np.floating]) -> Floats:
    """[U, D] every vector at length 1, in float64; zero ones stay zero."""
    wide_UD = np.asarray(vectors_UD, np.float64)
    lengths_U = np.linalg.norm(wide_UD, axis=1, keepdims=True)
    return wide_UD / np.where(lengths_U > 0, lengths_U, 1)


def cosines(unit_UD: Floats) -> Floats:
    """[U, U] of all pairs of vectors of length 1; a vector and itself, or its equal, give exactly 1."""
    cosine_UU = unit_UD @ unit_UD.T
    np.fill_diagonal(cosine_UU, np.diag(cosine_UU).round(9))
    return np.where(np.abs(1 - cosine_UU) < _SAME, 1.0, cosine_UU)


class Gap(NamedTuple):
    """Mean cosine of pairs from one group, and of pairs from different ones; nan where there is no such pair."""

    within: float
    between: float

    @property
    def size(self) -> float:
        """How much nearer a vector is to its own group: 0 for vectors that know nothing of it."""
        return self.within - self.between


def gap(cosine_UU: Floats, group_U: ArrayLike) -> Gap:
    """Σ cos(i, j) / pairs over i ≠ j with equal groups, and over those with different ones.

    The first, with all uses of a word as one group, is the self-similarity of Ethayarajh (2019, section 3.2). What all vectors
    of a layer have in common (their anisotropy) raises both alike, and goes out of the difference.
    """
    groups = np.asarray(group_U)
    same_UU = groups[:, None] == groups
    pairs_UU = ~np.eye(len(groups), dtype=np.bool_)
    return Gap(_mean(cosine_UU[same_UU & pairs_UU]), _mean(cosine_UU[~same_UU]))


def silhouette(cosine_UU: Floats, group_U: ArrayLike) -> float:
    """The mean of (b - a) / max(a, b), by distances 1 - cos: a to the rest of the own group, b to the nearest other group.

    Rousseeuw (1987, section 2): 1 apart, 0 no groups, below 0 wrong ones. The only vector of a group counts as 0 there, and so
    do vectors that are all equal. nan for fewer than two groups.
    """
    names, groups = np.unique(np.asarray(group_U), return_inverse=True)
    if len(names) < 2:
        return math.nan
    member_UK = (groups[:, None] == np.arange(len(names))).astype(np.float64)
    size_K = member_UK.sum(0)
    sums_UK = np.maximum(1 - cosine_UU, 0) @ member_UK
    own = np.arange(len(groups)), groups
    own_size_U = size_K[groups]
    a_U = sums_UK[own] / np.maximum(own_size_U - 1, 1)
    means_UK = sums_UK / size_K
    means_UK[own] = np.inf
    b_U = means_UK.min(1)
    most_U = np.maximum(a_U, b_U)
    known_U = (own_size_U > 1) & (most_U > _SAME)
    return float(np.where(known_U, (b_U - a_U) / np.where(known_U, most_U, 1), 0).mean())


def purity(cluster_U: ArrayLike, sense_U: ArrayLike) -> float:
    """The share of vectors that are of the commonest sense of their cluster (Manning, Raghavan and Schütze 2008, section 16.3).

    One cluster of all has the share of the commonest sense; as many clusters as vectors have 1.
    """
    clusters, senses = (np.unique(np.asarray(x), return_inverse=True)[1] for x in (cluster_U, sense_U))
    table = np.zeros((clusters.max() + 1, senses.max() + 1), np.int64)
    np.add.at(table, (clusters, senses), 1)
    return float(table.max(1).sum() / len(clusters))


def k_means(points_UD: Floats, clusters: int, *, seed: int = 0) -> Ints:
    """[U] the cluster of each point, numbered as they first occur; fewer clusters where fewer points differ.

    Lloyd's rounds from the starts of k-means++ (Arthur and Vassilvitskii 2007, section 2.2), the best of 8 tries. For vectors of
    length 1 a squared distance is 2 (1 - cos), so these are clusters by cosine.
    """
    rng = generator(seed, _STREAM)
    tries = [lloyd(points_UD, _starts(points_UD, clusters, rng)) for _ in range(_TRIES)]
    best = min(range(_TRIES), key=lambda at: (round(tries[at][1], 9), at))
    return _renumbered(tries[best][0])


def choose_clusters(unit_UD: Floats, cosine_UU: Floats, most: int = 8, *, seed: int = 0) -> Ints:
    """`k_means` with the number of clusters, 2 to `most`, whose silhouette is the greatest: the way Rousseeuw (1987, section 4)
    chooses it. All 0 where the vectors do not differ."""
    best, score = np.zeros(len(unit_UD), np.int64), -math.inf
    for count in range(2, min(most, len(unit_UD) - 1) + 1):
        found_U = k_means(unit_UD, count, seed=seed)
        if found_U.max() > 0 and (clear := silhouette(cosine_UU, found_U)) > score + _SAME:
            best, score = found_U, clear
    return best


def lloyd(points_UD: Floats, centres_KD: Floats) -> tuple[Ints, float]:
    """[U] the nearest centre of each point once centres are the means of their points, and the sum of squared distances."""
    nearest_U = np.full(len(points_UD), -1)
    for _ in range(_ROUNDS):
        squares_UK = _squares(points_UD, centres_KD)
        found_U = squares_UK.argmin(1)
        if (found_U == nearest_U).all():
            break
        nearest_U = found_U
        member_KU = (nearest_U == np.arange(len(centres_KD))[:, None]).astype(np.float64)
        size_K = member_KU.sum(1, keepdims=True)
        centres_KD = np.where(size_K > 0, member_KU @ points_UD / np.maximum(size_K, 1), centres_KD)
    return nearest_U, float(_squares(points_UD, centres_KD).min(1).sum())


class Picture(NamedTuple):
    """Points in the plane, and the share of all variance that each of the two directions has."""

    points_U2: Floats
    share_2: Floats


def principal_axes(points_UD: Floats) -> Picture:
    """The two directions in which points differ most (PCA), as they lie there around 0.

    A direction has no sign of its own: of its numbers the greatest counts as positive, so that a picture is the same each time.
    """
    centred_UD = points_UD - points_UD.mean(0)
    left_UR, strength_R, right_RD = np.linalg.svd(centred_UD, full_matrices=False)
    variance_R = strength_R**2
    whole = variance_R.sum()
    if whole < _SAME:
        return Picture(np.zeros((len(points_UD), 2)), np.zeros(2))
    sign_R = np.sign(right_RD[np.arange(len(right_RD)), np.abs(right_RD).argmax(1)])
    points_UR = left_UR * (strength_R * sign_R)
    missing = max(0, 2 - points_UR.shape[1])  # vectors of one number
    points_U2 = np.pad(points_UR, ((0, 0), (0, missing)))[:, :2]
    return Picture(points_U2, np.pad(variance_R / whole, (0, missing))[:2])


def _starts(points_UD: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """[K, D] points drawn one after the other, the far ones likelier; as many as differ, and `clusters` at most."""
    centres = [points_UD[int(rng.integers(len(points_UD)))]]
    square_U = _squares(points_UD, centres[0][None])[:, 0]
    while len(centres) < clusters and (whole := square_U.sum()) > 0:
        centres.append(points_UD[int(rng.choice(len(points_UD), p=square_U / whole))])
        square_U = np.minimum(square_U, _squares(points_UD, centres[-1][None])[:, 0])
    return np.array(centres)


def _squares(points_UD: Floats, centres_KD: Floats) -> Floats:
    """[U, K] squared distances; 0 where they are rounding."""
    squares = (points_UD**2).sum(1)[:, None] - 2 * points_UD @ centres_KD.T + (centres_KD**2).sum(1)
    return np.where(squares < _SAME, 0.0, squares)


def _renumbered(cluster_U: Ints) -> Ints:
    _, first, numbers_U = np.unique(cluster_U, return_index=True, return_inverse=True)
    return first.argsort().argsort()[numbers_U]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan
