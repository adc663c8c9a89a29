from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.measure.squad import answer_scores, best_no_answer_threshold, match

WORDS = ["the", "The", "a", "an", "cat", "Cat.", "dog", "dog's", "...", "1,000", "theory", "—", "A!", "İ"]
answer_text = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)


def normalised(text: str) -> str:
    """The definition, one character and one word at a time."""
    kept = ""
    for character in text.lower():
        if character not in string.punctuation:
            kept += character
    words = [""]
    for character in kept:  # cut into runs of word characters and runs of others, as \\b does
        same = words[-1] == "" or (words[-1][-1].isalnum() or words[-1][-1] == "_") == (
            character.isalnum() or character == "_"
        )
        words = [*words[:-1], words[-1] + character] if same else [*words, character]
    return " ".join("".join(" " if word in ("a", "an", "the") else word for word in words).split())


def slow_f1(prediction: str, answer: str, version: int) -> float:
    guessed, true = normalised(prediction).split(), normalised(answer).split()
    if version == 2 and (not guessed or not true):
        return float(guessed == true)
    left, shared = list(true), 0
    for word in guessed:
        if word in left:
            left.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(guessed), shared / len(true)
    return 2 * precision * recall / (precision + recall)


def slow_match(prediction: str, answers: Sequence[str], version: int) -> tuple[float, float]:
    if version == 2:
        answers = [answer for answer in answers if normalised(answer) != ""] or [""]
    exact = max(float(normalised(prediction) == normalised(answer)) for answer in answers)
    return exact, max(slow_f1(prediction, answer, version) for answer in answers)


@settings(max_examples=150, deadline=None)
@given(answer_text, st.lists(answer_text, min_size=1, max_size=3))
def test_scores_of_an_answer_agree_with_the_definition(prediction: str, answers: list[str]) -> None:
    assert match(prediction, answers) == pytest.approx(slow_match(prediction, answers, 1))
    assert match(prediction, answers, impossible=True) == pytest.approx(slow_match(prediction, answers, 2))


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("The Denver Broncos!", ["denver  broncos"], 1, 1),  # case, article, punctuation, white space
        ("theatre", ["atre"], 0, 0),  # an article is a word, not a beginning
        ("dog's", ["dogs"], 1, 1),  # punctuation leaves no gap
        ("well-known man", ["well known man"], 0, 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3)),
        ("cat cat cat", ["cat"], 0, 0.5),  # a word counts as often as the answer has it
        ("big red dog", ["dog", "the big dog"], 0, 0.8),  # the best answer counts, on its own
        ("Paris", ["in Paris", "Paris"], 1, 1),
        ("", ["Paris"], 0, 0),
        ("Zürich", ["zürich"], 1, 1),
        ("“Paris”", ["Paris"], 0, 0),  # only ASCII punctuation is dropped
    ],
)
def test_answers_score_as_worked_by_hand(prediction: str, answers: list[str], exact: float, f1: float) -> None:
    assert match(prediction, answers) == pytest.approx((exact, f1))
    assert match(prediction, answers, impossible=True) == pytest.approx((exact, f1))


def test_questions_without_an_answer_want_an_empty_one() -> None:
    assert match("", [], impossible=True) == (1, 1)
    assert match("the", [], impossible=True) == (1, 1)  # nothing is left of it
    assert match("Paris", [], impossible=True) == (0, 0)
    with pytest.raises(UnmaskError, match="without an answer"):
        match("Paris", [])


def test_the_two_versions_differ_where_nothing_is_left_of_an_answer() -> None:
    assert match("A", ["a"]) == (1, 0)  # version 1.1: exact, but no word is shared
    assert match("A", ["a"], impossible=True) == (1, 1)
    assert match("", ["the", "cat"], impossible=True) == (0, 0)  # version 2.0 drops such an answer beside others
    assert match("", ["the", "cat"]) == (1, 0)


def test_a_set_scores_those_with_and_those_without_answers_on_their_own() -> None:
    scores = answer_scores([["Paris"], ["big dog"], [], []], ["Paris", "dog", "", "x"], impossible=True)
    assert list(scores)[:3] == ["exact", "f1", "total"]
    f1 = 2 * 1 * 0.5 / 1.5
    assert scores == pytest.approx(
        {
            "exact": 0.5,
            "f1": (1 + f1 + 1) / 4,
            "total": 4,
            "HasAns_exact": 0.5,
            "HasAns_f1": (1 + f1) / 2,
            "HasAns_total": 2,
            "NoAns_exact": 0.5,
            "NoAns_f1": 0.5,
            "NoAns_total": 2,
        }
    )
    assert answer_scores([["Paris"]], ["Paris"]) == {"exact": 1, "f1": 1, "total": 1}
    assert answer_scores([], []) == {"exact": 0, "f1": 0, "total": 0}
    assert "NoAns_exact" not in answer_scores([["Paris"]], ["Paris"], impossible=True)


