"""The compiled loops do what the specification says, for every kind of training, number by number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unmask.config.static import CharacterNgrams, Word2Vec, Words
from unmask.static.tokens import Tokens
from unmask.static.word2vec import train
from unmask.static.words import WordCounts

KINDS = [(model, loss) for model in ("skipgram", "cbow") for loss in ("negative", "hierarchical")]
BASE = Word2Vec(dimension=7, window=3, epochs=2, subsample=0.02, learning_rate=0.2, words=Words(min_count=1))


def corpus(words: int, lengths: list[int], seed: int = 0) -> Tokens:
    """Lines of words drawn by Zipf's law; with few words a window has the same one twice, and negatives are the centre."""
    rng, total = np.random.default_rng(seed), sum(lengths)
    share = 1 / np.arange(1, words + 1)
    ids = np.concatenate([np.arange(words), rng.choice(words, total, p=share / share.sum())])[-total:].astype(np.int32)
    counts = np.sort(np.bincount(ids, minlength=words))[::-1].astype(np.int64)
    lines = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Tokens(ids, lines, WordCounts([f"word{i}é" for i in range(words)], counts), total)


def assert_same(tokens: Tokens, settings: Word2Vec, **options: int) -> None:
    fast, plain = (train(tokens, settings, plainly=plainly, **options) for plainly in (False, True))
    for name in ("inputs", "outputs", "ngrams"):
        if getattr(plain, name) is not None:
            np.testing.assert_allclose(getattr(fast, name), getattr(plain, name), atol=1e-5)
    for one, other in zip(fast.epochs, plain.epochs, strict=True):
        assert (one.words, one.kept, one.pairs) == (other.words, other.kept, other.pairs)
        assert one.loss == pytest.approx(other.loss, abs=1e-5)
    assert np.abs(plain.outputs).max(initial=0) > 1e-3 or len(plain.outputs) == 0


@pytest.mark.parametrize(("model", "loss"), KINDS)
@pytest.mark.parametrize("ngrams", [CharacterNgrams(), CharacterNgrams(shortest=3, longest=4, buckets=50)])
@pytest.mark.parametrize("dimension", [1, 7, 100])
def test_loops_equal_the_specification(model, loss, ngrams, dimension):
    settings = replace(BASE, model=model, loss=loss, ngrams=ngrams, dimension=dimension)
    assert_same(corpus(40, [1, 30, 2, 1, 60, 9]), settings)


@pytest.mark.parametrize(("model", "loss"), KINDS)
@pytest.mark.parametrize("words", [1, 2])
def test_so_they_do_with_one_word_or_two(model, loss, words):
    assert_same(corpus(words, [5, 1, 8]), replace(BASE, model=model, loss=loss, subsample=0.0))


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize("negatives", [1, 4, 6, 11, 30])
def test_so_they_do_with_any_number_of_negatives(model, negatives):
    assert_same(corpus(12, [25, 14]), replace(BASE, model=model, negatives=negatives, learning_rate=0.05))


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_so_they_do_with_a_window_wider_than_every_line(model):
    assert_same(corpus(9, [4, 6, 3]), replace(BASE, model=model, window=50))


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("ngrams", [CharacterNgrams(), CharacterNgrams(shortest=2, longest=3, buckets=5)])
def test_so_they_do_when_the_gradient_is_averaged(average, ngrams):
    assert_same(corpus(20, [40]), replace(BASE, model="cbow", average_gradient=average, ngrams=ngrams))


@pytest.mark.parametrize(("model", "loss"), KINDS)
def test_so_they_do_in_blocks(model, loss):
    assert_same(corpus(30, [10, 50, 3, 7, 1, 1, 20]), replace(BASE, model=model, loss=loss), block=12)
