"""Few records per label, and which settings a search tries."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from toy import texts, toy_model, write

from unmask import settings
from unmask.config import AdamW, Classification, Contrast, FineTuning, Machine, Regression, Tagging
from unmask.errors import UnmaskError
from unmask.labelled.records import Place, Read, TextExample
from unmask.labelled.texts import read_texts
from unmask.tasks.few import draw, few, labels_of
from unmask.tasks.run import finetune
from unmask.tasks.search import best, fits, primary, trial, unpromising
from unmask.train.journal import read_run

LABELS = st.sampled_from("abcd")


def made_of(*labels: str | tuple[str, ...]) -> list[TextExample]:
    return [TextExample(f"t{n}", None, label, Place("f", n + 1, n + 1)) for n, label in enumerate(labels)]


# --- few records per label -------------------------------------------------------------------------------------------
@given(st.lists(LABELS, min_size=1, max_size=40), st.integers(1, 6), st.integers(0, 9))
def test_each_label_has_just_so_many_records_or_all_it_has(labels: list[str], count: int, seed: int) -> None:
    examples = made_of(*labels)
    kept = draw(examples, count, seed)
    assert kept == sorted(set(kept)) == draw(examples, count, seed)
    found = Counter(labels[at] for at in kept)
    assert found == {label: min(count, total) for label, total in Counter(labels).items()}


@given(st.lists(st.sets(LABELS).map(lambda s: tuple(sorted(s))), min_size=1, max_size=40), st.integers(1, 6))
def test_records_of_several_labels_count_for_each_and_those_of_none_are_a_class(
    labels: list[tuple[str, ...]], count: int
) -> None:
    examples = made_of(*labels)
    kept = draw(examples, count, 0)
    found = Counter(label for at in kept for label in labels_of(examples[at]))
    for label, total in Counter(label for one in examples for label in labels_of(one)).items():
        assert min(count, total) <= found[label]
    assert len(kept) <= count * len(found)


def test_records_that_come_along_with_a_rare_label_count_for_the_frequent_one() -> None:
    examples = made_of(*[("b",)] * 10, ("a", "b"), ("a", "b"), ())
    assert draw(examples, 2, 0) == [10, 11, 12]
    assert len(draw(examples, 3, 0)) == 4, "and one more of b alone"


def test_another_seed_draws_others_and_zero_draws_nothing() -> None:
    read = Read(made_of(*"ab" * 50), ("understood",))
    assert few(read, 0, 1) is read
    draws = [tuple(example.text for example in few(read, 4, seed).examples) for seed in range(5)]
    assert len(set(draws)) == 5


def test_what_is_kept_and_what_is_rare_is_said() -> None:
    read = few(Read(made_of("a", "a", "a", "b"), ("understood",), ("doubt",)), 2, 0)
    assert read.understood == ("understood", "3 of 4 records kept, 2 per label")
    assert read.warnings == ("doubt", "labels with fewer than 2 records: b (1)")


def test_pairs_are_drawn_like_texts(tmp_path: Path) -> None:
    rows = [{"premise": f"p{n}", "hypothesis": f"h{n}", "label": "ab"[n % 2]} for n in range(20)]
    read = few(read_texts(str(write(tmp_path / "pairs.jsonl", rows)), columns={}, kind="label"), 3, 0)
    assert len(read.examples) == 6
    assert all(example.pair == example.text.replace("p", "h") for example in read.examples)


@pytest.mark.parametrize("task", [Regression(), Tagging(), Contrast()])
def test_tasks_without_labels_have_nothing_to_draw_by(task: Regression | Tagging | Contrast) -> None:
    with pytest.raises(ValueError, match=f"{task.kind} has none to draw by"):
        FineTuning(task=task, per_label=4)
    with pytest.raises(UnmaskError, match="per_label"):
        settings.parse(FineTuning, {"task": {"kind": task.kind}, "per_label": 4})
    with pytest.raises(ValueError, match="must not be below 0"):
        FineTuning(per_label=-1)


def test_a_run_learns_from_the_drawn_records_and_says_so(small_corpus: Path, tmp_path: Path) -> None:
    model = toy_model(small_corpus, tmp_path / "model")
    train = write(tmp_path / "train.jsonl", texts(60, 0))
    run = FineTuning(
        model=str(model), train=str(train), per_label=5, epochs=1.0, examples=4, max_length=32,
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    said: list[str] = []
    finetune(run, tmp_path / "run", view=lambda record: said.append(str(record.get("message", ""))))
    assert "train: 10 of 60 records kept, 5 per label" in said
    found = read_run(tmp_path / "run")
    assert found["data"]["train"] == 10 and found["run"]["per_label"] == 5
    assert settings.parse(FineTuning, found["run"]) == run


# --- search ----------------------------------------------------------------------------------------------------------
RUN = FineTuning(model="m", train="t", dev="d", optimizer=AdamW(learning_rate=1e-3), task=Classification())


def test_the_first_trial_is_the_run_as_it_is_and_each_other_a_draw_of_its_own() -> None:
    trials = [trial(RUN, number) for number in range(200)]
    assert trials[0] == RUN and trials[7] == trial(RUN, 7) and len(set(trials)) > 190
    rates = np.log([one.optimizer.learning_rate / 1e-3 for one in trials[1:]]) / math.log(5)
    assert rates.min() > -1.01 and rates.max() < 1.01 and abs(rates.mean()) < 0.15
    assert abs(np.abs(rates).mean() - 0.5) < 0.1  # even on a logarithmic axis
    assert {one.epochs for one in trials} == {3.0, 4.5, 6.0} and {one.examples for one in trials} == {16, 32}
    kept = {replace(one, epochs=3.0, examples=32, optimizer=RUN.optimizer) for one in trials}
    assert kept == {RUN}  # nothing else moves: same data, same seed


def test_the_settings_of_a_trial_can_be_written_and_read() -> None:
    one = trial(replace(RUN, examples=1), 3)
    assert one.examples == 1 and settings.parse(FineTuning, settings.plain(one)) == one


def test_the_best_trial_has_the_highest_score_and_one_without_is_last() -> None:
    assert best([0.2, math.nan, 0.9, 0.9]) == 2 and best([math.nan, -2.0]) == 1 and best([math.nan]) == 0
    assert primary([{}, {"pearson": 1.0}, {"spearman": 0.1, "pearson": 1.0}]) == "spearman" and primary([{}]) == ""


def test_a_trial_begins_only_if_it_ends_in_time() -> None:
    assert fits([], 1, 1) and fits([(30, 1)], 1, 1) and not fits([(31, 1)], 1, 1) and fits([(1e9, 1)], 9, 0)
    assert not fits([(30, 1)], 2, 1), "twice the epochs take twice as long"
    assert fits([(20, 2), (5, 1)], 3, 1) and not fits([(20, 2), (5, 1)], 4, 1), "no faster than the slowest"


OTHERS = [[0.9, 0.5, 0.6, 0.7], [0.0, 0.6, 0.5, 0.8], [0.1, 0.7]]


def test_a_trial_behind_the_median_of_three_others_is_given_up() -> None:
    assert unpromising([0.0, 0.59], OTHERS, 3) and not unpromising([0.0, 0.6], OTHERS, 3)
    assert not unpromising([0.0], OTHERS, 3), "nothing was learned yet"
    assert not unpromising([0.0, 0.1, 0.1], OTHERS, 3), "only two others came so far"
    assert not unpromising([0.0, 0.1, 0.1, 0.1], [*OTHERS, OTHERS[0]], 3), "this is its end anyway"
    third = [*OTHERS, [0.0, 0.4, 0.65, 0.1]]
    assert unpromising([0.0, 0.55, 0.5], third, 3), "the others' bests are 0.6, 0.6, 0.65"
    assert not unpromising([0.0, 0.6, 0.1], third, 3), "its own best counts"


@hypothesis_settings(max_examples=30)
@given(st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=3, max_size=7))
def test_the_best_trial_so_far_is_never_given_up(rows: list[list[float]]) -> None:
    top = [0.0, *(max(row[at] for row in rows) for at in (1, 2, 3))]
    assert not any(unpromising(top[: at + 1], rows, 3) for at in range(4))
