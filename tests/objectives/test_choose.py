"""What is chosen: the rate, every place alike, lengths as published, words whole, nothing across a border."""

from __future__ import annotations

import hashlib
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from unmask.objectives.choose import LENGTHS, Unit, _sorted, choose, tile
from unmask.randomness import keys

UNITS: tuple[Unit, ...] = get_args(Unit)
DRAWN_BEFORE: dict[Unit, str] = {  # digests of targets that version 0.1.0 drew
    "token": "4e67bc050237aa48",
    "word": "d8026b0d72b03d55",
    "ngram": "abc63360f4d31044",
    "span": "b0094d4bab575bd1",
}


def drawn(
    candidates: list[list[bool]], words: list[list[bool]], rate: float, unit: Unit, seed: int = 0, first: int = 0
) -> list[list[bool]]:
    """`choose` for sequences as lists."""
    sizes = [len(row) for row in candidates]
    rows, places = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(n) for n in sizes])
    row_keys = keys(seed, np.arange(first, first + len(sizes)))
    flat = [np.array([flag for row in lists for flag in row], bool) for lists in (candidates, words)]
    chosen = choose(flat[0], flat[1], rows, places, row_keys, rate, unit)
    return [part.tolist() for part in np.split(chosen, np.cumsum(sizes)[:-1])]


def grid(count: int, length: int, rate: float, unit: Unit, holes: tuple[int, ...] = (), size: int = 1) -> np.ndarray:
    """[count, length] bool: equal sequences of words of `size` tokens; `holes` are no candidates."""
    candidates = np.ones((count, length), bool)
    candidates[:, list(holes)] = False
    words = np.arange(length) % size == 0
    rows, places = np.divmod(np.arange(count * length), length)
    chosen = choose(candidates.ravel(), np.tile(words, count), rows, places, keys(9, np.arange(count)), rate, unit)
    return chosen.reshape(count, length)


@st.composite
def texts(draw: st.DrawFn) -> tuple[list[list[bool]], list[list[bool]]]:
    """Sequences of 1 to 30 tokens, any of them a candidate or not, any of them beginning a word or not."""
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=6))
    flags = lambda n: st.lists(st.booleans(), min_size=n, max_size=n)
    return [draw(flags(n)) for n in sizes], [draw(flags(n)) for n in sizes]


def words_of(candidates: list[bool], starts: list[bool], unit: Unit) -> list[list[int]]:
    """The definition, token by token: a word ends where another begins and at a token that is no candidate."""
    words: list[list[int]] = []
    for at, wanted in enumerate(candidates):
        if not wanted:
            continue
        goes_on = at > 0 and candidates[at - 1] and not starts[at] and unit != "token"
        if goes_on:
            words[-1].append(at)
        else:
            words.append([at])
    return words


@pytest.mark.parametrize("unit", UNITS)
@given(texts(), st.floats(0.001, 1), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_whole_words_of_candidates_are_chosen_and_the_share_is_kept_to_within_a_word(
    unit: Unit, text: tuple[list[list[bool]], list[list[bool]]], rate: float, seed: int
) -> None:
    for candidates, starts, chosen in zip(*text, drawn(*text, rate, unit, seed), strict=True):
        words = words_of(candidates, starts, unit)
        assert not any(hit and not may for hit, may in zip(chosen, candidates, strict=True))
        for word in words:
            assert len({chosen[at] for at in word}) == 1, "a word is chosen in part"
        longest = max(map(len, words), default=0)
        assert abs(sum(chosen) - rate * sum(candidates)) < max(longest, 1e-9)


@pytest.mark.parametrize("unit", UNITS)
@given(texts(), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_R3_targets_depend_on_the_sequence_alone(
    unit: Unit, text: tuple[list[list[bool]], list[list[bool]]], seed: int
) -> None:
    together = drawn(*text, 0.3, unit, seed)
    for number, (candidates, starts) in enumerate(zip(*text, strict=True)):
        assert drawn([candidates], [starts], 0.3, unit, seed, first=number)[0] == together[number]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("length", "rate"), [(1, 0.15), (2, 0.3), (7, 0.15), (33, 0.15), (50, 0.5)])
def test_the_rate_is_exact_on_average_for_any_length(unit: Unit, length: int, rate: float) -> None:
    """A sequence of one token is a target in 15 % of the draws. Four standard deviations of a draw that settles a token."""
    counts = grid(20_000, length, rate, unit).sum(1)
    low = int(rate * length)
    assert set(np.unique(counts)) <= {low, low + 1}
    assert abs(counts.mean() - rate * length) < 4 * 0.5 / 20_000**0.5


@pytest.mark.parametrize("unit", UNITS)
def test_the_rate_is_exact_on_average_where_words_are_long(unit: Unit) -> None:
    """Words of 4 tokens in 30: a budget of 4.5 tokens is spent as 4, or 8, or (with the word cut short) 2 or 6."""
    counts = grid(40_000, 30, 0.15, unit, size=4).sum(1)
    assert abs(counts.mean() - 4.5) < 4 * counts.std() / 200
    assert counts.max() < 4.5 + 4


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("holes", [(), (0, 13, 14, 31)])
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.6])
def test_every_place_is_chosen_equally_often(unit: Unit, holes: tuple[int, ...], rate: float) -> None:
    """The first and the last too, and those beside a separator (DeBERTa's generator never masks the last 48 of 512)."""
    chosen = grid(30_000, 32, rate, unit, holes)
    assert not chosen[:, list(holes)].any()
    assert flatness(np.delete(chosen, holes, 1)) > 1e-4


