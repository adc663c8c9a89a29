"""Bi-encoders: features, scores, similarity of pairs, hard negatives."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from toy_retrieval import ToyTexts, example, word_id

from unmask.config import Contrast
from unmask.errors import UnmaskError
from unmask.labelled.records import Collection, Place, RankedExample
from unmask.tasks.contrast import Mining, collection_of, mine, number, score, sequences, similarity
from unmask.tasks.retrieval import Role, Vectors
from unmask.text.sequences import Sequences

TEXTS = ToyTexts()


def made_of(examples: list[RankedExample], task: Contrast = Contrast()) -> Sequences:  # noqa: B008
    return sequences(examples, TEXTS, task)[0]  # type: ignore[arg-type]


def rows(made: Sequences) -> list[list[int]]:
    return [row.tolist() for row in np.split(made.ids_T, made.starts[1:-1])]


# --- features --------------------------------------------------------------------------------------------------------
def test_each_answer_of_a_query_is_a_unit_with_the_query_s_negatives() -> None:
    made = made_of([example("q1", ["d1", "d2"], ["d3"]), example("q2", ["d4"])])
    words = [[WORD for WORD in row[1:-1]] for row in rows(made)]
    wanted = ["q1", "d1", "d3", "q1", "d2", "d3", "q2", "d4"]
    assert words == [[word_id(word)] for word in wanted]
    assert made.unit_N.tolist() == [0, 0, 0, 1, 1, 1, 2, 2] and made.example_N.tolist() == [0] * 6 + [1] * 2
    assert made.labels["query"].value_M.tolist() == [0, 1, 2]
    assert made.labels["document"].value_M.tolist() == [0, 0, 1, 1, 2]
    assert made.labels["positive"].value_M.tolist() == [1, 0, 1, 0, 1]
    assert np.diff(made.labels["known"].starts).tolist() == [2, 0, 0, 2, 0, 0, 1, 0]


def test_queries_and_documents_have_prompts_of_their_own() -> None:
    """vllm#11801: a query's prompt forgotten. What is compared and hashed is the text without it."""
    task = Contrast(query_prompt="find: ", document_prompt="text: ")
    made = made_of([example("q1", ["d1"], ["d2"])], task)
    assert [row[1] for row in rows(made)] == [word_id("find:"), word_id("text:"), word_id("text:")]
    assert made.labels["text"].value_M.tolist() == [number("q1"), number("d1"), number("d2")]
    twin = rows(made_of([example("a", [])], task))
    assert twin[0] == twin[1] and twin[0][1] == word_id("find:")


def test_a_negative_that_is_known_to_answer_is_left_out() -> None:
    """sentence-transformers PR#2818, PR#2848, #1346: also where another record of the same query says so."""
    made = made_of([example("q1", ["d1"], ["D1 ", "d2", "d3"]), example(" Q1", ["d2"])])
    assert made.labels["text"].value_M.tolist() == list(map(number, ["q1", "d1", "d3", "q1", "d2"]))


def test_scores_follow_their_texts_and_are_given_for_all_or_none() -> None:
    scored = example("q1", ["d1", "d2"], ["d1", "d3"], (5.0, 4.0, 3.0, 2.0))
    assert made_of([scored]).labels["teacher"].value_M.tolist() == [5, 2, 4, 2]
    with pytest.raises(UnmaskError, match="some have none") as caught:
        made_of([scored, RankedExample("q2", ("d1",), (), Place("x.jsonl", 3, 3))])
    assert "x.jsonl, line 3" in str(caught.value)


# --- scores ----------------------------------------------------------------------------------------------------------
def test_every_document_of_the_records_is_a_candidate() -> None:
    examples = [example("q1", ["d1", "d2"]), example("q2", ["d3"], ["d1"])]
    made = made_of(examples)
    directions = {"q1": 0.0, "d1": 40.0, "d2": 10.0, "d3": 30.0, "q2": 22.0}
    angle = {number(text): math.radians(x) for text, x in directions.items()}
    angles = np.array([angle[key] for key in made.labels["text"].value_M.tolist()])
    found = score(np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32), made, examples)
    first = (1 + 1 / 2) / (1 + 1 / math.log2(3))  # d2 at rank 1, d1 at rank 3
    assert found["ndcg@10"] == pytest.approx((first + 1) / 2) and found["recall@10"] == 1
    assert found["mrr@10"] == 1 and next(iter(found)) == "ndcg@10"


def test_equal_queries_and_documents_are_one_in_a_collection() -> None:
    made = collection_of([example("q1 a", ["d1"]), example("Q1  a", ["d2"], ["D1"]), example("q2", [])])
    assert list(made.documents.values()) == ["d1", "d2"] and list(made.queries.values()) == ["q1 a"]
    assert made.relevant == {"q0": {"d0": 1, "d1": 1}}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 30))
