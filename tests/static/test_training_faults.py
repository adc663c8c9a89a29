"""What other trainers of word vectors get wrong: seeds, losses, learning rates, threads, and runs that end in nan."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from scipy import stats
from word_ids import tokens_of

from unmask.config.static import Glove, Word2Vec, Words
from unmask.errors import UnmaskError
from unmask.static import glove, glove_loops, ngram_loops, pair_loops, word2vec, word2vec_loops
from unmask.static.glove_plain import Side, train_plainly
from unmask.static.memory import padded
from unmask.static.pairs import TILE, count, unit_of
from unmask.static.sampling import huffman
from unmask.static.tokens import Tokens

PLAIN = Word2Vec(dimension=3, window=1, epochs=3, subsample=0.0, words=Words(min_count=1))


def some_text(lines: int = 60, words: int = 40) -> Tokens:
    draw = np.random.default_rng(0)
    return tokens_of([draw.zipf(1.4, 20).clip(1, words - 1).tolist() for _ in range(lines)], words)


# --- the same again ----------------------------------------------------------------------------------------------------------
IN_A_PROCESS = """
import hashlib, sys
from pathlib import Path
from unmask.config.static import CharacterNgrams, Glove, Word2Vec, Words
from unmask.static.learn import learn
out, words = Path(sys.argv[1]), Words(min_count=1)
(out / "text.txt").write_text(" ".join(f"word{n * n % 53}" for n in range(2000)))
ngrams = CharacterNgrams(buckets=100)
for name, settings in {
    "skipgram": Word2Vec(dimension=5, epochs=2, words=words, ngrams=ngrams),
    "cbow": Word2Vec(model="cbow", loss="hierarchical", dimension=5, epochs=2, words=words),
    "glove": Glove(dimension=5, epochs=2, words=words),
}.items():
    learn([str(out / "text.txt")], out / name, settings)
    print(*(hashlib.sha256((out / name / file).read_bytes()).hexdigest() for file in ("words.txt", "vectors.safetensors")))
"""


def test_one_seed_gives_the_same_vectors_in_every_process(tmp_path: Path):
    """gensim#662, #546, #2859: vectors began with Python's hashes of the words, which are others in every process."""
    runs = []
    for hashes in ("1", "2"):
        (folder := tmp_path / hashes).mkdir()
        command, environment = (
            [sys.executable, "-c", IN_A_PROCESS, str(folder)],
            {**os.environ, "PYTHONHASHSEED": hashes},
        )
        runs.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    (one, errors), (other, more_errors) = (run.communicate() for run in runs)
    assert one == other and len(one.splitlines()) == 3, errors + more_errors


# --- losses ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_the_loss_of_a_long_run_is_exact(model: str):
    """gensim#2735: a loss summed up as float32 stands still at 2^27, and is that of all epochs; #2617: threads overwrite it.

    Of two words each is told from the other by one yes or no, which costs log 2 before anything is learned. Sums in float32
    are wrong in the third digit after so many.
    """
    settings = replace(PLAIN, model=model, loss="hierarchical", window=5, learning_rate=1e-12, final_learning_rate=0.0)
    found = tokens_of([[0, 1] * 50_000, *[[0, 1] * 25] * 2000], 2)
    for threads in (1, 3):
        epochs = word2vec.train(found, replace(settings, epochs=2), threads=threads, block=70_000).epochs
        assert [epoch.loss for epoch in epochs] == pytest.approx([np.log(2)] * 2, rel=1e-6)


def test_a_loss_is_that_of_its_epoch_alone(tmp_path: Path):
    """gensim's is added up over all epochs."""
    one = word2vec.train(some_text(), replace(PLAIN, learning_rate=1e-12, final_learning_rate=0.0, epochs=4)).epochs
    assert max(epoch.loss for epoch in one) < 1.2 * min(epoch.loss for epoch in one)
    pairs = count(some_text(), tmp_path, window=3, memory=2**20)
    costs = glove.train(pairs, 40, Glove(dimension=2, epochs=6)).costs
    assert costs == sorted(costs, reverse=True)


# --- rates and gradients, by hand --------------------------------------------------------------------------------------------
def by_hand(found: Tokens, settings: Word2Vec, begun_2D: np.ndarray) -> np.ndarray:
    """Two words in lines of two or three, each told from the other ones of its window, which are all the same word, by the one
    inner node of the tree, whose vector begins at 0. The rate falls in a line over the words of all epochs."""
    labels = 1.0 - huffman(found.words.counts)[2]
    x, y, total, done = begun_2D.astype(np.float64), np.zeros(begun_2D.shape[1]), len(found.ids) * settings.epochs, 0
    for _ in range(settings.epochs):
        for begin, end in pairwise(found.lines.tolist()):
            for at in range(begin, end):
                others = [int(found.ids[place]) for place in (at - 1, at + 1) if begin <= place < end]
                rate = settings.learning_rate * (1 - done / total) + settings.final_learning_rate * done / total
                change = (labels[found.ids[at]] - 1 / (1 + np.exp(-x[others[0]] @ y))) * rate
                times = 1 if settings.average_gradient else len(others)
                x[others[0]], y = x[others[0]] + times * change * y, y + change * x[others[0]]
                done += 1
    return x


