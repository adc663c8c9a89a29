"""What people get wrong with `unmask finetune`, `evaluate` and `predict`: each mistake is named before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Road, unmask
from task_files import FAST, answers, beir_folder, lines

from unmask.cli.finetune import _settings


@pytest.mark.parametrize(
    ("task", "change", "said"),
    [
        ("classify", "task.decoder=crf", "the task classify has no setting decoder (tag has)"),
        ("contrast", "task.loss=listwise", "the task contrast has no setting loss (rank has)"),
        ("regress", "task.labels=[]", "the task regress has no setting labels (classify, tag have)"),
        ("classify", "task=tag", "this would make tag of classify"),
        ("classify", "task.kind=tag", "this would make tag of classify"),
        ("classify", 'task={decoder="crf"}', "this would make tag of classify"),
        ("classify", "task.nothing=1", "unknown setting task.nothing"),
    ],
)
def test_no_setting_makes_another_task_of_the_one_asked_for(tmp_path: Path, task: str, change: str, said: str) -> None:
    answer = unmask("finetune", task, "-m", tmp_path, "-t", "x.jsonl", "--set", change)
    assert answer.code == 2 and said in answer.err


def test_help_names_a_setting_that_a_fine_tuning_has() -> None:
    said = unmask("finetune", "--help").out
    assert "hidden_size" not in said and "optimizer.learning_rate" in said


def test_a_run_stands_for_its_model(tuned: Path, road: Road, tmp_path: Path) -> None:
    data = lines(tmp_path / "new.jsonl", [{"text": "the good one", "label": "is good"}])
    for words in (("predict",), ("evaluate",)):
        said = [unmask(*words, folder, data) for folder in (tuned / "run", tuned / "run" / "model")]
        assert said[0].code == 0 and said[0].out == said[1].out
    answer = unmask("predict", road.run, data)
    assert answer.code == 2 and f"name its model, {road.model}" in answer.err
    given = {"model": str(tuned / "run"), "train": "x.jsonl"}
    assert _settings("classify", given, []).model == str(tuned / "run" / "model")


def test_options_that_would_change_nothing_are_refused(tuned: Path, road: Road, tmp_path: Path) -> None:
    data, beir = lines(tmp_path / "test.jsonl", [{"text": "a", "label": "is good"}]), beir_folder(tmp_path)
    for source, words in (
        (data, ("--split", "dev")),
        (data, ("--rerank", tuned / "run" / "model")),
        (data, ("--worst", 3)),
        (beir, ("--errors", tmp_path / "e.jsonl")),
        (beir, ("--worst", 3)),
        (beir, ("--map", "text=a")),
        (beir, ("--max-length", 9)),
        (beir, ("--repair", "drop")),
    ):
        answer = unmask("evaluate", tuned / "run" / "model", source, *words)
        assert answer.code == 2 and f"where: {words[0]}" in answer.err and "leave it away" in answer.err


def test_a_classifier_is_no_cross_encoder_and_that_is_said_before_any_work(
    tuned: Path, road: Road, tmp_path: Path
) -> None:
    answer = unmask("evaluate", road.model, beir_folder(tmp_path), "--rerank", tuned / "run" / "model")
    assert answer.code == 2 and "this is not a cross-encoder" in answer.err
    assert "embedding" not in answer.err and "indexing" not in answer.err


def test_what_was_cut_of_a_collection_is_a_warning_like_any_other(road: Road, tmp_path: Path) -> None:
    beir = beir_folder(tmp_path, "a long document " * 500)
    answer = unmask("evaluate", road.model, beir)
    assert answer.code == 0, answer.err
    assert any(line.startswith("warning: 12 of 12 texts have more than") for line in answer.err.splitlines())
    assert "TruncationWarning" not in answer.err
    answer = unmask("mine", road.model, beir, "--split", "test", "-o", tmp_path / "m.jsonl")
    assert answer.code == 0 and "warning: 12 of 12 texts" in answer.err and "TruncationWarning" not in answer.err


def test_single_texts_and_pairs_are_not_taken_for_each_other(tuned: Path, road: Road, tmp_path: Path) -> None:
    rows = [{"text_a": f"the {n}", "text_b": f"no {n}", "label": "ab"[n % 2]} for n in range(8)]
    pairs, single = lines(tmp_path / "pairs.jsonl", rows), lines(tmp_path / "one.jsonl", [{"text": "a", "label": "a"}])
    answer = unmask("predict", tuned / "run" / "model", pairs)
    assert answer.code == 2 and "these records are pairs, but the model learned from single texts" in answer.err
    assert unmask("predict", tuned / "run" / "model", pairs, "--map", "text=text_a").code == 0
    answer = unmask("finetune", "classify", "-m", road.model, "-t", pairs, "-d", single, "-o", tmp_path / "r", *FAST)
    assert answer.code == 2 and "one text each, but the model learned from pairs" in answer.err
    words = ("-m", road.model, "-t", pairs, "-o", tmp_path / "run", "--epochs", 1, *FAST)
    assert unmask("finetune", "classify", *words).code == 0
    about = json.loads((tmp_path / "run" / "model" / "unmask.json").read_text(encoding="utf-8"))
    assert about["job"]["texts"] == 2
    answer = unmask("evaluate", tmp_path / "run" / "model", single)
    assert answer.code == 2 and "one text each" in answer.err and "--map pair=COLUMN" in answer.err


def test_records_from_which_nothing_can_be_learned_are_refused(road: Road, tmp_path: Path) -> None:
    pairs = lines(tmp_path / "p.jsonl", [{"anchor": f"what {n}", "positive": f"is {n}"} for n in range(4)])
    one = lines(tmp_path / "one.jsonl", [{"anchor": "what", "positive": "is"}])
    for task, data, more, said in (
        ("rank", pairs, (), "`unmask mine` finds"),
        ("contrast", one, (), "two different pairs at least"),
        ("contrast", pairs, ("--set", "examples=1"), "a batch of one record"),
    ):
        answer = unmask("finetune", task, "-m", road.model, "-t", data, "-o", tmp_path / "run", *more)
        assert answer.code == 2 and said in answer.err
    scored = [{"query": f"q {n}", "pos": [f"is {n}"], "pos_scores": [n / 4]} for n in range(4)]
    answer = unmask(
        "finetune", "rank", "-m", road.model, "-t", lines(tmp_path / "s.jsonl", scored), "-o", tmp_path / "run",
        "--epochs", 1, *FAST,
    )  # fmt: skip
    assert answer.code == 0, answer.err


def test_a_cross_encoder_answers_records_without_labels(road: Road, tmp_path: Path) -> None:
    beir = beir_folder(tmp_path)
    (beir / "qrels" / "test.tsv").write_text("q0\td0\t1\nq0\td1\t0\nq1\td1\t1\nq1\td2\t0\n", encoding="utf-8")
    trained = unmask(
        "finetune", "rank", "-m", road.model, "-t", beir, "-o", tmp_path / "run", "--epochs", 1, *FAST,
        "--set", "task.loss=listwise",
    )  # fmt: skip
    assert trained.code == 0, trained.err
    rows = [{"query": "which", "texts": ["one", "two", ""]}, {"query": "what", "texts": ["three"]}]
    said = unmask("predict", tmp_path / "run" / "model", lines(tmp_path / "asked.jsonl", rows))
    assert said.code == 0, said.err
    first, second = answers(said.out)
    assert (
        sorted(first["texts"]) == ["", "one", "two"]
        and [rows[0]["texts"][at] for at in first["places"]] == first["texts"]
    )
    assert second["texts"] == ["three"] and all(len(f"{abs(score):.17g}".strip("0.")) for score in first["scores"])
    alone = lines(tmp_path / "alone.jsonl", [{"query": "which", "neg": ["one", "two", ""]}])
    assert set(answers(unmask("predict", tmp_path / "run" / "model", alone).out)[0]["texts"]) == {"one", "two", ""}