def test_a_threshold_turns_unsure_answers_into_none() -> None:
    answers, predictions, unsure = [["Paris"], ["Rome"], []], ["Paris", "Rome", "x"], [0.1, 0.8, 0.9]
    scores = answer_scores(answers, predictions, impossible=True, no_answer_scores=unsure, threshold=0.8)
    assert scores["exact"] == 1.0  # 0.8 is not above 0.8
    scores = answer_scores(answers, predictions, impossible=True, no_answer_scores=unsure, threshold=0.5)
    assert scores["exact"] == pytest.approx(2 / 3) and scores["NoAns_f1"] == 1 and scores["HasAns_f1"] == 0.5
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (1.0, 0.8)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (1.0, 0.8)


def slow_search(
    scores: list[float], unsure: list[float], has_answer: list[bool], predictions: list[str]
) -> tuple[float, float]:
    """The search told step by step: everything refused, then one question after the other let in."""
    best = now = float(has_answer.count(False))
    threshold = 0.0
    for i in sorted(range(len(unsure)), key=lambda i: unsure[i]):
        if has_answer[i]:
            now += scores[i]
        elif predictions[i] != "":
            now -= 1
        if now > best:
            best, threshold = now, unsure[i]
    return best / len(scores), threshold


question = st.tuples(
    st.sampled_from([0.0, 0.5, 0.8, 1.0]), st.integers(0, 10), st.booleans(), st.sampled_from(["", "x"])
)


@settings(max_examples=150, deadline=None)
@given(st.lists(question, min_size=1, max_size=20))
def test_the_search_for_a_threshold_agrees_with_the_definition(rows: list[tuple[float, int, bool, str]]) -> None:
    scores, tenths, has_answer, predictions = map(list, zip(*rows, strict=True))
    unsure = [tenth / 10 for tenth in tenths]
    found = best_no_answer_threshold(np.array(scores), unsure, np.array(has_answer), predictions)
    assert found == pytest.approx(slow_search(scores, unsure, has_answer, predictions))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["x", "y", ""]), st.booleans()), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_threshold_found_reaches_the_score_it_promises(rows: list[tuple[str, bool]], rng) -> None:  # type: ignore[no-untyped-def]
    answers = [["x"] if has_answer else [] for _, has_answer in rows]
    predictions = [prediction for prediction, _ in rows]
    unsure = [float(place - 6) for place in rng.sample(range(12), len(rows))]  # differences of logits: below 0 too
    ask = {"impossible": True, "no_answer_scores": unsure}
    best = answer_scores(answers, predictions, **ask)
    again = answer_scores(answers, predictions, threshold=best["best_f1_thresh"], **ask)
    assert again["f1"] == pytest.approx(best["best_f1"])


def test_refusing_all_is_reached_where_the_lowest_score_is_0() -> None:
    ask = {"impossible": True, "no_answer_scores": [0.0, 1.0]}
    best = answer_scores([[], []], ["x", "x"], **ask)  # type: ignore[arg-type]
    assert answer_scores([[], []], ["x", "x"], threshold=best["best_f1_thresh"], **ask)["f1"] == best["best_f1"] == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prediction", "answer", "exact", "f1"),
    [
        ("北京大学", "北京大学", 1, 1),
        ("《北京大学》。", "北京大学", 1, 1),  # marks are dropped
        (
            "北京的大学",
            "北京大学",
            0,
            2 * (2 / 5) * (2 / 4) / (2 / 5 + 2 / 4),
        ),  # the longest piece in common, 北京 or 大学
        ("大北", "北大", 0, 0.5),  # not a bag of characters
        ("1998年", "1998", 0, 2 * 0.5 * 1 / 1.5),  # a number is one word
        ("BERT 模型", "bert模型", 0, 1),  # inner white space matters to an exact match only
        ("3.5万", "3.5", 0, 2 * 0.5 * 1 / 1.5),
        ("上海", "北京", 0, 0),
        ("", "北京", 0, 0),
    ],
)
def test_chinese_answers_score_as_worked_by_hand(prediction: str, answer: str, exact: float, f1: float) -> None:
    assert match(prediction, [answer], language="zh") == pytest.approx((exact, f1))


@settings(max_examples=100, deadline=None)
@given(st.text("北京大学", max_size=8), st.text("北京大学", min_size=1, max_size=8))
def test_chinese_f1_is_made_of_the_longest_piece_that_both_share(prediction: str, answer: str) -> None:
    pieces = [answer[i:j] for i in range(len(answer)) for j in range(i + 1, len(answer) + 1)]
    longest = max((len(piece) for piece in pieces if piece in prediction), default=0)
    f1 = 2 * longest / (len(prediction) + len(answer))
    assert match(prediction, [answer], language="zh") == pytest.approx((float(prediction == answer), f1))


def test_a_true_answer_predicted_is_right_in_every_language() -> None:
    for language in ("en", "zh"):
        for text in ("Zürich", "北京", "👩‍💻 Ada", "3,5 %", "cafe\u0301"):
            assert match(text, [text], language=language) == (1, 1)  # type: ignore[arg-type]
