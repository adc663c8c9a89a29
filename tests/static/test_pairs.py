from __future__ import annotations

import builtins
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_ids import tokens_of

from unmask.errors import DiskError
from unmask.static import pairs, tensor_file
from unmask.static.pairs import TILE, Pairs, count, unit_of


def brute_force(lines: list[list[int]], window: int) -> dict[tuple[int, int], Fraction]:
    """Every two places of a line, (i, j) and (j, i) both: section 4.2 to the letter."""
    found: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for line in lines:
        for i, one in enumerate(line):
            for j, other in enumerate(line):
                if i != j and abs(i - j) <= window:
                    found[one, other] += Fraction(1, abs(i - j))
    return dict(found)


def as_dict(found: Pairs) -> dict[tuple[int, int], float]:
    counted = {}
    for tile, (row, column) in enumerate(found.corners.tolist()):
        for at in range(found.tiles[tile], found.tiles[tile + 1]):
            high, low = row + int(found.high[at]), column + int(found.low[at])
            assert (high, low) not in counted and high >= low
            counted[high, low] = counted[low, high] = float(found.counts[at])
    return counted


WORDS = st.sampled_from([0, 1, 2, 3, 254, 255, 256, 257, 600])


@settings(deadline=None, max_examples=60)  # the first example compiles
@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=12), max_size=6),
    st.integers(1, 7),
    st.sampled_from([1, 80, 400, 1 << 20]),  # stretches of 1, 5, 25 words, and one
)
def test_counts_are_those_of_brute_force_however_often_memory_was_full(lines, window, memory):
    with TemporaryDirectory() as folder:
        found = count(tokens_of(lines, 601), Path(folder), window=window, memory=memory)
        wanted = {pair: float(np.float32(value)) for pair, value in brute_force(lines, window).items()}
        assert as_dict(found) == wanted
        assert found.num_ordered == len(wanted)


def test_putting_aside_changes_nothing_at_all(tmp_path):
    """The same pairs in the same order: memory decides how fast counting is, nothing else."""
    random = np.random.default_rng(0)
    tokens = tokens_of([random.zipf(1.3, 40).clip(1, 900).tolist() for _ in range(300)], 901)
    prints = set()
    for memory in (1 << 12, 1 << 16, 1 << 24):
        (folder := tmp_path / str(memory)).mkdir()
        prints.add(count(tokens, folder, window=8, memory=memory).fingerprint)
        assert sorted(path.name for path in folder.iterdir()) == ["corners", "counts", "high", "low", "tiles"]
    assert len(prints) == 1


def test_rows_of_a_tile_stand_together_in_random_order_and_another_for_another_seed(tmp_path):
    tokens = tokens_of([list(range(200))], 200)
    orders = []
    for seed in (0, 1):
        (folder := tmp_path / str(seed)).mkdir()
        found = count(tokens, folder, window=9, memory=1 << 20, seed=seed)
        assert found.high.tolist() == sorted(found.high)
        orders.append(list(zip(found.high.tolist(), found.low.tolist(), strict=True)))
    assert orders[0] != sorted(orders[0]) and orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    firsts = [low - high for (high, low), (before, _) in pairwise(orders[0]) if high != before >= 9]
    assert len(set(firsts)) > 5  # any of the nine may come first


def test_a_row_of_tiles_beyond_memory_is_counted_some_columns_at_a_time(tmp_path):
    random = np.random.default_rng(0)
    lines = [random.integers(0, 600, 200).tolist() for _ in range(24)]
    tokens, found = tokens_of(lines, 601), []
    for memory in (1 << 26, 1 << 20):
        (folder := tmp_path / str(memory)).mkdir()
        found.append(count(tokens, folder, window=20, memory=memory))
    assert found[0].fingerprint == found[1].fingerprint
    assert as_dict(found[1]) == {pair: float(np.float32(value)) for pair, value in brute_force(lines, 20).items()}


def test_tiles_hold_what_lies_in_them(tmp_path):
    tokens = tokens_of([[0, 300, 700, 300]], 701)
    found = count(tokens, tmp_path, window=2, memory=1 << 20)
    assert sorted(found.corners.tolist()) == [[TILE, 0], [TILE, TILE], [2 * TILE, 0], [2 * TILE, TILE]]
    assert sorted(as_dict(found)) == [(0, 300), (0, 700), (300, 0), (300, 300), (300, 700), (700, 0), (700, 300)]


@pytest.mark.parametrize("window", [1, 5, 10, 20])
def test_distances_of_usual_windows_are_whole_multiples_of_the_unit(window):
    assert all(unit_of(window) % distance == 0 for distance in range(1, window + 1))


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    """NumPy's own way of writing keeps silent."""
    full = lambda path, mode: builtins.open("/dev/full", mode)  # noqa: E731
    monkeypatch.setattr(pairs, "open", full, raising=False)
    monkeypatch.setattr(tensor_file, "open", full, raising=False)
    tokens = tokens_of([np.random.default_rng(0).integers(0, 900, 3000).tolist()], 900)
    with pytest.raises(DiskError, match="full|space"):
        count(tokens, tmp_path, window=8, memory=1 << 12)
    with pytest.raises(OSError, match="space"):
        tensor_file.write_tensors(tmp_path / "x", {"a": np.zeros(10_000, np.float32)})


@pytest.mark.parametrize("window", [22, 30])
def test_wide_windows_are_as_exact_as_their_unit(tmp_path, window):
    lines = [[0, 1, 2, 1, 0] * 8]
    wanted = {pair: pytest.approx(float(value), rel=1e-6) for pair, value in brute_force(lines, window).items()}
    assert as_dict(count(tokens_of(lines, 3), tmp_path, window=window, memory=1 << 16)) == wanted


def test_a_corpus_of_single_words_has_no_pairs(tmp_path):
    found = count(tokens_of([[0], [1]], 2), tmp_path, window=5, memory=1 << 20)
    assert len(found.high) == 0 and found.num_ordered == 0 and found.tiles.tolist() == [0]
