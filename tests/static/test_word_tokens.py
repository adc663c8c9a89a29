from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config.static import Words
from unmask.errors import UnmaskError
from unmask.static import tokens
from unmask.static.tokens import tokens_of_corpus, tokens_of_lines
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer

LINES = st.lists(st.lists(st.sampled_from(["a", "b", "B", "é", "好", "\ud800", "x" * 300, "9 9".replace(" ", "_")])))


def as_words(found) -> list[list[str]]:
    bounds = found.lines.tolist()
    return [[found.words.words[at] for at in found.ids[a:b]] for a, b in zip(bounds, bounds[1:], strict=False)]


@given(LINES, st.integers(1, 3), st.integers(0, 3), st.integers(1, 4), st.integers(1, 7))
def test_every_frequent_word_is_kept_in_its_line_and_rare_ones_are_left_out(lines, least, most, distinct, chunk):
    """However often the distinct words had to be put aside, and however the numbers fall into chunks."""
    counts = Counter(word for line in lines for word in line)  # in order of appearance
    kept = [word for word, count in counts.most_common() if count >= least]
    kept = kept[:most] if most else kept
    usual, tokens.CHUNK = tokens.CHUNK, chunk
    try:
        with TemporaryDirectory() as folder:
            settings = Words(min_count=least, max_words=most)
            if not kept:
                with pytest.raises(UnmaskError, match="No word occurs"):
                    tokens_of_lines(lines, Path(folder), settings, distinct=distinct)
                return
            found = tokens_of_lines(lines, Path(folder), settings, distinct=distinct)
            assert found.words.words == kept
            assert found.words.counts.tolist() == [counts[word] for word in kept]
            wanted = [[word for word in line if word in kept] for line in lines]
            assert as_words(found) == [line for line in wanted if line]
            assert found.read == sum(counts.values())
    finally:
        tokens.CHUNK = usual


def test_a_line_of_any_length_stays_whole(tmp_path):
    """gensim#2880 drops what comes after 10,000 words of a text."""
    found = tokens_of_lines([["a", "b"] * 150_000], tmp_path, Words())
    assert len(found.ids) == 300_000 and found.lines.tolist() == [0, 300_000]


def test_memory_does_not_grow_with_the_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "CHUNK", 1 << 12)

    def peak(lines: int) -> int:
        folder = tmp_path / str(lines)
        folder.mkdir()
        tracemalloc.start()
        found = tokens_of_lines((["a", "b"][: 1 + at % 2] for at in range(lines)), folder, Words())
        assert len(found.lines) == lines + 1
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = peak(20_000), peak(120_000)
    assert many - few < 100_000  # not a byte for each line more


def test_equal_words_in_equal_order_have_the_same_fingerprint(tmp_path):
    def fingerprint(name: str, lines: list[list[str]], distinct: int) -> str:
        (tmp_path / name).mkdir()
        return tokens_of_lines(lines, tmp_path / name, Words(min_count=1), distinct=distinct).fingerprint

    one = fingerprint("one", [["a", "b"], ["a"]], 10)
    assert fingerprint("two", [["a", "b"], ["a"]], 1) == one
    assert fingerprint("three", [["a", "b", "a"]], 10) != one


def test_a_corpus_of_shards_gives_its_tokens_and_its_sentences(small_corpus, tmp_path, monkeypatch):
    corpus = Corpus.open(small_corpus)
    whole = corpus.read(np.arange(corpus.num_documents))
    monkeypatch.setattr(tokens, "CHUNK", 1000)
    found = tokens_of_corpus(corpus, tmp_path, Words(min_count=3))
    pieces = Tokenizer.load(corpus.tokenizer_folder).pieces()
    counts = Counter(whole.tokens.tolist())
    kept = {id for id, count in counts.items() if count >= 3 and not corpus.vocabulary.is_special()[id]}
    bounds = whole.sentences.tolist()
    wanted = [[pieces[t] for t in whole.tokens[a:b] if t in kept] for a, b in zip(bounds, bounds[1:], strict=False)]
    assert as_words(found) == [line for line in wanted if line]
    assert found.read == corpus.num_tokens
    assert found.words.counts.tolist() == sorted((counts[id] for id in kept), reverse=True)
