from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import GPT2_LIKE, T5_LIKE, VOCABULARY, MadeUpSource, numbered_documents

from unmask.config import Blocks, Documents, Examples, FullSentences, Pairs
from unmask.errors import UnmaskError
from unmask.randomness import generator
from unmask.text.examples import Pool, cut
from unmask.text.vocabulary import Vocabulary

SIZES = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), min_size=1, max_size=12)
ALL = [
    Pairs(max_length=24),
    Pairs(max_length=24, negatives="swapped"),
    FullSentences(max_length=24),
    Blocks(max_length=24),
    Documents(max_length=24),
]


def pool_of(
    documents: list[list[list[int]]], how: Examples, seed: int = 0, vocabulary: Vocabulary = VOCABULARY
) -> Pool:
    source = MadeUpSource(documents)
    return cut(source.read(np.arange(len(documents))), how, vocabulary, generator(seed))


def sequences(pool: Pool) -> list[list[int]]:
    at, _, lengths = pool.gather(np.arange(len(pool)))
    return [part.tolist() for part in np.split(pool.stream[at], lengths.cumsum()[:-1])]


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from(ALL), st.integers(0, 99))
def test_every_token_of_every_document_is_used_once(sizes: list[list[int]], how: Examples, seed: int) -> None:
    documents = numbered_documents(sizes)
    used = Counter(t for s in sequences(pool_of(documents, how, seed)) for t in s if t >= 5)
    wanted = Counter(t for d in documents for s in d for t in s)
    assert not used - wanted, "a token is used twice or comes from nowhere"
    lost = sum((wanted - used).values())
    # random negatives cut what does not fit where documents are few; nothing else may lose a token
    assert lost == 0 or (how == ALL[0] and lost < how.max_length * len(sizes))


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from(ALL), st.integers(0, 99))
def test_no_example_is_longer_than_asked_or_empty(sizes: list[list[int]], how: Examples, seed: int) -> None:
    pool = pool_of(numbered_documents(sizes), how, seed)
    assert [len(s) for s in sequences(pool)] == pool.lengths().tolist()
    assert pool.lengths().max() <= how.max_length and pool.lengths().min() >= 3


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from([*ALL, Blocks(max_length=24, frame=False)]), st.integers(0, 99))
def test_examples_are_packed_by_the_loop_as_its_twin_packs_them(
    sizes: list[list[int]], how: Examples, seed: int
) -> None:
    rng, pool = np.random.default_rng(seed), pool_of(numbered_documents(sizes), how, seed)
    pool = replace(pool, word_starts=rng.random(len(pool.stream)) < 0.5)
    for chosen in (np.arange(len(pool)), rng.integers(0, len(pool), 5), rng.integers(0, len(pool), 0)):
        for found, wanted in zip(pool.pack(chosen), pool.pack_plainly(chosen), strict=True):
            assert np.array_equal(found, wanted) and found.dtype == wanted.dtype


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(0, 99))
def test_pairs_have_the_shape_of_bert(sizes: list[list[int]], seed: int) -> None:
    pool = pool_of(numbered_documents(sizes), ALL[0], seed)
    at, segment, lengths = pool.gather(np.arange(len(pool)))
    for ids, kinds, label in zip(
        np.split(pool.stream[at], lengths.cumsum()[:-1]),
        np.split(segment, lengths.cumsum()[:-1]),
        pool.label,
        strict=True,
    ):
        separators = np.flatnonzero(ids == VOCABULARY.sep_token_id)
        assert ids[0] == VOCABULARY.cls_token_id and separators[-1] == len(ids) - 1
        assert len(separators) == (1 if label < 0 else 2)
        assert kinds.tolist() == [0] * (separators[0] + 1) + [1] * (len(ids) - separators[0] - 1)


def which_document(documents: list[list[list[int]]]) -> dict[int, int]:
    return {t: n for n, d in enumerate(documents) for s in d for t in s}


@pytest.mark.parametrize("negatives", ["random", "swapped"])
def test_B023_label_0_means_b_follows_a(negatives: str) -> None:
    documents = numbered_documents([[7, 6, 8, 5, 9]] * 300)
    home = which_document(documents)
    pool = pool_of(documents, Pairs(max_length=32, short_rate=0.1, negatives=negatives))  # type: ignore[arg-type]
    first, second = pool.stream[pool.first[:, 1] - 1], pool.stream[np.minimum(pool.second[:, 0], len(pool.stream) - 1)]
    for last_of_a, first_of_b, a, label in zip(first, second, pool.first, pool.label, strict=True):
        if label == 0:
            assert first_of_b == last_of_a + 1
        elif label == 1 and negatives == "random":
            assert home[first_of_b] != home[last_of_a]
        elif label == 1:  # FACTS: SOP negatives are always swapped neighbours, never a random document
            b = pool.second[pool.first[:, 0] == a[0]][0]
            assert pool.stream[b[1] - 1] + 1 == pool.stream[a[0]]
    assert abs((pool.label == 1).mean() - 0.5) < 0.05


