from __future__ import annotations

import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.measure.ranking import (
    Ranked,
    average_precision,
    hit,
    ndcg,
    precision,
    ranked,
    ranked_arrays,
    ranking_scores,
    recall,
    reciprocal_rank,
)

CUTS = (1, 3, 10)
OURS = {"ndcg_cut": ndcg, "recall": recall, "P": precision, "success": hit}
documents = st.sampled_from(["d1", "d10", "d2", "D2", "é", "文", "\uffff", "😀", "", "d 3"])
# Few different scores, two of them equal in float32 only, so that ties are the rule.
run = st.dictionaries(
    st.sampled_from("abcx"), st.dictionaries(documents, st.sampled_from([0.0, 1.0, 1 + 1e-9, 2.0, -1.0]))
)
judgements = st.dictionaries(st.sampled_from("abcy"), st.dictionaries(documents, st.integers(-1, 3)))


def theirs(found: dict, relevant: dict) -> dict[str, dict[str, float]]:
    names = {f"{name}.{','.join(map(str, CUTS))}" for name in OURS} | {"map", "recip_rank"}
    return pytrec_eval.RelevanceEvaluator(relevant, names).evaluate(found)


@settings(max_examples=150, deadline=None)
@given(run, judgements)
def test_every_query_scores_as_in_trec_eval(found: dict, relevant: dict) -> None:
    if not any(relevant.values()):
        return
    ours, expected = ranked(found, relevant), theirs(found, relevant)
    assert ours.queries == tuple(query for query, judged in relevant.items() if judged)
    assert ours.missing == sum(query not in found for query in ours.queries)
    assert ours.unjudged == len(found) - len(expected)
    for place, query in enumerate(ours.queries):
        values = expected.get(query, {})  # what the run lacks scores 0
        for k in CUTS:
            for name, measure in OURS.items():
                assert measure(ours, k)[place] == pytest.approx(values.get(f"{name}_{k}", 0.0)), name
            first = values.get("recip_rank", 0.0)
            assert reciprocal_rank(ours, k)[place] == pytest.approx(first if first >= 1 / k else 0.0)
        assert average_precision(ours)[place] == pytest.approx(values.get("map", 0.0))


def test_the_means_agree_with_trec_eval_on_a_random_run() -> None:
    rng = np.random.default_rng(5)
    names = [f"d{i}" for i in range(60)]
    found = {
        f"q{q}": {n: float(s) for n, s in zip(names, rng.normal(size=60).round(1), strict=True)} for q in range(20)
    }
    relevant = {query: {n: int(rng.integers(0, 4)) for n in rng.choice(names, 8, False)} for query in found}
    relevant["q0"] = {"d1": 0, "d2": 0}
    expected = theirs(found, relevant)
    scores = ranking_scores(ranked(found, relevant), CUTS)
    mean = lambda name: np.mean([values[name] for values in expected.values()])
    for ours, name in (("ndcg@10", "ndcg_cut_10"), ("recall@3", "recall_3"), ("precision@10", "P_10"), ("map", "map")):
        assert scores[ours] == pytest.approx(mean(name))
    assert scores["hit@1"] == pytest.approx(mean("success_1")) == scores["mrr@1"]


def test_scores_have_the_values_worked_by_hand() -> None:
    ours = ranked({"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"b": 2, "c": 1, "z": 1}})
    gain = (2 / math.log2(3) + 1 / math.log2(4)) / (2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4))
    assert ranking_scores(ours, [3]) == pytest.approx(
        {
            "ndcg@3": gain,
            "mrr@3": 1 / 2,
            "recall@3": 2 / 3,
            "precision@3": 2 / 3,
            "hit@3": 1,
            "map": (1 / 2 + 2 / 3) / 3,
        }
    )
    assert reciprocal_rank(ours, 1) == hit(ours, 1) == 0


def test_a_tie_goes_to_the_greater_document_id_in_whatever_order_they_came() -> None:
    for order in ("ab", "ba"):
        ours = ranked({"q": dict.fromkeys(order, 1.0)}, {"q": {"b": 1}})
        assert reciprocal_rank(ours, 10) == 1
    close = ranked({"q": {"a": 1.0 + 1e-9, "b": 1.0}}, {"q": {"a": 1}})
    assert reciprocal_rank(close, 10) == 0.5  # the same number in float32


def test_queries_that_cannot_score_are_counted() -> None:
    relevant = {"found": {"a": 1}, "missing": {"a": 1}, "none": {"a": 0}, "empty": {}}
    ours = ranked({"found": {"a": 1.0}, "none": {"a": 1.0}, "empty": {"a": 1.0}, "stranger": {"a": 1.0}}, relevant)
    assert (ours.missing, ours.without_relevant, ours.unjudged) == (1, 1, 2)
    assert ranking_scores(ours, [1])["hit@1"] == pytest.approx(1 / 3)


def test_an_empty_run_scores_zero_and_no_judgements_are_refused() -> None:
    assert set(ranking_scores(ranked({}, {"q": {"a": 1}})).values()) == {0.0}
    with pytest.raises(UnmaskError, match="no query has relevance judgements"):
        ranked({"q": {"a": 1.0}}, {"q": {}})


def test_a_score_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(UnmaskError, match="query q, document b"):
        ranked({"q": {"a": 1.0, "b": math.nan}}, {"q": {"a": 1}})


def test_scores_beyond_float32_are_ranked_without_a_warning() -> None:
    ours = ranked({"q": {"a": 1e300, "b": -1e300, "c": 0.0}}, {"q": {"a": 1, "b": 1}})
    assert ours.found_QK.tolist() == [[1, 0, 1]]


def test_arrays_score_as_the_same_run_by_name() -> None:
    rng = np.random.default_rng(2)
    scores, relevance = rng.integers(0, 4, (6, 9)) / 4, rng.integers(-1, 3, (6, 9))
    by_name = ranked(
        {str(q): {str(d): float(s) for d, s in enumerate(row)} for q, row in enumerate(scores)},
        {str(q): {str(d): int(r) for d, r in enumerate(row)} for q, row in enumerate(relevance)},
    )
    by_place = ranked_arrays(scores, relevance)
    assert ranking_scores(by_place) == ranking_scores(by_name)
    assert isinstance(by_place, Ranked) and by_place.queries == by_name.queries