@pytest.mark.parametrize("block", [2, 6, 1000])
@pytest.mark.parametrize("plainly", [True, False])
def test_the_rate_falls_in_a_line_over_the_words_of_all_epochs(block: int, plainly: bool):
    """deeplearning4j#3278: it fell anew in every epoch, as it did in gensim where people called train() in a loop (#1052)."""
    found = tokens_of([[0, 1]] * 20, 2)
    settings = replace(PLAIN, loss="hierarchical", learning_rate=2.0, final_learning_rate=0.1)
    begun = word2vec.train(found, settings, stop=lambda: True, plainly=plainly).inputs
    trained = word2vec.train(found, settings, block=block, plainly=plainly).inputs
    np.testing.assert_allclose(trained, by_hand(found, settings, begun), atol=1e-5)
    assert np.abs(trained - begun).max() > 0.05


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("plainly", [True, False])
def test_the_gradient_of_a_cbow_window_is_divided_by_its_words_where_that_is_asked_for(average: bool, plainly: bool):
    """gensim#1873, #3266: it is not divided there, as in the authors' program, and so by default here; Word2Vec says so."""
    assert not Word2Vec().average_gradient
    found = tokens_of([[0, 1, 0], [1, 0, 1]] * 10, 2)
    settings = replace(PLAIN, model="cbow", loss="hierarchical", learning_rate=0.5, average_gradient=average)
    begun = word2vec.train(found, settings, stop=lambda: True, plainly=plainly).inputs
    trained = word2vec.train(found, settings, plainly=plainly).inputs
    np.testing.assert_allclose(trained, by_hand(found, settings, begun), atol=1e-5)


# --- threads -----------------------------------------------------------------------------------------------------------------
def together(number: int) -> Callable[..., None]:
    """Waits until so many threads are here at once; an error after ten seconds."""
    barrier = threading.Barrier(number)

    def meet() -> None:
        barrier.wait(10)

    return meet


@pytest.mark.parametrize("lengths", [[4000], [2] * 2000, [20] * 200])
def test_threads_work_at_the_same_time_whatever_the_lines(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """gensim#1509, #3089: more workers were no faster, since short lines, or the reading of lines, held them up."""
    draw = np.random.default_rng(0)
    found = tokens_of([draw.integers(0, 600, length).tolist() for length in lengths], 600)
    for module, name in ((word2vec_loops, "train_block"), (glove, "train_tiles")):
        meet, loop = together(2), getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, meet=meet, loop=loop: (meet(), loop(*given))[1])
    word2vec.train(found, PLAIN, threads=2, block=1000)
    wide = tokens_of([draw.integers(0, 600, 4000).tolist()], 600)
    glove.train(count(wide, tmp_path, window=2, memory=2**20), 600, Glove(dimension=2, epochs=2), threads=2)


@pytest.mark.parametrize("module", [word2vec_loops, glove_loops, pair_loops, ngram_loops])
def test_compiled_loops_do_not_hold_the_interpreter(module: Any):
    loops = [loop for loop in vars(module).values() if isinstance(loop, Dispatcher)]
    assert loops and all(loop.targetoptions["nogil"] for loop in loops)


# --- runs that end in nan ----------------------------------------------------------------------------------------------------
def breaking(
    loop: Callable[..., Any], at: int, how: str, moved: Callable[..., np.ndarray], place: int
) -> Callable[..., Any]:
    """The loop, of which call number `at` leaves nan in what it moved, or tells of nan at `place` of what it gives."""
    calls = 0

    def broken(*given: Any) -> Any:
        nonlocal calls
        calls, told = calls + 1, loop(*given)
        if calls == at and how == "vectors":
            moved(*given)[:] = np.nan
        return (*told[:place], np.nan, *told[place + 1 :]) if calls == at and how == "loss" else told

    return broken


