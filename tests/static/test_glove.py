from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from word_ids import tokens_of

from unmask.config.static import Glove
from unmask.errors import UnmaskError
from unmask.static import checkpoint, glove
from unmask.static.glove import GloveResult, train
from unmask.static.glove_loops import train_tiles
from unmask.static.glove_plain import Side, train_plainly
from unmask.static.memory import padded
from unmask.static.pairs import Pairs, count

SIZE = 600


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    random = np.random.default_rng(0)
    lines = [random.zipf(1.4, 30).clip(1, SIZE - 1).tolist() for _ in range(60)]
    return count(tokens_of(lines, SIZE), tmp_path_factory.mktemp("pairs"), window=5, memory=1 << 20)


def side_of(rows: np.ndarray, dimension: int) -> Side:
    """The parts of padded rows, apart."""
    width = padded(dimension)
    vectors, squares = rows[:, :dimension], rows[:, width : width + dimension]
    return Side(vectors.copy(), rows[:, 2 * width].copy(), squares.copy(), rows[:, 2 * width + 1].copy())


@pytest.mark.parametrize("dimension", [1, 7, 16])
def test_the_compiled_update_is_the_plain_one(pairs: Pairs, dimension: int):
    settings, width = Glove(dimension=dimension, x_max=3.0), padded(dimension)
    state = glove._begun(SIZE, settings)
    sides = [side_of(rows, dimension) for rows in (state.main, state.context)]
    chosen = np.arange(len(pairs.tiles) - 1)[::-1].copy()
    for _ in range(2):
        cost, done = train_tiles(
            chosen, pairs.tiles, pairs.corners, pairs.high, pairs.low, pairs.counts,
            state.main, state.context, settings.x_max, settings.power, settings.learning_rate,
        )  # fmt: skip
        assert cost == pytest.approx(train_plainly(pairs, chosen.tolist(), *sides, settings), rel=1e-5)
        assert done == pairs.num_ordered
    for rows, side in zip((state.main, state.context), sides, strict=True):
        np.testing.assert_allclose(rows[:, :dimension], side.vectors, atol=1e-5)
        np.testing.assert_allclose(rows[:, width : width + dimension], side.vector_squares, atol=1e-5)
        np.testing.assert_allclose(rows[:, 2 * width], side.biases, atol=1e-5)
        assert not rows[:, dimension:width].any()  # what only fills up stays zero


def test_one_update_is_that_of_a_hand(tmp_path: Path):
    """x = 1 for (0, 1) and (1, 0), x_max 1: weight 1, log x = 0. All vectors 1 and 2, biases 0: w·c = 2."""
    found = count(tokens_of([[0, 1]], 2), tmp_path, window=1, memory=1 << 16)
    rows = {value: np.zeros((2, 32), np.float32) for value in (1.0, 2.0)}
    for value, row in rows.items():
        row[:, 0], row[:, 8:16], row[:, 17] = value, 1, 1
    cost, _ = train_tiles(
        np.array([0]), found.tiles, found.corners, found.high, found.low, found.counts, rows[1.0], rows[2.0], 1.0, 0.75, 0.05
    )  # fmt: skip
    # Each of the two pairs has vectors of its own: cost 2 · ½ · 2²; w -= 0.05 · 2 · 2, c -= 0.05 · 2 · 1, biases -= 2.
    assert cost == pytest.approx(4.0)
    np.testing.assert_allclose(rows[1.0][:, [0, 8, 16, 17]], [[0.8, 1.04, -2, 5]] * 2, rtol=1e-6)
    np.testing.assert_allclose(rows[2.0][:, [0, 8, 16, 17]], [[1.9, 1.01, -2, 5]] * 2, rtol=1e-6)


