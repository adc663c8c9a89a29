"""Odd records of every task, from file to folder to answers: they get an answer, or an error that names the file and the
record; no number that is not finite is ever saved."""

from __future__ import annotations

import dataclasses
import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import toy_model, write
from typer.testing import CliRunner

from unmask.cli.main import app
from unmask.config import (
    AdamW,
    Answering,
    Classification,
    Contrast,
    FineTuning,
    Keeping,
    Machine,
    Ranking,
    Regression,
    Tagging,
    Task,
)
from unmask.errors import UnmaskError
from unmask.inference.loaded import load
from unmask.tasks.run import finetune
from unmask.tasks.saved import TaskModel
from unmask.tasks.tag import from_text

ODD = {
    "empty": "",
    "white space": " \t\u3000\u00a0 ",
    "zero width": "\u200b\u200d\u2060\ufeff",
    "emoji": "\U0001f44d\U0001f3fd\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "special tokens": "[CLS] [SEP] [MASK] [PAD] [UNK]",
    "control characters": "\x00\x01\x1f\x7f",
    "no space at all": "x" * 1_000,
    "long": "the cat of the house " * 60,
    "one letter with many marks": "e" + "\u0301" * 400,
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd",
    "no characters of ours": "\U000e0041\ue000\uffff",
}
LABELS = ("very good \U0001f44d\U0001f3fd", "ни то ни сё", 'a, b: "c" / {d}')
ENTITIES = ("person or\u00a0group", "地名", "\U0001f44d")


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(small_corpus, tmp_path_factory.mktemp("toy") / "model")


def classified(text: str, at: int) -> dict[str, Any]:
    return {"text": text, "label": LABELS[at % 3]}


def several(text: str, at: int) -> dict[str, Any]:
    return {"text": text, "labels": [LABELS[n] for n in range(3) if at >> n & 1]}


def numbered(text: str, at: int) -> dict[str, Any]:
    return {"text": text, "score": at / 4}


def tagged(text: str, at: int) -> dict[str, Any]:
    return {"tokens": [text, "of", text], "tags": [f"B-{ENTITIES[at % 3]}", "O", f"B-{ENTITIES[at % 2]}"]}


def questioned(text: str, at: int) -> dict[str, Any]:
    answer = [] if at % 2 else [{"text": "the cat", "start": len(text) + 1}]
    return {"id": f"{at}", "question": text, "context": f"{text} the cat", "answers": answer}


def ranked(text: str, at: int) -> dict[str, Any]:
    return {"query": text, "positive": f"{text} {at}", "negative": ["the", "of"]}


def matched(text: str, at: int) -> dict[str, Any]:
    return {"query": text, "positive": f"{text} {at}"}


def paired(text: str, at: int) -> dict[str, Any]:
    return {"text_a": text, "text_b": list(ODD.values())[-1 - at % len(ODD)], "label": LABELS[at % 3]}


def alike(text: str, at: int) -> dict[str, Any]:
    return {"sentence1": text, "sentence2": list(ODD.values())[-1 - at % len(ODD)], "score": at / 4}


def scored(text: str, at: int) -> dict[str, Any]:
    return {**matched(text, at), "negative": [f"of {at}"], "scores": [0.75, 0.25]}


TASKS: dict[str, tuple[Task, Any]] = {
    "classify": (Classification(class_weights="balanced"), classified),
    "pairs": (Classification(), paired),
    "labels": (Classification(multi_label=True), several),
    "regress": (Regression(), numbered),
    "alike": (Regression(), alike),
    "tag": (Tagging(), tagged),
    "crf": (Tagging(decoder="crf"), tagged),
    "bilstm": (Tagging(decoder="bilstm_crf"), tagged),
    "answer": (Answering(stride=8), questioned),
    "rank": (Ranking(), ranked),
    "listwise": (Ranking(loss="listwise"), ranked),
    "contrast": (Contrast(), matched),
    "distil": (Contrast(pooling="weighted", dimensions=(8,)), scored),
}