def test_a_corpus_of_one_document_has_no_random_negatives() -> None:
    assert (pool_of(numbered_documents([[9] * 40]), ALL[0]).label <= 0).all()


def test_random_negatives_are_as_long_as_true_pairs() -> None:
    """Length must not give the label away."""
    rng = np.random.default_rng(0)
    sizes = [rng.integers(3, 30, rng.integers(2, 20)).tolist() for _ in range(800)]
    pool = pool_of(numbered_documents(sizes), Pairs(max_length=64))
    for part in (pool.lengths(), pool.second[:, 1] - pool.second[:, 0], pool.first[:, 1] - pool.first[:, 0]):
        true, random = part[pool.label == 0], part[pool.label == 1]
        assert abs(true.mean() - random.mean()) < 0.04 * true.mean()


@pytest.mark.parametrize("documents, sentences", [(2, 400), (3, 300), (8, 100), (30, 30), (300, 8)])
def test_half_of_the_pairs_are_random_however_few_the_documents(documents: int, sentences: int) -> None:
    rng = np.random.default_rng(0)
    texts = numbered_documents([rng.integers(3, 30, sentences).tolist() for _ in range(documents)])
    labels = np.concatenate([pool_of(texts, Pairs(max_length=64), seed).label for seed in range(6)])
    assert abs((labels == 1).mean() - 0.5) < 0.05


def test_where_the_parts_are_cut_does_not_tell_the_label() -> None:
    """Pairs parted within a sentence are exchanged among themselves: a cut sentence beside a whole one would give them away."""
    rng = np.random.default_rng(0)
    documents = numbered_documents([rng.integers(3, 60, rng.integers(1, 12)).tolist() for _ in range(1500)])
    texts = MadeUpSource(documents).read(np.arange(1500))
    pool = cut(texts, Pairs(max_length=64), VOCABULARY, generator(1))
    borders, pairs = texts.sentences + 2, pool.label >= 0
    cuts = 2 * np.isin(pool.first[:, 1], borders) + np.isin(pool.second[:, 0], borders)
    best = sum(np.bincount(pool.label[pairs & (cuts == kind)], minlength=2).max() for kind in range(4))
    assert best / pairs.sum() < 0.53


def test_random_pairs_lose_hardly_a_token() -> None:
    rng = np.random.default_rng(0)
    documents = numbered_documents([rng.integers(3, 30, rng.integers(2, 20)).tolist() for _ in range(300)])
    kept = sum(t >= 5 for s in sequences(pool_of(documents, Pairs(max_length=64))) for t in s)
    assert kept / sum(len(s) for d in documents for s in d) > 0.998


def test_full_sentences_put_a_separator_between_documents() -> None:
    documents = numbered_documents([[4, 3], [2], [9]])
    assert sequences(pool_of(documents, FullSentences(max_length=14))) == [
        [2, 5, 6, 7, 8, 9, 10, 11, 3, 12, 13, 3],
        [2, *range(14, 23), 3],
    ]


def test_documents_are_cut_into_consecutive_pieces() -> None:
    assert sequences(pool_of(numbered_documents([[4, 3], [2]]), Documents(max_length=8))) == [
        [2, 5, 6, 7, 8, 9, 10, 3],
        [2, 11, 3],
        [2, 12, 13, 3],
    ]


def test_blocks_are_equal() -> None:
    lengths = pool_of(numbered_documents([[50], [33], [41]]), Blocks(max_length=20)).lengths()
    assert (lengths[:-1] == 20).all() and lengths[-1] <= 20


def test_B021_nsp_examples_survive_documents_of_one_token() -> None:
    for seed in range(50):
        pool = pool_of(numbered_documents([[1], [1], [2], [9, 1]]), Pairs(max_length=16), seed)
        assert (pool.label == -1).sum() >= 2
        assert (pool.label[pool.second[:, 1] == pool.second[:, 0]] == -1).all()


def test_the_document_of_an_example_is_the_one_it_begins_in() -> None:
    documents = numbered_documents([[7, 6], [8], [30, 2], [5]])
    home = which_document(documents)
    for how in ALL:
        pool = pool_of(documents, how)
        for begin, document in zip(pool.first[:, 0], pool.document, strict=True):
            if pool.stream[begin] >= 5 and how != ALL[1]:
                assert home[int(pool.stream[begin])] == document


