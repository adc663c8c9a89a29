"""Training learns, loses no word, can be stopped anywhere and taken up again, and never ends in vectors that are no numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from unmask.config.static import CharacterNgrams, Word2Vec, Words
from unmask.errors import UnmaskError
from unmask.static import checkpoint, word2vec
from unmask.static.tokens import Tokens
from unmask.static.word2vec import train
from unmask.static.words import WordCounts

SETTINGS = Word2Vec(dimension=12, window=3, epochs=3, words=Words(min_count=1))


def corpus(lengths: list[int], words: int = 20, seed: int = 0) -> Tokens:
    ids = np.random.default_rng(seed).integers(0, words, sum(lengths)).astype(np.int32)
    ids[:words] = np.arange(min(words, len(ids)))
    lines = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    names = WordCounts([f"w{i}" for i in range(words)], np.sort(np.bincount(ids, minlength=words))[::-1])
    return Tokens(ids, lines, names, len(ids))


def two_worlds(lines: int = 400) -> Tokens:
    """Words 0 to 4 stand only with each other, and so do words 5 to 9."""
    rng = np.random.default_rng(0)
    ids = np.concatenate([rng.integers(0, 5, 10) + 5 * (line % 2) for line in range(lines)]).astype(np.int32)
    counts = np.full(10, len(ids) // 10, np.int64)
    return Tokens(ids, np.arange(0, len(ids) + 1, 10), WordCounts(list("abcdefghij"), counts), len(ids))


def same(one: word2vec.Trained, other: word2vec.Trained) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("inputs", "outputs", "ngrams")]
    equal = all((a is None and b is None) or np.array_equal(a, b) for a, b in pairs)
    return equal and one.epochs == other.epochs and one.finished == other.finished


class Stop:
    """Says stop after so many questions."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


# --- learning ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize("loss", ["negative", "hierarchical"])
@pytest.mark.parametrize("threads", [1, 2])
def test_words_of_one_context_become_alike_and_the_loss_falls(model, loss, threads):
    settings = replace(SETTINGS, model=model, loss=loss, subsample=0.0, epochs=8, learning_rate=0.1)
    trained = train(two_worlds(), settings, threads=threads, block=500)
    unit = trained.inputs / np.linalg.norm(trained.inputs, axis=1, keepdims=True)
    alike = unit @ unit.T
    within, across = (alike[:5, :5].sum() - 5) / 20, alike[:5, 5:].mean()
    assert within > across + 0.5
    assert trained.epochs[-1].loss < 0.97 * trained.epochs[0].loss
    if loss == "hierarchical":
        assert trained.epochs[-1].loss == pytest.approx(np.log(5), abs=0.02)  # any of five words may be the centre


def test_before_training_the_loss_is_that_of_a_coin_for_each_target():
    tokens = corpus([300] * 10)
    settings = replace(SETTINGS, learning_rate=1e-9, final_learning_rate=0.0, epochs=1, negatives=3, subsample=0.0)
    draws = 4 - 3 / 20 * 0.99  # a negative that is the centre is left out
    assert train(tokens, settings).epochs[0].loss == pytest.approx(draws * np.log(2), rel=0.01)


def test_each_seed_gives_other_vectors_and_one_seed_the_same():
    tokens = corpus([50, 60])
    one, again, other = (train(tokens, replace(SETTINGS, seed=seed)) for seed in (1, 1, 2))
    assert same(one, again) and not np.allclose(one.inputs, other.inputs)


def test_ngrams_have_vectors_of_their_own():
    settings = replace(SETTINGS, ngrams=CharacterNgrams(shortest=2, longest=3, buckets=40))
    trained = train(corpus([80]), settings)
    assert trained.ngrams is not None and trained.ngrams.shape == (40, 12) and trained.inputs.shape == (20, 12)
    assert train(corpus([80]), SETTINGS).ngrams is None


# --- every word -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lengths", [[1000], [2] * 20, [3, 500, 1, 1, 499, 2], [100] * 7, [101, 99, 100]])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_word_is_a_centre_once_an_epoch_whatever_the_lines(lengths, threads):
    trained = train(corpus(lengths), replace(SETTINGS, subsample=0.0), threads=threads, block=100)
    assert [(epoch.words, epoch.kept) for epoch in trained.epochs] == [(sum(lengths), sum(lengths))] * 3


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_text_with_one_word_a_line_is_refused_since_nothing_can_be_learned_from_it(model):
    with pytest.raises(UnmaskError, match="No two words stand together"):
        train(corpus([1] * 40), replace(SETTINGS, model=model))


def test_a_line_of_a_whole_corpus_has_all_of_its_pairs_but_those_across_blocks():
    whole = train(corpus([5000]), replace(SETTINGS, subsample=0.0, window=1)).epochs[0]
    cut = train(corpus([5000]), replace(SETTINGS, subsample=0.0, window=1), block=1000).epochs[0]
    assert (whole.pairs, cut.pairs) == (2 * 4999, 2 * (4999 - 4))