def flatness(chosen: np.ndarray) -> float:
    """p-value of equal rates at all places, sequences being independent but the places of one sequence not: Hotelling's χ²."""
    count, length = chosen.shape
    differences = chosen[:, 1:].astype(float) - chosen[:, :-1]
    mean, covariance = differences.mean(0), np.cov(differences, rowvar=False)
    return float(stats.chi2.sf(count * mean @ np.linalg.solve(covariance, mean), length - 1))


@pytest.mark.parametrize("unit", UNITS)
def test_segments_are_as_long_as_published(unit: Unit) -> None:
    """n-grams: 6/11, 3/11, 2/11 (ALBERT section 4.1). Spans: mean 3.8 words (SpanBERT section 3.1)."""
    words = 40_000
    rows, row_keys = np.repeat(np.arange(5), words), keys(3, np.arange(5))
    turned, segment = tile(rows, row_keys, LENGTHS[unit])
    assert np.array_equal(np.sort(turned), np.arange(5 * words)) and np.array_equal(rows[turned], rows)
    lengths = np.bincount(segment)
    whole = np.flatnonzero(
        np.diff(rows[np.cumsum(lengths) - 1], append=9) == 0
    )  # but the last one, which is cut to fit
    counts = np.bincount(lengths[whole], minlength=len(LENGTHS[unit]) + 1)[1:]
    assert len(counts) == len(LENGTHS[unit])
    if len(counts) > 1:
        assert stats.chisquare(counts, LENGTHS[unit] * counts.sum()).pvalue > 1e-3
    if unit == "ngram":
        np.testing.assert_allclose(LENGTHS[unit], [6 / 11, 3 / 11, 2 / 11])
    if unit == "span":
        np.testing.assert_allclose(LENGTHS[unit], [0.2 * 0.8**n / (1 - 0.8**10) for n in range(10)])
        assert abs(lengths[whole].mean() - 3.797) < 0.05


def test_runs_of_targets_are_spans_as_long_as_published() -> None:
    """At a rate so low that spans seldom touch, runs of targets are the spans themselves, but for the one cut short."""
    chosen = grid(40, 10_000, 0.02, "span")
    lengths = np.concatenate(
        [np.diff(np.flatnonzero(np.diff(row, prepend=0, append=0)))[::2] for row in chosen.astype(int)]
    )
    assert 1_800 < len(lengths) < 2_300
    assert abs(lengths.mean() - 3.797) < 0.25


def test_ngrams_never_join_more_than_three_words_at_once() -> None:
    """One n-gram at most fits in this budget of three words."""
    chosen = grid(5_000, 30, 0.1, "ngram")
    runs = (np.diff(chosen.astype(int), prepend=0, axis=1) == 1).sum(1)
    assert (chosen.sum(1) == 3).all()
    assert set(np.unique(runs)) == {1, 2, 3}
    assert 0.15 < (runs == 1).mean() < 0.4  # 2/11 are trigrams, and two n-grams stand side by side now and then


@pytest.mark.parametrize("unit", UNITS)
def test_B084_sequences_without_candidates_have_no_targets(unit: Unit) -> None:
    assert drawn([[False] * 4], [[True] * 4], 1.0, unit) == [[False] * 4]
    mixed = drawn([[False, False], [True], [False]], [[True, True], [True], [True]], 1.0, unit)
    assert mixed == [[False, False], [True], [False]]


@pytest.mark.parametrize("unit", UNITS)
def test_another_seed_and_another_example_draw_other_targets(unit: Unit) -> None:
    line = ([[True] * 60], [[True] * 60])
    draws = {tuple(drawn(*line, 0.3, unit, seed, first)[0]) for seed in range(5) for first in (0, 1 << 44)}
    assert len(draws) == 10


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_segments_come_in_the_order_of_their_draws_inside_each_sequence(sizes: list[int], seed: int) -> None:
    """One sort of one number for row and draw is the plain sort by two keys; words of one segment share a draw."""
    rows = np.repeat(np.arange(len(sizes)) * 100, sizes)  # rows without a word lie between
    draws = (
        np.random.default_rng(seed).integers(0, 2**63, len(rows) // 2 + 1).astype(np.uint64)[np.arange(len(rows)) // 2]
    )
    assert np.array_equal(_sorted(draws, rows), np.lexsort((draws, rows)))


@pytest.mark.parametrize(("unit", "digest"), DRAWN_BEFORE.items())
def test_R3_the_targets_of_earlier_versions_are_drawn_again(unit: Unit, digest: str) -> None:
    """A run that goes on with a newer version must not see other masks."""
    chosen = grid(50, 40, 0.3, unit, holes=(0, 17), size=2)
    assert hashlib.sha256(chosen.tobytes()).hexdigest()[:16] == digest