SINGLE = [
    FullSentences(max_length=24),
    Blocks(max_length=24),
    Blocks(max_length=24, frame=False),
    Documents(max_length=24),
]


@settings(max_examples=80, deadline=None)
@given(SIZES, st.sampled_from(SINGLE), st.sampled_from([VOCABULARY, T5_LIKE, GPT2_LIKE]))
def test_every_vocabulary_uses_every_token_once_in_its_own_frame(
    sizes: list[list[int]], how: Examples, vocabulary: Vocabulary
) -> None:
    documents = numbered_documents(sizes)
    pool = pool_of(documents, how, vocabulary=vocabulary)
    found = sequences(pool)
    assert [len(s) for s in found] == pool.lengths().tolist() and pool.lengths().max() <= how.max_length
    assert Counter(t for s in found for t in s if t >= 5) == Counter(t for d in documents for s in d for t in s)
    if how == SINGLE[2]:
        between = [t for s in found for t in s]
        assert between == [t for d in documents for s in [[3], *d] for t in s][1:], "the bare stream, nothing else"
        return
    for sequence in found:
        assert (sequence[0] == 2) == (vocabulary is VOCABULARY) and sequence[-1] == 3
        assert 2 not in sequence[1:]


def test_t5_reads_text_and_its_end() -> None:
    pool = pool_of(numbered_documents([[4, 3], [2]]), Documents(max_length=8), vocabulary=T5_LIKE)
    assert sequences(pool) == [[5, 6, 7, 8, 9, 10, 11, 3], [12, 13, 3]]
    assert pool.gather(np.arange(2))[1].tolist() == [0] * 11


def test_gpt_reads_slices_of_one_stream() -> None:
    pool = pool_of(numbered_documents([[5], [6]]), Blocks(max_length=8, frame=False), vocabulary=GPT2_LIKE)
    assert sequences(pool) == [[5, 6, 7, 8, 9, 3, 10, 11], [12, 13, 14, 15]]


@pytest.mark.parametrize("vocabulary", [T5_LIKE, GPT2_LIKE])
def test_pairs_without_the_token_that_begins_them_are_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(UnmaskError, match="no cls token"):
        pool_of(numbered_documents([[4, 3], [2]]), Pairs(max_length=24), vocabulary=vocabulary)


def test_documents_that_can_not_be_told_apart_are_refused() -> None:
    nameless = replace(GPT2_LIKE, sep_token_id=None)
    with pytest.raises(UnmaskError, match="no sep token"):
        pool_of(numbered_documents([[4], [2]]), Blocks(max_length=8, frame=False), vocabulary=nameless)


@settings(max_examples=60, deadline=None)
@given(SIZES)
def test_full_sentences_take_every_sentence_that_still_fits(sizes: list[list[int]]) -> None:
    """The definition, sentence by sentence: a new example begins with the first one that does not fit."""
    room, full, now = 22, [], 0
    for document, sentences in enumerate(sizes):
        for number, size in enumerate(sentences):
            gap = int(document > 0 and number == 0)  # a separator stands before a document
            if now and now + gap + size <= room:
                now += gap + size
                continue
            if now:
                full.append(now)
            if (now := size) > room:
                parts = -(-size // room)
                full += np.diff([k * size // parts for k in range(parts + 1)]).tolist()
                now = 0
    pool = pool_of(numbered_documents(sizes), FullSentences(max_length=24))
    assert (pool.lengths() - 2).tolist() == full + [now] * (now > 0)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from([0.0, 0.4, 1.0]), st.integers(0, 99))
def test_pairs_take_every_sentence_that_still_fits(sizes: list[list[int]], short_rate: float, seed: int) -> None:
    """Without short ones each document is filled from the left; with them no chunk is longer, and all stay in order."""
    documents = numbered_documents(sizes)
    how = Pairs(max_length=24, negatives="swapped", negative_rate=0.0, short_rate=short_rate)
    pool = pool_of(documents, how, seed)
    found = (np.diff(pool.first)[:, 0] + np.diff(pool.second)[:, 0]).tolist()
    full = [size for document in sizes for size in _filled(document, 21)]
    assert sum(found) == sum(full) and max(found) <= 21
    assert found == full if short_rate == 0 else len(found) >= len(full)


def _filled(sentences: list[int], room: int) -> list[int]:
    """Lengths of the chunks of one document, from the left, each as full as whole pieces allow."""
    chunks: list[int] = []
    for size in sentences:
        parts = -(-size // room)
        for piece in np.diff([k * size // parts for k in range(parts + 1)]).tolist():
            if chunks and chunks[-1] + piece <= room:
                chunks[-1] += piece
            else:
                chunks.append(piece)
    return chunks
