"""Words are kept, and drawn as negatives, as often as the papers say; Huffman codes are the shortest there are."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.static.sampling import ALWAYS, alias_table, huffman, keep_thresholds

counts_of_words = st.lists(st.integers(1, 10_000), min_size=1, max_size=60).map(
    lambda counts: np.array(sorted(counts, reverse=True), np.int64)
)


def test_frequent_words_are_kept_by_the_formula_of_the_program_and_rare_ones_always():
    counts = np.array([900_000, 90_000, 9_000, 900, 100])
    share = counts / counts.sum()
    kept = np.minimum(1, np.sqrt(1e-3 / share) + 1e-3 / share)
    np.testing.assert_allclose(keep_thresholds(counts, 1e-3) / ALWAYS, kept, rtol=1e-6)
    assert (keep_thresholds(counts, 1e-3)[-2:] == ALWAYS).all()
    assert (keep_thresholds(counts, 0.0) == ALWAYS).all()


@settings(deadline=None)  # the first example compiles
@given(counts_of_words)
def test_the_alias_table_draws_each_word_by_its_power(counts):
    alias = alias_table(counts)
    own = (alias & np.uint64(2**32 - 1)).astype(np.float64) / ALWAYS
    other = (alias >> np.uint64(32)).astype(np.int64)
    drawn = own.copy()
    np.add.at(drawn, other, 1 - own)
    weight = counts.astype(np.float64) ** 0.75
    np.testing.assert_allclose(drawn / len(counts), weight / weight.sum(), rtol=1e-6, atol=1e-9)


@settings(deadline=None)  # the first example compiles
@given(counts_of_words)
def test_huffman_codes_are_prefix_free_and_as_short_as_can_be(counts):
    offsets, points, codes = huffman(counts)
    words = ["".join(map(str, codes[a:b])) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    assert len(set(words)) == len(words)
    assert not any(a != b and b.startswith(a) for a in words for b in words)
    assert sum(len(word) * n for word, n in zip(words, counts.tolist(), strict=True)) == _least(counts)
    assert len(points) == len(codes) and (len(counts) == 1 or set(points) == set(range(len(counts) - 1)))


def _least(counts: np.ndarray) -> int:
    """What an optimal code spends: the sum of all inner nodes' weights."""
    heap, total = counts.tolist(), 0
    heapq.heapify(heap)
    while len(heap) > 1:
        total += (both := heapq.heappop(heap) + heapq.heappop(heap))
        heapq.heappush(heap, both)
    return total


@pytest.mark.parametrize("words", [1, 2, 3, 50])
def test_the_probabilities_of_all_words_sum_to_one(words):
    rng = np.random.default_rng(words)
    offsets, points, codes = huffman(np.sort(rng.integers(1, 1000, words))[::-1])
    scores = rng.normal(0, 2, max(1, words - 1))  # of the inner nodes, for some input
    steps = 1 / (1 + np.exp(-np.where(codes == 0, 1, -1) * scores[points]))
    total = sum(np.prod(steps[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True))
    assert total == pytest.approx(1, abs=1e-12)


def test_each_path_begins_at_the_root():
    offsets, points, _ = huffman(np.array([50, 30, 20, 10, 5]))
    assert set(points[offsets[:-1]]) == {3}
