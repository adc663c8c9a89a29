"""Parts of words: the same as fastText's, and what vectors come of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.config.static import CharacterNgrams
from unmask.static.ngrams import Ngrams, bucket_of, ngram_buckets, ngrams_of

words = st.lists(st.text(st.sampled_from("abé中文😀́"), max_size=7), max_size=6)
cuts = st.builds(
    lambda shortest, more, buckets: CharacterNgrams(shortest=shortest, longest=shortest + more, buckets=buckets),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(1, 5000),
)


def test_the_n_grams_of_the_paper_s_example() -> None:
    assert ngrams_of("where", CharacterNgrams(shortest=3, longest=3)) == ["<wh", "whe", "her", "ere", "re>"]
    assert ngrams_of("中文", CharacterNgrams(shortest=1, longest=2)) == ["<中", "中", "中文", "文", "文>"]


@settings(max_examples=30, deadline=None)
@given(words, cuts)
def test_the_compiled_buckets_are_those_of_the_plain_twin(words: list[str], cut: CharacterNgrams) -> None:
    starts, buckets = ngram_buckets(words, cut)
    wanted = [[bucket_of(ngram, cut.buckets) for ngram in ngrams_of(word, cut)] for word in words]
    assert [buckets[a:b].tolist() for a, b in zip(starts[:-1], starts[1:], strict=True)] == wanted


@settings(max_examples=30, deadline=None)
@given(words, cuts)
def test_n_grams_and_hash_are_those_of_fasttext(words: list[str], cut: CharacterNgrams) -> None:
    inner = pytest.importorskip("gensim.models.fasttext_inner")
    for word in words:
        theirs = inner.compute_ngrams_bytes(word, cut.shortest, cut.longest)
        assert [ngram.encode() for ngram in ngrams_of(word, cut)] == theirs
        assert [bucket_of(ngram, 2**31) for ngram in ngrams_of(word, cut)] == [
            inner.ft_hash_bytes(n) % 2**31 for n in theirs
        ]


def test_a_known_word_is_the_mean_of_itself_and_its_n_grams_an_unknown_one_of_these_alone() -> None:
    cut = CharacterNgrams(shortest=2, longest=3, buckets=50)
    random = np.random.default_rng(0)
    ngrams = Ngrams(cut, random.normal(size=(50, 4)).astype(np.float32))
    own = random.normal(size=(3, 4)).astype(np.float32)
    words = ["see", "saw", "seesaw"] * 700
    own = np.tile(own, (700, 1))
    composed = ngrams.compose(words, own)
    for word, vector, mine in list(zip(words, composed, own, strict=True))[-4:]:
        parts = [ngrams.matrix[bucket_of(ngram, 50)] for ngram in ngrams_of(word, cut)]
        np.testing.assert_allclose(vector, np.mean([mine, *parts], axis=0), atol=1e-6)
        np.testing.assert_allclose(ngrams.vector(word), np.mean(parts, axis=0), atol=1e-6)


def test_a_word_too_short_for_an_n_gram_has_no_vector() -> None:
    ngrams = Ngrams(CharacterNgrams(shortest=5, longest=6, buckets=2), np.ones((2, 3), np.float32))
    assert ngrams.vector("ab") is None and ngrams.vector("abc") is not None
    own = np.full((3, 3), 4, np.float32)
    composed = ngrams.compose(["ab", "abc", "ab"], own)  # <abc> is one n-gram
    np.testing.assert_array_equal(composed, [[4, 4, 4], [2.5, 2.5, 2.5], [4, 4, 4]])
    np.testing.assert_array_equal(ngrams.compose(["ab"], own[:1]), [[4, 4, 4]])
