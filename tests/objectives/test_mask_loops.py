"""The compiled loops give what their twins in array operations give, bit for bit, and work where nothing can be kept."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.objectives import mask_loops
from unmask.objectives.choose import Flags, Numbers, Unit, choose, choose_plainly, sequence_keys
from unmask.objectives.corrupt import Corruption, corrupt, corrupt_plainly
from unmask.randomness import keys

UNITS: tuple[Unit, ...] = get_args(Unit)
SEED = st.integers(0, 2**32)
SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def layout(sizes: list[int]) -> tuple[Numbers, Numbers]:
    """[T] the sequence of each token and its place there."""
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return rows, np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows]


def agree(sizes: list[int], candidates: Flags, words: Flags, rate: float, unit: Unit, seed: int) -> Flags:
    given = candidates, words, *layout(sizes), keys(seed, np.arange(len(sizes))), rate, unit
    chosen = choose(*given)
    assert np.array_equal(chosen, choose_plainly(*given))
    return chosen


@pytest.mark.parametrize("unit", UNITS)
@given(SIZES, st.floats(0.001, 1), st.sampled_from([0.0, 0.02, 0.5, 0.95, 1.0]), st.floats(0, 1), SEED)
@settings(max_examples=60, deadline=None)
def test_the_loop_chooses_what_its_twin_chooses(
    unit: Unit, sizes: list[int], rate: float, candidates: float, words: float, seed: int
) -> None:
    """With separators anywhere, sequences of one token, and sequences of nothing but special tokens."""
    rng, tokens = np.random.default_rng(seed), sum(sizes)
    agree(sizes, rng.random(tokens) < candidates, rng.random(tokens) < words, rate, unit, seed)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("sizes", [[8192], [1] * 700, [512] * 300])
def test_the_loop_chooses_what_its_twin_chooses_in_long_sequences_and_in_many(unit: Unit, sizes: list[int]) -> None:
    rng, tokens = np.random.default_rng(0), sum(sizes)
    chosen = agree(sizes, rng.random(tokens) < 0.95, rng.random(tokens) < 0.7, 0.15, unit, 0)
    assert abs(chosen.mean() - 0.15 * 0.95) < 0.03


@pytest.mark.parametrize("unit", UNITS)
def test_a_batch_without_a_candidate_has_no_target(unit: Unit) -> None:
    nothing = np.zeros(5, bool)
    assert not agree([1, 4], nothing, ~nothing, 1.0, unit, 0).any()


@given(st.lists(st.integers(0, 2**63), min_size=1, max_size=80), st.integers(0, 63))
@settings(max_examples=60, deadline=None)
def test_draws_of_any_spread_are_put_in_order_and_equal_ones_stay_as_they_stand(draws: list[int], lost: int) -> None:
    """Hashes are spread evenly and never seem equal; the order must not depend on it."""
    draw, order = np.array(draws, np.uint64) >> np.uint64(lost), np.zeros(len(draws), np.int64)
    ends = mask_loops._buckets(draw, np.uint64(64 - lost), order)
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        mask_loops._sort(order[begin:end], draw)
    assert order.tolist() == np.argsort(draw, kind="stable").tolist()


@given(SIZES, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.booleans(), SEED)
@settings(max_examples=100, deadline=None)
def test_the_loop_corrupts_as_its_twin_does(
    sizes: list[int], share: float, replace_mask: float, rest: float, spans: bool, seed: int
) -> None:
    rng, tokens = np.random.default_rng(seed), sum(sizes)
    ids, where = rng.integers(5, 900, tokens), np.flatnonzero(rng.random(tokens) < share)
    how = Corruption(4, np.arange(5, 1000), replace_mask, rest * (1 - replace_mask), spans)
    before = ids.copy()
    given = ids, where, *layout(sizes), keys(seed, np.arange(len(sizes))), how
    for found, wanted in zip(corrupt(*given), corrupt_plainly(*given), strict=True):
        assert np.array_equal(found, wanted) and found.dtype == wanted.dtype
    assert np.array_equal(ids, before)


@given(st.integers(0, 2**32), st.integers(-(2**70), 2**70), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@settings(max_examples=60, deadline=None)
def test_the_keys_of_sequences_are_those_of_numpy(salt: int, seed: int, examples: list[int]) -> None:
    numbers = np.array(examples)
    assert np.array_equal(sequence_keys(salt, seed, numbers), keys(salt, seed, numbers))


def test_the_loops_work_where_compiled_code_cannot_be_kept() -> None:
    """In a container nothing may be writable: neither the package's folder nor a cache folder of the user."""
    code = (
        "import numpy; from unmask.objectives.choose import sequence_keys; print(sequence_keys(1, 2, numpy.arange(1)))"
    )
    nowhere = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **nowhere})
    assert done.stderr == "" and done.stdout.strip() == f"[{keys(1, 2, 0)[0]}]"