def test_similarity_of_pairs_equals_scipy(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(2, count, 5)).astype(np.float32)
    truth = rng.integers(0, 4, count).astype(float)
    truth[0], truth[1] = 0, 5
    cosine = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    found = similarity(left, right, truth.tolist())
    assert found["pearson"] == pytest.approx(stats.pearsonr(truth, cosine)[0], abs=1e-6)
    assert found["spearman"] == pytest.approx(stats.spearmanr(truth, cosine)[0], abs=1e-6)


# --- hard negatives --------------------------------------------------------------------------------------------------
ANGLES = {"query": 0.0, "answer": 30.0, "near": 10.0, "nearer": 5.0, "far": 50.0, "farther": 70.0, "Answer ": 31.0}


def embed(texts: list[str], role: Role) -> Vectors:
    angles = np.radians([ANGLES[text] for text in texts])
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def collection(*names: str) -> Collection:
    documents = {str(at): name for at, name in enumerate(names)}
    return Collection(documents, {"q": "query", "unjudged": "near"}, {"q": {"0": 1, "1": 0}})


EVERYTHING = collection("answer", "near", "nearer", "far", "farther", "Answer ", "query", "far")


def mined(mining: Mining, of: Collection = EVERYTHING) -> tuple[str, ...]:
    (record,) = mine(of, embed, mining)  # type: ignore[arg-type]
    assert record.query == "query" and record.positives == ("answer",)
    return record.negatives


def test_no_answer_is_ever_mined_by_its_id_its_text_or_its_twin() -> None:
    """sentence-transformers PR#2818, PR#2848, #1346; nor the query's own text, nor a text twice."""
    found = mined(Mining(count=9, margin=-2))
    assert found == ("nearer", "near", "far", "farther")


def test_what_is_nearer_than_an_answer_is_suspect() -> None:
    assert mined(Mining(count=9)) == ("far", "farther")
    margin = math.cos(math.radians(30)) - math.cos(math.radians(60))
    assert mined(Mining(count=9, margin=margin)) == ("farther",)
    two = replace(EVERYTHING, relevant={"q": {"0": 1, "3": 1}})
    (record,) = mine(two, embed, Mining(count=9))  # type: ignore[arg-type]
    assert record.positives == ("answer", "far") and record.negatives == ("farther",)


def test_the_answers_of_an_equal_query_bound_what_is_far_enough() -> None:
    twice = replace(EVERYTHING, queries={"q": "query", "r": "query"}, relevant={"q": {"0": 1}, "r": {"4": 1}})
    found = mine(twice, embed, Mining(count=9))  # type: ignore[arg-type]
    assert [(one.positives, one.negatives) for one in found] == [(("answer",), ()), (("farther",), ())]


def test_the_first_ranks_can_be_left_out_and_the_search_be_short() -> None:
    all_ = mined(Mining(count=9, margin=-2))
    for skip, left in enumerate((all_, all_, all_[1:], all_[2:])):  # rank 1 is the query itself
        assert mined(Mining(count=9, margin=-2, skip=skip)) == left
    assert mined(Mining(count=1, margin=-2)) == all_[:1]
    assert mined(Mining(count=9, margin=-2, depth=2)) == all_[:1]


@given(answers=st.sets(st.integers(0, 19), min_size=1), seed=st.integers(0, 99), skip=st.integers(0, 5))
def test_mining_keeps_its_promises(answers: set[int], seed: int, skip: int) -> None:
    rng = np.random.default_rng(seed)
    table = {f"text {i % 12}{' ' * (i // 12)}": rng.normal(size=4).astype(np.float32) for i in range(20)}
    texts = list(table)
    made = Collection(dict(enumerate(texts)), {"q": "find"}, {"q": dict.fromkeys(answers, 1)})  # type: ignore[arg-type]
    table["find"] = rng.normal(size=4).astype(np.float32)
    unit = lambda given, role: np.stack([table[t] / np.linalg.norm(table[t]) for t in given])
    (record,) = mine(made, unit, Mining(skip=skip, count=5, depth=20))
    cosine = lambda text: float(unit([text], "document")[0] @ unit(["find"], "query")[0])
    lowest = min(map(cosine, record.positives))
    known = {number(text) for text in record.positives}
    assert all(number(text) not in known and cosine(text) <= lowest + 1e-6 for text in record.negatives)
    assert len({number(text) for text in record.negatives}) == len(record.negatives) <= 5
    assert all(cosine(a) >= cosine(b) - 1e-6 for a, b in pairwise(record.negatives))


def test_settings_that_find_nothing_are_refused() -> None:
    for bad in ({"count": 0}, {"skip": 100}, {"skip": -1}):
        with pytest.raises(ValueError):
            Mining(**bad)
