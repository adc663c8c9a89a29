"""Cross-encoders: features, rankings, probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from toy_retrieval import ToyTexts, example, word_id

from unmask.config import Ranking
from unmask.errors import UnmaskError
from unmask.labelled.records import Place, RankedExample
from unmask.tasks.rank import decode, relevance, score, sequences, sigmoid

LISTWISE, POINTWISE = Ranking(loss="listwise"), Ranking(loss="pointwise")
TEXTS = ToyTexts()
TWO = [example("q1", ["d1"], ["d2", "d3"]), example("q2", ["d4", "d5"])]


def test_each_text_stands_beside_its_query() -> None:
    made, cut = sequences(TWO, TEXTS, POINTWISE)  # type: ignore[arg-type]
    assert len(made) == 5 and not cut.any()
    rows = np.split(made.ids_T, made.starts[1:-1])
    assert rows[1].tolist() == [2, word_id("q1"), 3, word_id("d2"), 3]
    assert made.token_type_ids_T is not None and made.token_type_ids_T[:5].tolist() == [0, 0, 0, 1, 1]
    assert made.unit_N.tolist() == made.example_N.tolist() == [0, 0, 0, 1, 1]
    assert made.labels["rank"].value_M.tolist() == [1, 0, 0, 1, 1]
    assert made.labels["query"].starts.tolist() == [0, 1, 1, 1, 2, 2]
    assert not sequences(TWO, TEXTS, POINTWISE, labelled=False)[0].labels  # type: ignore[arg-type]


def test_what_cannot_be_learned_from_is_refused_with_its_place() -> None:
    place = Place("train.jsonl", 7, 6)
    for bad, why in (
        (RankedExample("q1", (), ("d1",), place), "no text answers this query"),
        (RankedExample("q1", ("d1",), ("d2",), place, (9.5, -3.0)), "must lie between 0 and 1"),
        (RankedExample("q1", ("d1",), ("d2",), place, (math.nan, 0.0)), "must lie between 0 and 1"),
        (RankedExample("q1", (), (), place), "no text to rank"),
    ):
        with pytest.raises(UnmaskError, match=why) as caught:
            sequences([*TWO, bad], TEXTS, LISTWISE)  # type: ignore[arg-type]
        assert "train.jsonl, line 7, record 6" in str(caught.value)


def test_texts_come_back_best_first_with_raw_scores_and_probabilities() -> None:
    """sentence-transformers#1058, #1004, #1262, #1546: raw scores are no probabilities; both are named."""
    first, second = decode(np.array([0.5, 12.0, -3.0, 1.0, 1.0], np.float32), TWO)
    assert first.texts == ("d2", "d1", "d3") and first.scores == (12.0, 0.5, -3.0) and first.places == (1, 0, 2)
    assert first.probabilities == pytest.approx([1 / (1 + math.exp(-s)) for s in (12, 0.5, -3)], abs=1e-12)
    assert second.places == (0, 1), "equal scores stay in their order"


def test_high_scores_keep_their_order_as_probabilities() -> None:
    """haiku.rag#529: in bf16, and from 17 on in fp32, a sigmoid is 1."""
    made = sigmoid(np.array([9.0, 10.5, 12.0, 30.0], np.float32))
    assert (np.diff(made) > 0).all() and made[-1] < 1
    assert sigmoid(np.array([-1e30, 1e30])).tolist() == pytest.approx([0, 1])


def test_scores_by_hand() -> None:
    found = score(decode(np.array([0.5, 2.0, -3.0, 1.0, -1.0]), TWO), TWO)
    assert next(iter(found)) == "ndcg@10"
    assert found["mrr@10"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["ndcg@10"] == pytest.approx((1 / math.log2(3) + 1) / 2)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["average_precision"] == pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)


def test_a_model_that_says_the_same_of_all_texts_gains_nothing() -> None:
    """Positives come first in a record: a stable sort of equal scores would be a perfect ranking."""
    many = [example("q1", ["d1"], [f"d{i % 8}" for i in range(12)])]
    assert score(decode(np.zeros(13), many), many)["mrr@10"] == 0


# --- classifiers that rank -------------------------------------------------------------------------------------------
LOGITS = np.array([[2.0, 1.0, 0.0], [3.0, 2.9, -5.0], [0.0, 1.0, 4.0]])
NLI = ("contradiction", "entailment", "neutral")


def test_of_more_than_two_labels_the_one_that_counts_has_to_be_named() -> None:
    """txtai#1189: ranked by whichever label had won."""
    with pytest.raises(UnmaskError, match="which of its labels") as caught:
        relevance(LOGITS, NLI)
    assert "contradiction, entailment, neutral" in str(caught.value)
    with pytest.raises(UnmaskError, match="'relevant' is none of its labels"):
        relevance(LOGITS, NLI, "relevant")
    share = np.exp(LOGITS)[:, 1] / np.exp(LOGITS).sum(1)
    found = relevance(LOGITS, NLI, "entailment")
    assert found == pytest.approx(np.log(share / (1 - share)))
    assert np.argsort(found).tolist() == np.argsort(share).tolist()


def test_of_two_labels_the_second_counts_unless_another_is_named() -> None:
    """sentence-transformers#732."""
    two = LOGITS[:, :2]
    assert relevance(two, ("irrelevant", "relevant")) == pytest.approx(two[:, 1] - two[:, 0])
    assert relevance(two, ("yes", "no"), "yes") == pytest.approx(two[:, 0] - two[:, 1])


def test_one_output_is_the_score_itself() -> None:
    assert relevance(LOGITS[:, :1], ()).tolist() == [2.0, 3.0, 0.0]