@pytest.mark.parametrize("how", ["loss", "vectors"])
def test_word2vec_that_ends_in_nan_keeps_the_last_good_checkpoint(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found, options = some_text(), {"block": 500, "checkpoint": tmp_path / "point", "minutes": 0.0}
    whole = word2vec.train(found, PLAIN, block=500)
    with monkeypatch.context() as patch:
        loop = breaking(word2vec_loops.train_block, 6, how, lambda training, block: training.inputs, 3)
        patch.setattr(word2vec_loops, "train_block", loop)
        with pytest.raises(UnmaskError, match="no longer numbers"):
            word2vec.train(found, PLAIN, **options)
    left = word2vec.train(found, PLAIN, **options, stop=lambda: True)
    assert not left.finished and np.isfinite(left.inputs).all() and np.isfinite(left.outputs).all()
    assert [epoch.words for epoch in left.epochs] == [len(found.ids), 2 * 500]  # blocks of 500, 500 and 200
    again = word2vec.train(found, PLAIN, **options)
    assert np.array_equal(again.inputs, whole.inputs) and again.epochs == whole.epochs


@pytest.mark.parametrize("how", ["loss", "vectors"])
def test_glove_that_ends_in_nan_keeps_the_last_good_checkpoint(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """GloVe#99, #156, #85, #15, #90: after hours the cost was nan, and all vectors were lost."""
    pairs, settings = count(some_text(), tmp_path, window=3, memory=2**20), Glove(dimension=3, epochs=5)
    whole, epochs = glove.train(pairs, 40, settings), list[float]()
    with monkeypatch.context() as patch:
        patch.setattr(glove, "train_tiles", breaking(glove.train_tiles, 4, how, lambda *given: given[6], 0))
        with pytest.raises(UnmaskError, match="beyond all bounds in epoch 4"):
            glove.train(pairs, 40, settings, checkpoint=tmp_path / "point", minutes=0.0)
    again = glove.train(
        pairs, 40, settings, checkpoint=tmp_path / "point", progress=lambda what, done, total: epochs.append(done)
    )
    assert np.array_equal(again.vectors, whole.vectors) and again.costs == whole.costs and epochs[0] > 3


def test_gloves_gradients_are_cut_at_a_hundred_as_in_the_authors_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """GloVe#15: without that, one step ended in nan. All vectors 30 and 20, biases 0, x = x_max = 1: 600 too much, and a
    gradient of 12,000 or 18,000; the step is 0.05 · 100. Biases are not cut: each goes down by 600."""
    pairs, settings = (
        count(tokens_of([[0, 1]], 2), tmp_path, window=1, memory=2**20),
        Glove(dimension=1, x_max=1.0, epochs=1),
    )
    parts, loop, found = [0, padded(1), 2 * padded(1)], glove.train_tiles, list[np.ndarray]()

    def from_far_away(*given: Any) -> Any:
        """The vectors, the sums of their squared steps, and the biases, each where it stands in its row."""
        for value, rows in zip((30, 20), given[6:8], strict=True):
            rows[:, parts] = value, 1, 0
        told = loop(*given)
        found.extend(rows[:, parts].copy() for rows in given[6:8])
        return told

    monkeypatch.setattr(glove, "train_tiles", from_far_away)
    glove.train(pairs, 2, settings)
    one, zero = np.ones((2, 1), np.float32), np.zeros(2, np.float32)
    sides = [Side(value * one, zero.copy(), one.copy(), zero + 1) for value in (30, 20)]
    train_plainly(pairs, [0], *sides, settings)
    for value, rows, side in zip((30, 20), found, sides, strict=True):
        np.testing.assert_allclose(rows, [[value - 5, 26, -600]] * 2, rtol=1e-5)
        np.testing.assert_allclose(
            np.stack([side.vectors[:, 0], side.vector_squares[:, 0], side.biases], 1), rows, rtol=1e-5
        )


# --- pairs -------------------------------------------------------------------------------------------------------------------
def test_B105_no_pair_is_counted_as_zero_however_far_apart_its_words_are(tmp_path: Path):
    """GloVe#82: the logarithm of a zero count is no number. 10,000 words are the widest window there is."""
    assert round(unit_of(10_000) / 10_000) > 1000
    found = tokens_of([[0, *[2] * 9_999, 1]], 3)
    pairs = count(found, tmp_path, window=10_000, memory=2**20)
    assert len(pairs.counts) == 4 and pairs.counts.min() == pytest.approx(1e-4, rel=1e-3)
    assert np.isfinite(glove.train(pairs, 3, Glove(dimension=2, epochs=3)).costs).all()


def test_any_pair_of_a_word_can_come_first_or_last(tmp_path: Path):
    """GloVe#225: the last one or two of what was shuffled always stayed where they were."""
    found = tokens_of([[TILE * tile + word for word in range(5)] for tile in range(200)], TILE * 200)
    seen = np.zeros((4, 4), np.int64)
    for seed in range(3):
        pairs = count(found, tmp_path, window=4, memory=2**20, seed=seed)
        of_the_last_word = pairs.low[pairs.high == 4].reshape(200, 4)
        np.add.at(seen, (of_the_last_word, np.arange(4)), 1)
    assert stats.chisquare(seen.ravel(), np.full(16, 150.0), ddof=6).pvalue > 1e-4