def test_a_steep_step_is_cut_as_in_the_plain_update(pairs: Pairs):
    settings = Glove(dimension=8, x_max=3.0, learning_rate=1e-3)
    state = glove._begun(SIZE, settings)
    state.main[:, :8] += 30.0  # a pull of thousands
    state.context[:, :8] -= 20.0
    sides = [side_of(rows, 8) for rows in (state.main, state.context)]
    train_tiles(
        np.array([0]), pairs.tiles, pairs.corners, pairs.high, pairs.low, pairs.counts,
        state.main, state.context, settings.x_max, settings.power, settings.learning_rate,
    )  # fmt: skip
    train_plainly(pairs, [0], *sides, settings)
    for rows, side in zip((state.main, state.context), sides, strict=True):
        np.testing.assert_allclose(rows[:, :8], side.vectors, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(rows[:, 8:16], side.vector_squares, rtol=1e-4)


def test_the_cost_falls_to_what_counts_allow(pairs: Pairs):
    result = train(pairs, SIZE, Glove(dimension=20, epochs=30, x_max=3.0))
    assert all(
        late < early for early, late in zip(result.costs, result.costs[5:], strict=False)
    )  # six tiles, dealt anew
    assert result.costs[-1] < 0.3 * result.costs[0]
    assert result.vectors.shape == result.context.shape == (SIZE, 20) and np.isfinite(result.vectors).all()


@pytest.mark.parametrize("stops", [{1}, {2, 5}, set(range(1, 40))])
def test_a_run_stopped_anywhere_ends_bit_identical(pairs: Pairs, tmp_path: Path, monkeypatch, stops: set[int]):
    monkeypatch.setattr(glove, "STRETCH", len(pairs.high) // 4)
    settings = Glove(dimension=5, epochs=3, seed=4)
    whole = train(pairs, SIZE, settings)
    made = 0

    def stop(what: str, done: float, total: float | None) -> None:
        nonlocal made
        made += 1
        if made in stops:
            raise KeyboardInterrupt

    while True:
        try:
            result = train(pairs, SIZE, settings, checkpoint=tmp_path / "point", minutes=0, progress=stop)
            break
        except KeyboardInterrupt:
            continue
    assert_same(result, whole)


def assert_same(one: GloveResult, other: GloveResult) -> None:
    assert np.array_equal(one.vectors, other.vectors) and np.array_equal(one.context, other.context)
    assert one.costs == other.costs and one.finished and other.finished


def test_one_that_is_stopped_after_every_stretch_is_saved_there_and_ends_bit_identical(
    pairs: Pairs, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(glove, "STRETCH", len(pairs.high) // 4)
    settings = Glove(dimension=5, epochs=2, seed=4)
    runs = [train(pairs, SIZE, settings, checkpoint=tmp_path / "point", stop=lambda: True)]
    while not runs[-1].finished:
        runs.append(train(pairs, SIZE, settings, checkpoint=tmp_path / "point", stop=lambda: True))
    assert_same(runs[-1], train(pairs, SIZE, settings))
    assert len(runs) == 2 * -(-len(pairs.high) // glove.STRETCH)


@pytest.mark.parametrize(("minutes", "epoch", "times"), [(5.0, 60.0, 0), (5.0, 0.0, 3), (0.0, 60.0, 6)])
def test_a_checkpoint_is_written_by_the_clock_and_at_the_end_of_long_epochs(
    minutes: float, epoch: float, times: int, pairs: Pairs, tmp_path: Path, monkeypatch
):
    saved = []
    monkeypatch.setattr(glove, "STRETCH", -(-len(pairs.high) // 2))
    monkeypatch.setattr(checkpoint, "_AFTER_EPOCH", epoch)
    monkeypatch.setattr(checkpoint.Checkpoint, "save", lambda self, stands: saved.append(stands))
    train(pairs, SIZE, Glove(dimension=5, epochs=3), checkpoint=tmp_path / "point", minutes=minutes)
    assert len(saved) == times


def test_a_checkpoint_of_other_pairs_or_settings_is_refused(pairs: Pairs, tmp_path: Path):
    train(pairs, SIZE, Glove(dimension=5, epochs=1), checkpoint=tmp_path / "point", minutes=0)
    with pytest.raises(UnmaskError, match="settings: epochs was 1 and is 2"):
        train(pairs, SIZE, Glove(dimension=5, epochs=2), checkpoint=tmp_path / "point")
    (tmp_path / "pairs").mkdir()
    other = count(tokens_of([[1, 2, 3]], SIZE), tmp_path / "pairs", window=5, memory=1 << 20)
    with pytest.raises(UnmaskError, match=f"pairs: pairs was {len(pairs.high)} and is 3, fingerprint was"):
        train(other, SIZE, Glove(dimension=5, epochs=1), checkpoint=tmp_path / "point")


def test_a_cost_that_is_no_number_ends_training_and_keeps_what_was_saved(pairs: Pairs, tmp_path: Path):
    with pytest.raises(UnmaskError, match="beyond all bounds"):
        train(pairs, SIZE, Glove(dimension=4, epochs=9, learning_rate=1e30), checkpoint=tmp_path / "point", minutes=0)
    assert not (tmp_path / "point").exists()


def test_a_last_update_that_is_no_number_is_seen_too(pairs: Pairs, tmp_path: Path, monkeypatch):
    """The cost is that of before each update."""

    def break_at_last(*given):
        found = train_tiles(*given)
        given[6][0, 0] = np.nan
        return found

    monkeypatch.setattr(glove, "train_tiles", break_at_last)
    with pytest.raises(UnmaskError, match="beyond all bounds in epoch 1"):
        train(pairs, SIZE, Glove(dimension=4, epochs=1))
    monkeypatch.setattr(glove, "STRETCH", len(pairs.high) // 2)
    with pytest.raises(UnmaskError, match="beyond all bounds in epoch 1"):  # nor is it saved in the middle of an epoch
        train(pairs, SIZE, Glove(dimension=4, epochs=1), checkpoint=tmp_path / "point", stop=lambda: True)
    assert not (tmp_path / "point").exists()


def test_two_threads_train_every_pair_too(pairs: Pairs):
    one, two = (train(pairs, SIZE, Glove(dimension=8, epochs=4), threads=threads) for threads in (1, 2))
    np.testing.assert_allclose(one.costs[1:], two.costs[1:], rtol=0.1)


def test_a_corpus_without_pairs_is_refused(tmp_path: Path):
    with pytest.raises(UnmaskError, match="no two words stand together"):
        train(count(tokens_of([[0], [1]], 2), tmp_path, window=5, memory=1 << 16), 2, Glove())


def test_GloVe14_a_tiny_vocabulary_and_dimension_give_numbers(tmp_path: Path):
    """GloVe#14: 33 unique words and a small dimension ended in nan or a crash."""
    random = np.random.default_rng(1)
    tokens = tokens_of([random.integers(0, 33, 20).tolist() for _ in range(30)], 33)
    result = train(count(tokens, tmp_path, window=10, memory=1 << 16), 33, Glove(dimension=2, epochs=15))
    assert np.isfinite(result.vectors).all() and result.costs[-1] < result.costs[0]