def test_subsampling_leaves_out_frequent_words():
    epoch = train(two_worlds(), replace(SETTINGS, subsample=1e-2)).epochs[0]
    assert epoch.kept / epoch.words == pytest.approx(np.sqrt(0.1) + 0.1, rel=0.05)


def test_blocks_hold_whole_lines_and_all_words():
    lines = np.array([0, 3, 4, 9, 30, 31, 33])
    blocks = word2vec._blocks(lines, 8)
    assert [block.tolist() for block in blocks] == [
        [0, 3, 4], [4, 9], [9, 17], [17, 25], [25, 30, 31, 33],
    ]  # fmt: skip


# --- stopping and going on --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ngrams", [CharacterNgrams(), CharacterNgrams(buckets=30)])
def test_training_stopped_between_any_two_blocks_and_resumed_is_bit_identical(tmp_path, ngrams):
    tokens, settings = corpus([40, 3, 25, 60, 1, 31]), replace(SETTINGS, ngrams=ngrams)
    whole = train(tokens, settings, block=50)
    blocks = 3 * len(word2vec._blocks(tokens.lines, 50))
    for after in range(1, blocks):
        first = train(tokens, settings, block=50, checkpoint=tmp_path / str(after), stop=Stop(after))
        state = json.loads((tmp_path / str(after) / "state.json").read_text())
        rest = train(tokens, settings, block=50, checkpoint=tmp_path / str(after))
        assert not first.finished and 0 < state["stands"]["next"] < blocks and same(rest, whole)


def test_so_is_one_that_is_stopped_after_every_block(tmp_path):
    tokens, runs = corpus([40, 3, 25, 60, 1, 31]), 1
    parts = train(tokens, SETTINGS, block=50, checkpoint=tmp_path / "checkpoint", stop=Stop(1))
    while not parts.finished:
        parts = train(tokens, SETTINGS, block=50, checkpoint=tmp_path / "checkpoint", stop=Stop(1))
        runs += 1
    assert same(parts, train(tokens, SETTINGS, block=50)) and runs == 3 * len(word2vec._blocks(tokens.lines, 50))


@pytest.mark.parametrize(
    ("minutes", "epoch", "blocks"), [(5.0, 60.0, []), (5.0, 0.0, [4, 8, 12]), (0.0, 60.0, [*range(1, 13)])]
)
def test_a_checkpoint_is_written_by_the_clock_and_at_the_end_of_long_epochs(
    minutes, epoch, blocks, tmp_path, monkeypatch
):
    saved = []
    monkeypatch.setattr(checkpoint, "_AFTER_EPOCH", epoch)
    monkeypatch.setattr(checkpoint.Checkpoint, "save", lambda self, stands: saved.append(stands["next"]))
    train(corpus([40] * 4), SETTINGS, block=50, checkpoint=tmp_path / "checkpoint", minutes=minutes)
    assert saved == blocks


def test_a_finished_training_gives_its_vectors_again(tmp_path):
    one, other = (train(corpus([60]), SETTINGS, checkpoint=tmp_path / "checkpoint", minutes=0.0) for _ in range(2))
    assert same(one, other)


@pytest.mark.parametrize(
    ("tokens", "settings", "block", "said"),
    [
        (corpus([40]), replace(SETTINGS, window=4, seed=3), 50, "settings: window was 3 and is 4, seed was 0 and is 3"),
        (corpus([40], seed=1), SETTINGS, 50, r"corpus: fingerprint was \w{16} and is"),
        (corpus([20, 20]), SETTINGS, 50, r"corpus: fingerprint was \w{16} and is"),
        (corpus([40, 1]), SETTINGS, 50, "corpus: words was 40 and is 41"),
        (corpus([40]), SETTINGS, 60, "blocks: words was 50 and is 60"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, tokens, settings, block, said):
    train(corpus([40]), SETTINGS, block=50, checkpoint=tmp_path / "checkpoint", minutes=0.0)
    with pytest.raises(UnmaskError, match=said):
        train(tokens, settings, block=block, checkpoint=tmp_path / "checkpoint")


# --- what goes wrong --------------------------------------------------------------------------------------------------------
def test_vectors_that_are_no_numbers_end_training_with_advice(tmp_path):
    settings = replace(SETTINGS, learning_rate=1e30)
    with pytest.raises(UnmaskError, match="learning_rate 1e\\+30") as raised:
        train(corpus([200]), settings, checkpoint=tmp_path / "checkpoint", minutes=0.0)
    assert "2.5e+29" in raised.value.do and not (tmp_path / "checkpoint").exists()


def test_a_corpus_without_words_is_refused():
    empty = Tokens(np.zeros(0, np.int32), np.zeros(1, np.int64), WordCounts([], np.zeros(0, np.int64)), 0)
    with pytest.raises(UnmaskError, match="no words"):
        train(empty, SETTINGS)


def test_progress_ends_at_all_words_of_all_epochs():
    told = []
    train(corpus([40, 50]), SETTINGS, block=50, progress=lambda *given: told.append(given))
    assert told[-1] == ("training, words", 270, 270) and [done for _, done, _ in told] == sorted(t[1] for t in told)
