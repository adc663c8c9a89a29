"""Where a model is weak: by the length of the records, and label by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config import Answering, Classification, Contrast, Ranking, Regression, Tagging, Task
from unmask.labelled.records import Answer, Place, QuestionExample, RankedExample, TaggedExample, TextExample
from unmask.tasks import classify, tag
from unmask.tasks.answer import Answered
from unmask.tasks.breakdown import by_label, by_length
from unmask.tasks.classify import Classified
from unmask.tasks.job import Evaluation, Features
from unmask.tasks.rank import RankedTexts
from unmask.tasks.tag import Tagged
from unmask.text.sequences import Sequences

PLACE = Place("f", 1, 1)
MOODS = Classification(labels=("bad", "good"))
TOPICS = Classification(labels=("art", "law", "sea"), multi_label=True)
NAMES = Tagging(labels=("O", "B-PER", "I-PER"))


def features(examples: Sequence[Any], lengths: Sequence[int], example_N: Sequence[int] | None = None) -> Features:
    rows = np.arange(len(lengths)) if example_N is None else np.array(example_N)
    starts = np.cumsum([0, *lengths])
    return Features(examples, Sequences(np.zeros(starts[-1], np.int32), starts, rows, rows))


def mood(said: str, truth: str) -> tuple[Classified, TextExample]:
    scores = {"bad": 0.75, "good": 0.25} if said == "bad" else {"bad": 0.25, "good": 0.75}
    return Classified(said, scores), TextExample("x", None, truth, PLACE)


def tagged(said: str, truth: str) -> tuple[Tagged, TaggedExample]:
    words = ("w",) * len(truth.split())
    example = TaggedExample(words, tuple(truth.split()), PLACE)
    return Tagged(words, tuple(said.split()), (0.75,) * len(words), ()), example


def answered(said: str, truth: str) -> tuple[Answered, QuestionExample]:
    example = QuestionExample("1", "who?", "Ada was there", (Answer(truth, 0),) if truth else (), PLACE)
    return Answered("1", said, 0, len(said), 0.5, 0.0, ()), example


def test_records_fall_into_five_buckets_of_equal_size_by_their_length() -> None:
    pairs = [mood("bad", "bad" if n >= 4 else "good") for n in range(10)]
    said, truth = zip(*pairs, strict=True)
    rows = by_length(MOODS, features(truth, range(11, 21)), Evaluation(list(said), {"accuracy": 0.6}))
    assert [row["tokens"] for row in rows] == ["11 to 12", "13 to 14", "15 to 16", "17 to 18", "19 to 20"]
    assert [row["records"] for row in rows] == [2] * 5
    assert [row["score"] for row in rows] == [0, 0, 1, 1, 1]
    assert rows[0]["cost"] == pytest.approx(-np.log(0.25)) and rows[4]["cost"] == 0


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_every_record_is_in_one_bucket_and_no_bucket_is_empty(lengths: list[int]) -> None:
    said, truth = zip(*[mood("bad", "bad")] * len(lengths), strict=True)
    rows = by_length(MOODS, features(truth, lengths), Evaluation(list(said), {"accuracy": 1.0}))
    ranges = [[int(n) for n in row["tokens"].split(" to ")] for row in rows]
    inside = [sum(low <= n <= high for n in lengths) for low, *_, high in ((r[0], r[-1]) for r in ranges)]
    assert inside == [row["records"] for row in rows] and sum(inside) == len(lengths)
    assert 1 <= len(rows) <= 5 and min(inside) > 0


@pytest.mark.parametrize(
    ("task", "pair", "score", "cost"),
    [
        (MOODS, mood("bad", "bad"), 1.0, 0.0),
        (Regression(), (Classified(2.0, {}), TextExample("x", None, 0.5, PLACE)), None, 1.5),
        (
            TOPICS,
            (Classified(("law",), {"art": 0.5, "law": 0.5, "sea": 0.5}), TextExample("x", None, ("law", "sea"), PLACE)),
            2 / 3,
            3 * np.log(2),
        ),
        (TOPICS, (Classified((), {"art": 0.1, "law": 0.1, "sea": 0.1}), TextExample("x", None, (), PLACE)), None, 0.0),
        (NAMES, tagged("O B-PER", "B-PER B-PER"), 2 / 3, -np.log(0.25)),
        (NAMES, tagged("O O", "O O"), None, 0.0),
        (Tagging(labels=("a", "b"), scheme="plain"), tagged("a b", "b b"), 0.5, -np.log(0.25)),
        (Answering(), answered("Ada", "Ada"), 1.0, 0.0),
        (Answering(impossible=True), answered("", "Ada"), 0.0, 1.0),
        (
            Ranking(),
            (RankedTexts("q", ("no", "yes"), (2.0, 1.0), (1, 0)), RankedExample("q", ("yes",), ("no",), PLACE)),
            1 / np.log2(3),
            1.0,
        ),
    ],
)
def test_one_record_is_enough_for_every_task(task: Task, pair: Any, score: float | None, cost: float) -> None:
    said, example = pair
    (row,) = by_length(task, features([example], [7]), Evaluation([said], {"any": 0.5}))
    assert (row["tokens"], row["records"]) == ("7", 1)
    assert row["score"] == (None if score is None else pytest.approx(score)) and row["cost"] == pytest.approx(cost)


def test_a_record_is_as_long_as_its_windows_together_and_a_query_as_its_longest_pair() -> None:
    one, example = answered("Ada", "Ada")
    (row,) = by_length(Answering(), features([example], [8, 5], [0, 0]), Evaluation([one], {"f1": 1.0}))
    assert row["tokens"] == "13"
    ranking = RankedTexts("q", ("yes", "no"), (2.0, 1.0), (0, 1))
    query = RankedExample("q", ("yes",), ("no",), PLACE)
    (row,) = by_length(Ranking(), features([query], [8, 5], [0, 0]), Evaluation([ranking], {"ndcg@10": 1.0}))
    assert row["tokens"] == "8"


def test_nothing_is_said_without_truths_or_of_vectors() -> None:
    one, example = mood("bad", "bad")
    assert by_length(MOODS, features([example], [7]), Evaluation([one])) == []
    assert by_length(Contrast(), features([example], [7]), Evaluation([], {"ndcg@10": 1.0})) == []


def test_a_query_without_an_answer_among_its_texts_costs_nothing() -> None:
    ranking, query = RankedTexts("q", ("no",), (1.0,), (0,)), RankedExample("q", (), ("no",), PLACE)
    other = RankedTexts("q", ("no", "yes"), (2.0, 1.0), (1, 0)), RankedExample("q", ("yes",), ("no",), PLACE)
    found = features([query, other[1]], [5, 5, 6], [0, 1, 1])
    rows = by_length(Ranking(), found, Evaluation([ranking, other[0]], {"ndcg@10": 0.5}))
    assert [row["cost"] for row in rows] == [0.0, 1.0]


def test_labels_come_with_the_most_frequent_first() -> None:
    said, truth = zip(*[mood("bad", "good"), mood("good", "good"), mood("bad", "bad")], strict=True)
    rows = by_label(MOODS, Evaluation(list(said), {}, classify.detail(said, truth, MOODS)))
    assert [(r["label"], r["support"], r["precision"], r["recall"]) for r in rows] == [
        ("good", 2, 1.0, 0.5),
        ("bad", 1, 0.5, 1.0),
    ]


def test_a_label_that_neither_occurs_nor_is_said_is_left_out() -> None:
    scores = dict.fromkeys(TOPICS.labels, 0.5)
    said, truth = [Classified(("art",), scores)], [TextExample("x", None, ("law",), PLACE)]
    rows = by_label(TOPICS, Evaluation(said, {}, classify.detail(said, truth, TOPICS)))
    assert [row["label"] for row in rows] == ["law", "art"]


def test_types_of_spans_are_told_apart_and_other_tasks_have_no_labels() -> None:
    one, example = tagged("B-PER I-PER O", "B-PER I-PER B-PER")
    (row,) = by_label(NAMES, Evaluation([one], {}, {"labels": tag.label_rows([one], [example], NAMES)}))
    assert row == {"label": "PER", "precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2}
    assert by_label(Answering(), Evaluation([answered("Ada", "Ada")[0]], {"f1": 1.0})) == []