def run_of(model: Path, task: Task, folder: Path, train: list[dict[str, Any]], dev: list[dict[str, Any]]) -> FineTuning:
    files = write(folder / "train.jsonl", train), write(folder / "dev.jsonl", dev)
    return FineTuning(
        model=str(model), train=str(files[0]), dev=str(files[1]) if dev else "", task=task, examples=4, epochs=1,
        max_length=32, optimizer=AdamW(learning_rate=1e-3), keeping=Keeping(evaluations=1, keep_last=1),
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip


def tune(run: FineTuning, folder: Path) -> dict[str, float]:
    found = finetune(run, folder / "run", view=lambda record: None)
    assert found.outcome.finished
    require_finite_files(folder / "run")
    return dict(found.metrics)


def require_finite_files(folder: Path) -> None:
    """JSON knows no NaN and no infinity, but Python's writer does."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} was saved")

    for path in [*folder.rglob("*.json"), *folder.rglob("*.jsonl")]:
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines() if path.suffix == ".jsonl" else [text]:
            json.loads(line, parse_constant=refuse)


def numbers_in(value: Any) -> list[float]:
    """Every number of an answer."""
    if dataclasses.is_dataclass(value):
        return [n for field in dataclasses.fields(value) for n in numbers_in(getattr(value, field.name))]
    if isinstance(value, dict):
        return [n for one in value.values() for n in numbers_in(one)]
    if isinstance(value, list | tuple):
        return [n for one in value for n in numbers_in(one)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.parametrize("name", TASKS)
def test_odd_texts_are_learned_from_and_answered(name: str, model: Path, tmp_path: Path) -> None:
    task, record = TASKS[name]
    rows = [record(text, at) for at, text in enumerate(ODD.values())]
    tune(run_of(model, task, tmp_path, rows, rows), tmp_path)
    loaded = TaskModel.load(tmp_path / "run" / "model")
    examples = loaded.job.read(str(tmp_path / "dev.jsonl")).examples
    if isinstance(task, Contrast):
        (block,) = load(tmp_path / "run" / "model").stream(ODD.values())
        np.testing.assert_allclose(np.linalg.norm(block.vectors_ND, axis=1), np.ones(len(ODD)), atol=1e-5)
        return
    together = loaded.answer(loaded.features(examples)).predictions
    for _, example, said in zip(ODD, examples, together, strict=True):
        assert np.isfinite(numbers_in(said)).all()
        (alone,) = loaded.answer(loaded.features([example])).predictions
        np.testing.assert_allclose(numbers_in(alone), numbers_in(said), atol=1e-4)


@pytest.mark.parametrize("name", TASKS)
def test_a_dev_file_of_one_record_gives_no_figure_that_is_not_a_number(name: str, model: Path, tmp_path: Path) -> None:
    task, record = TASKS[name]
    rows = [record(f"text {at}", at) for at in range(8)]
    tune(run_of(model, task, tmp_path, rows, rows[:1]), tmp_path)
    assert (tmp_path / "run" / "model" / "config.json").exists()


@pytest.mark.parametrize("name", TASKS)
def test_one_record_is_learned_from_or_refused_with_its_file(name: str, model: Path, tmp_path: Path) -> None:
    task, record = TASKS[name]
    run = run_of(model, task, tmp_path, [record("the only text", 1)], [])
    if name in ("classify", "pairs", "contrast"):
        with pytest.raises(UnmaskError, match="nothing to (learn|tell apart)") as caught:
            tune(run, tmp_path)
        assert "train.jsonl" in str(caught.value)
        return
    tune(run, tmp_path)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("content", ["", "\n \n\n", "\ufeff", "{}\n", "[]\n", "null\n", '{"text": 3}\n', '{"text"\n'])
def test_a_file_without_a_record_is_refused_by_name(name: str, content: str, model: Path, tmp_path: Path) -> None:
    run = run_of(model, TASKS[name][0], tmp_path, [], [])
    (tmp_path / "train.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(UnmaskError) as caught:
        tune(run, tmp_path)
    assert "train.jsonl" in str(caught.value)


NUMBERS = ["NaN", "Infinity", "-Infinity", "1e400", "1e300", "-1e39", "1" + "0" * 400, '"nan"', '"inf"', '"1e999"', '"１"',
           "true", "null", '""', '"1_000"', "[1]", "{}"]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_can_t_be_learned_is_refused_with_its_record(number: str, model: Path, tmp_path: Path) -> None:
    run = run_of(model, Regression(), tmp_path, [numbered("text", at) for at in range(3)], [])
    with (tmp_path / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write(f'{{"text": "a", "score": {number}}}\n')
    if number == '"１"':
        tune(run, tmp_path)  # a digit of another script is a number all the same
        return
    with pytest.raises(UnmaskError) as caught:
        tune(run, tmp_path)
    assert "train.jsonl, line 4, record 4" in str(caught.value)
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("value", [0.0, -7.5, -1e15, 1e-30])
def test_equal_numbers_are_learned_and_no_correlation_is_invented(value: float, model: Path, tmp_path: Path) -> None:
    rows = [{"text": f"text {at}", "score": value} for at in range(6)]
    metrics = tune(run_of(model, Regression(), tmp_path, rows, rows), tmp_path)
    assert math.isnan(metrics["spearman"]) and math.isfinite(metrics["mean_squared_error"])
    assert "spearman" not in json.loads((tmp_path / "run" / "eval.json").read_text())["dev"]


@pytest.mark.parametrize("name", ["classify", "pairs", "labels", "tag", "crf", "bilstm"])
def test_odd_labels_come_back_as_they_were_given(name: str, model: Path, tmp_path: Path) -> None:
    task, record = TASKS[name]
    rows = [record(f"text {at}", at) for at in range(9)]
    tune(run_of(model, task, tmp_path, rows, rows), tmp_path)
    folder = tmp_path / "run" / "model"
    loaded, names = TaskModel.load(folder), json.loads((folder / "config.json").read_text("utf-8"))["id2label"]
    tags = {f"{letter}-{entity}" for letter in "BI" for entity in ENTITIES} | {"O"}
    assert set(names.values()) == set(loaded.job.task.labels) == (tags if isinstance(task, Tagging) else set(LABELS))
    examples = loaded.job.read(str(tmp_path / "dev.jsonl"), asked=True).examples
    for said in loaded.answer(loaded.features(examples)).predictions:
        if isinstance(task, Tagging):
            assert set(said.tags) <= tags and {span.label for span in said.spans} <= set(ENTITIES)
        else:
            assert {said.label} <= set(LABELS) or set(said.label) <= set(LABELS)


# What a file teaches in which everything is one and the same: None, something; else the words of the refusal.
SAME: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "one label": ("classify", {"label": "only"}, "nothing to learn"),
    "one label of pairs": ("pairs", {"label": "only"}, "nothing to learn"),
    "the same labels": ("labels", {"labels": ["only"]}, None),
    "no label ever": ("labels", {"labels": []}, "nothing to learn"),
    "one tag": ("crf", {"tags": ["B-x"] * 3}, "nothing to learn"),
    "never an answer": ("answer", {"answers": []}, None),
    "texts that fit alone": ("rank", {"negative": []}, "`unmask mine`"),
    "texts that fit alone, in lists": ("listwise", {"negative": []}, "`unmask mine`"),
    "one pair": ("contrast", {"query": "the", "positive": "of"}, "nothing to tell apart"),
    "one text": ("contrast", {"query": "the", "positive": "the"}, "nothing to tell apart"),
}


@pytest.mark.parametrize("case", SAME)
def test_records_that_all_say_the_same_are_learned_or_refused_with_their_file(
    case: str, model: Path, tmp_path: Path
) -> None:
    name, same, refused = SAME[case]
    task, record = TASKS[name]
    rows = [{**record(f"text {at}", at), **same} for at in range(6)]
    with pytest.raises(UnmaskError, match=refused) if refused else nullcontext() as caught:
        tune(run_of(model, task, tmp_path, rows, rows), tmp_path)
    assert not refused or "train.jsonl" in str(caught.value)


@pytest.mark.parametrize("scheme", ["bio", "plain"])
def test_words_that_all_have_one_tag_are_refused_by_name(scheme: Any, model: Path, tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b"], "tags": ["O", "O"]}] * 3
    with pytest.raises(UnmaskError, match="every record has the label 'O'") as caught:
        tune(run_of(model, Tagging(scheme=scheme), tmp_path, rows, []), tmp_path)
    assert "train.jsonl" in str(caught.value)


@pytest.mark.parametrize("decoder", ["linear", "crf", "bilstm_crf"])
def test_odd_running_text_and_records_without_a_word_are_tagged(decoder: Any, model: Path, tmp_path: Path) -> None:
    rows = [tagged(f"text {at}", at) for at in range(6)]
    nothing = {"tokens": [], "tags": []}
    tune(run_of(model, Tagging(decoder=decoder), tmp_path, [*rows, nothing], [nothing, *rows]), tmp_path)
    loaded = TaskModel.load(tmp_path / "run" / "model")
    examples = from_text(list(ODD.values()))
    said = loaded.answer(loaded.features(examples)).predictions
    assert [len(one.words) for one in said] == [len(example.words) for example in examples]
    for one, text in zip(said, ODD.values(), strict=True):
        assert all(text[entity.begin : entity.end] == entity.text for entity in one.spans)


@pytest.mark.parametrize(
    "scores", [[1e300, 0.1, 0.1], [2.0, 0.1, 0.1], [-1e-9, 0, 0], [float("nan"), 0, 0], [0.1], "0.5"]
)
@pytest.mark.parametrize("task", [Ranking(), Ranking(loss="listwise")], ids=["pointwise", "listwise"])
def test_a_teacher_s_scores_that_are_no_probabilities_are_refused_with_their_record(
    task: Ranking, scores: Any, model: Path, tmp_path: Path
) -> None:
    rows = [ranked("text", 0), {**ranked("text", 1), "scores": scores}]
    with pytest.raises(UnmaskError) as caught:
        tune(run_of(model, task, tmp_path, rows, []), tmp_path)
    assert "train.jsonl, line 2, record 2" in str(caught.value)


@pytest.mark.parametrize("scores", [[1e300, 0.1, 0.1], [float("inf"), 0, 0], [1e15, -1e15, 0]])
def test_a_bi_encoder_s_scores_are_learned_or_refused_with_their_record(
    scores: list[float], model: Path, tmp_path: Path
) -> None:
    rows = [{**ranked("text", at), "scores": [0.5, 0.1, 0.2]} for at in range(3)]
    rows.append({**ranked("other", 1), "scores": scores})
    run = run_of(model, Contrast(), tmp_path, rows, [])
    if max(scores) <= 1e15:
        tune(run, tmp_path)
        return
    with pytest.raises(UnmaskError) as caught:
        tune(run, tmp_path)
    assert "train.jsonl, line 4, record 4" in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "the cat", "start": 10**20}, {"text": "the cat", "start": -1}, {"text": "", "start": 0},
        {"text": "dog", "start": 4}, {"text": "the cat", "start": 1.5}, {"text": None, "start": 0}, "the cat",
    ],
)  # fmt: skip
def test_an_answer_is_where_it_is_said_to_be_moved_there_or_refused_with_its_record(
    answer: Any, model: Path, tmp_path: Path
) -> None:
    rows = [questioned("a", 0), {**questioned("b", 2), "answers": [answer]}]
    try:
        tune(run_of(model, Answering(stride=8), tmp_path, rows, rows), tmp_path)
    except UnmaskError as error:
        assert "train.jsonl, line 2, record 2" in str(error)
    else:
        assert answer["text"] == "the cat"


def test_records_on_standard_input_are_answered_like_those_of_a_file(model: Path, tmp_path: Path) -> None:
    rows = [classified(text, at) for at, text in enumerate(ODD.values())]
    tune(run_of(model, Classification(), tmp_path, rows, []), tmp_path)
    folder, file = str(tmp_path / "run" / "model"), tmp_path / "train.jsonl"
    told = CliRunner().invoke(app, ["predict", folder, "-"], input=file.read_bytes())
    read = CliRunner().invoke(app, ["predict", folder, str(file)])
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) == len(ODD) and told.stdout == read.stdout
