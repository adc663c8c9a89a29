"""Neighbours and analogies: right, without surprises at the edges, and as gensim has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.config.static import CharacterNgrams
from unmask.errors import UnmaskError
from unmask.static import nearest as nearest_module
from unmask.static.nearest import nearest, nearest_by_product, unit_rows
from unmask.static.ngrams import Ngrams
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts


def vectors_of(matrix: object, words: list[str] | None = None, ngrams: Ngrams | None = None) -> Vectors:
    array = np.asarray(matrix, np.float32)
    words = words or [f"w{row}" for row in range(len(array))]
    return Vectors(WordCounts(words, np.arange(len(words), 0, -1)), array, ngrams)


@pytest.fixture(scope="module")
def random() -> Vectors:
    return vectors_of(np.random.default_rng(0).normal(size=(500, 20)))


@pytest.fixture(scope="module")
def theirs(random: Vectors):  # type: ignore[no-untyped-def]
    keyed = pytest.importorskip("gensim.models.keyedvectors").KeyedVectors(20)
    keyed.add_vectors(list(random.words.words), random.matrix)
    return keyed


def test_neighbours_by_hand() -> None:
    vectors = vectors_of([[1, 0], [2, 0.1], [0, 3], [-1, 0]], ["a", "b", "c", "d"])
    found = vectors.neighbors("a", 10)
    assert [neighbor.word for neighbor in found] == ["b", "c", "d"]
    assert [neighbor.score for neighbor in found] == pytest.approx([2 / np.hypot(2, 0.1), 0, -1])
    assert [neighbor.word for neighbor in vectors.neighbors(np.array([0, 1], np.float32), 2)] == ["c", "b"]
    assert vectors.similarity("a", "d") == pytest.approx(-1)


def test_an_analogy_by_hand() -> None:
    """One direction is royal, one is male."""
    words = ["man", "woman", "king", "queen", "apple"]
    vectors = vectors_of([[0, 1, 0.1], [0, -1, 0.1], [1, 1, 0.1], [1, -1, 0.1], [0.1, 0, 1]], words)
    for method in ("add", "mul"):
        assert vectors.analogy("man", "king", "woman", 1, method=method)[0].word == "queen"  # type: ignore[arg-type]
        answers = [answer.word for answer in vectors.analogy("man", "king", "woman", 9)]
        assert sorted(answers) == ["apple", "queen"]


@pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`")  # by gensim itself
@pytest.mark.parametrize("limit", [0, 100])
def test_neighbours_and_analogies_are_gensim_s(random: Vectors, theirs, limit: int) -> None:  # type: ignore[no-untyped-def]
    cut = limit or None
    for word in ("w0", "w57", "w499"):
        wanted = [pair for pair in theirs.most_similar(word, topn=11, restrict_vocab=cut) if pair[0] != word][:10]
        check(random.neighbors(word, 10, limit=limit), wanted)
    for a, b, c in (("w1", "w2", "w3"), ("w9", "w8", "w499"), ("w5", "w5", "w6")):
        check(random.analogy(a, b, c, 10, limit=limit), theirs.most_similar([b, c], [a], topn=10, restrict_vocab=cut))
    check(random.analogy("w1", "w2", "w3", 10, method="mul"), theirs.most_similar_cosmul(["w2", "w3"], ["w1"], topn=10))
    assert random.similarity("w1", "w2") == pytest.approx(theirs.similarity("w1", "w2"), abs=1e-6)


def check(ours: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> None:
    assert [word for word, _ in ours] == [word for word, _ in wanted]
    assert [score for _, score in ours] == pytest.approx([score for _, score in wanted], abs=2e-6)


def test_many_queries_at_once_give_what_each_gives_alone(random: Vectors, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [random.neighbors(f"w{row}", 5) for row in range(40)]
    assert random.neighbors_of([f"w{row}" for row in range(40)], 5) == alone
    monkeypatch.setattr(nearest_module, "_SCORES", 1100)  # two queries a block
    monkeypatch.setattr(nearest_module, "_PAIRS", 3)
    assert random.neighbors_of([f"w{row}" for row in range(40)], 5) == alone


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_equal_scores_are_ordered_by_frequency(data: st.DataObject) -> None:
    """However the rows fall into the blocks of a matrix product."""
    kinds = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=70))
    k = data.draw(st.integers(1, len(kinds)))
    base = np.random.default_rng(1).normal(size=(4, 33)).astype(np.float32)
    base[3] = 0
    vectors = vectors_of(base[kinds])
    query = data.draw(st.integers(0, len(kinds) - 1))
    found = vectors.neighbors(f"w{query}", k)
    cosines = unit_rows(base).astype(np.float64) @ unit_rows(base).astype(np.float64)[kinds[query]]
    others = [row for row in range(len(kinds)) if row != query]
    wanted = sorted(others, key=lambda row: (-round(cosines[kinds[row]], 6), row))[:k]
    assert [neighbor.word for neighbor in found] == [f"w{row}" for row in wanted]


@pytest.mark.parametrize("rows", [50, 101, 1003])
def test_what_a_matrix_product_rounds_differently_at_its_edge_is_still_equal(rows: int) -> None:
    random = np.random.default_rng(0)
    for dimension in (7, 50, 100, 300):
        vectors = vectors_of(np.repeat(random.normal(size=(1, dimension)), rows, 0))
        for queries in (1, 2, 3, 7):
            found = vectors.neighbors_of(random.normal(size=(queries, dimension)).astype(np.float32), 2)
            assert [[neighbor.word for neighbor in one] for one in found] == [["w0", "w1"]] * queries


def test_zero_and_extreme_vectors_never_give_nan() -> None:
    vectors = vectors_of([[0, 0], [3e38, 3e38], [1e-45, 0], [1, 1], [0, 0]])
    assert np.isfinite(vectors.unit).all() and np.linalg.norm(vectors.unit, axis=1).round(6).tolist() == [0, 1, 1, 1, 0]
    for row in range(5):
        for found in (vectors.neighbors(f"w{row}"), vectors.analogy("w0", f"w{row}", "w4", method="mul")):
            assert found and all(np.isfinite(neighbor.score) for neighbor in found)
    assert [neighbor.score for neighbor in vectors.neighbors("w0")] == [0, 0, 0, 0]
    assert vectors.similarity("w0", "w1") == 0 and vectors.similarity("w1", "w3") == pytest.approx(1)
    assert [neighbor.word for neighbor in vectors.analogy("w1", "w1", "w0")] == ["w2", "w3", "w4"]


def test_where_no_answer_is_left_there_is_none() -> None:
    vectors = vectors_of([[1, 0], [0, 1]])
    assert vectors.analogy("w0", "w1", "w0", 3) == []
    unit = unit_rows(vectors.matrix)
    ids, scores = nearest(unit, unit[:1], 5, [[0, 1]])
    assert ids.tolist() == [[-1, -1]] and scores.tolist() == [[0, 0]]
    assert nearest_by_product(unit, unit[:0], unit[:0], unit[:0], 1, [])[0].shape == (0, 1)


def test_an_unknown_word_gets_a_vector_from_its_n_grams_or_an_error_that_helps() -> None:
    ngrams = Ngrams(CharacterNgrams(shortest=3, longest=3, buckets=20), np.random.default_rng(0).normal(size=(20, 2)))
    vectors = vectors_of([[1, 0], [0, 1]], ["Paris", "the"], ngrams)
    np.testing.assert_array_equal(vectors.vector("paris"), ngrams.vector("paris"))
    np.testing.assert_array_equal(vectors.vector("the"), [0, 1])
    assert vectors.neighbors("paris", 2) and vectors.find("") is None
    with pytest.raises(UnmaskError, match="too short"):
        vectors.vector("")
    plain = vectors_of([[1, 0], [0, 1]], ["Paris", "the"])
    assert plain.find("paris") is None
    with pytest.raises(UnmaskError, match="did you mean 'Paris'"):
        plain.neighbors("paris")
    with pytest.raises(UnmaskError, match="among the 2 words"):
        plain.analogy("Paris", "the", "London")


def test_impossible_questions_are_errors(random: Vectors) -> None:
    with pytest.raises(UnmaskError, match="k is 0"):
        random.neighbors("w1", 0)
    for query in (np.ones(3, np.float32), np.full(20, np.nan, np.float32)):
        with pytest.raises(UnmaskError, match="finite vectors of 20 numbers"):
            random.neighbors(query)
