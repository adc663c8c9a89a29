"""`unmask finetune`, `evaluate`, `predict`: from labelled files to answers, for each task."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import Road, unmask
from task_files import FAST, answers, beir_folder, lines

from unmask.hub.onnx.export import OnnxReport


def test_a_tuned_model_is_measured_and_shows_its_worst_answers(tuned: Path) -> None:
    rows = [{"text": "the good one", "label": "不好"}, {"text": "the bad one", "label": "不好"}]
    test = lines(tuned / "test.jsonl", rows)
    answer = unmask("evaluate", tuned / "run" / "model", test, "--errors", tuned / "worst.jsonl")
    assert answer.code == 0, answer.err
    assert "accuracy" in answer.out and "0.5" in answer.out
    assert "| tokens | records | accuracy | mean cost |" in answer.out and "| 不好    |       2 |" in answer.out
    (worst,) = answers((tuned / "worst.jsonl").read_text(encoding="utf-8"))
    assert worst["record"]["place"] == {"file": str(test), "line": 1, "record": 1}
    assert all(len(f"{score:.12g}".lstrip("0.")) <= 6 for score in worst["said"]["scores"].values())
    assert worst["record"]["text"] == "the good one" and worst["said"]["label"] == "is good" and worst["cost"] > 0


def test_predictions_come_in_the_file_s_order_and_need_no_labels(tuned: Path) -> None:
    texts = ["the good one", "", "the bad one", "a long one " * 99, "\u200b"]
    data = lines(tuned / "new.jsonl", [{"text": text} for text in texts])
    answer = unmask("predict", tuned / "run" / "model", data)
    assert answer.code == 0, answer.err
    said = answers(answer.out)
    assert len(said) == 5 and said[0]["label"] == "is good" and said[2]["label"] == "不好"
    assert all(abs(sum(row["scores"].values()) - 1) < 1e-6 and len(row["scores"]) == 2 for row in said)
    assert "cut" in answer.err
    assert unmask("predict", tuned / "run" / "model", data, "--out", tuned / "said.jsonl").code == 0
    assert answers((tuned / "said.jsonl").read_text(encoding="utf-8")) == said


def files_of(folder: Path) -> dict[str, bytes]:
    """All but the manifest, which has the date."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_of_a_run_its_model_is_exported(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ((), ("--checkpoint", "best")):
        answer = unmask("export", tuned / "run", "-o", tmp_path / "out", *words)
        assert answer.code == 0 and "model" in answer.out, answer.err
    assert files_of(tmp_path / "out") == files_of(tuned / "run" / "model")
    data = lines(tmp_path / "new.jsonl", [{"text": "the good one"}])
    said = [unmask("predict", folder, data).out for folder in (tmp_path / "out", tuned / "run" / "model")]
    assert said[0] == said[1] and answers(said[0])[0]["label"] == "is good"
    (tmp_path / "out" / "model.safetensors").write_bytes(b"")
    assert unmask("export", tuned / "run", "-o", tmp_path / "out").code == 0
    exported = []

    def noted(model: Path, *_: Any, **__: Any) -> OnnxReport:
        exported.append(model)
        return OnnxReport(("model.onnx",), 0.0)

    monkeypatch.setattr("unmask.hub.onnx.export.export_onnx", noted)
    assert unmask("export", tuned / "run", "-o", tmp_path / "graph", "--format", "onnx").code == 0
    assert exported == [tuned / "run" / "model"]
    assert unmask("report", tuned / "run").code == 0


@pytest.mark.parametrize("kind", ["huggingface", "onnx"])
def test_what_can_t_be_exported_of_a_run_is_said(tuned: Path, tmp_path: Path, kind: str) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
    words = ("-o", tmp_path / "out", "--format", kind)
    answer = unmask("export", tuned / "run", *words, "--checkpoint", "last")
    assert answer.code == 2 and "the model of its best checkpoint, and of no other" in answer.err
    copy = tmp_path / "runs" / "seed0"
    shutil.copytree(tuned / "run", copy)
    answer = unmask("export", copy.parent, *words)
    assert answer.code == 2 and "holds 1 run: seed0" in answer.err and "the best" not in answer.err
    (copy.parent / "search.json").write_text('{"best": "seed0"}')
    assert "seed0, the best" in unmask("export", copy.parent, *words).err
    (copy / "model" / "model.safetensors").write_bytes(b"")
    answer = unmask("export", copy, *words)
    assert answer.code and "model.safetensors" in answer.err and "fault in unmask" not in answer.err
    shutil.rmtree(copy / "model")
    answer = unmask("export", copy, *words)
    assert answer.code == 2 and "has no model yet: it finished" in answer.err and "unmask finetune" in answer.err
    assert not (tmp_path / "out").exists()


def test_a_run_without_records_to_choose_by_has_the_model_of_its_last_checkpoint(tuned: Path, tmp_path: Path) -> None:
    shutil.copytree(tuned / "run", tmp_path / "run")
    plan = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    plan["run"]["dev"] = ""
    (tmp_path / "run" / "run.json").write_text(json.dumps(plan), encoding="utf-8")
    assert unmask("export", tmp_path / "run", "-o", tmp_path / "out", "--checkpoint", "last").code == 0
    answer = unmask("export", tmp_path / "run", "-o", tmp_path / "out", "--checkpoint", "12")
    assert answer.code == 2 and "its last checkpoint" in answer.err


def test_several_seeds_give_a_mean_and_a_deviation(road: Road, tmp_path: Path) -> None:
    data = lines(tmp_path / "data.jsonl", [{"text": f"text {n}", "score": n / 7} for n in range(16)])
    answer = unmask(
        "finetune", "regress", "-m", road.model, "-t", data, "-d", data, "-o", tmp_path / "run", "--epochs", 1,
        "--seeds", 2, *FAST,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "deviation" in answer.out and "mean_squared_error" in answer.out
    assert (tmp_path / "run" / "seed0" / "model").is_dir() and (tmp_path / "run" / "seed1" / "model").is_dir()


@pytest.mark.parametrize("decoder", ["linear", "crf", "bilstm_crf"])
def test_words_are_tagged_with_character_offsets(road: Road, tmp_path: Path, decoder: str) -> None:
    sentences = [f"the\tO\nNew\tB-LOC\nYork\tI-LOC\nof {n}\tO\n" for n in range(24)]
    (tmp_path / "train.conll").write_text("\n".join(sentences), encoding="utf-8")
    answer = unmask(
        "finetune", "tag", "-m", road.model, "-t", tmp_path / "train.conll", "-d", tmp_path / "train.conll",
        "-o", tmp_path / "run", "--epochs", 12, "--set", f"task.decoder={decoder}", *FAST,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    said = unmask(
        "predict", tmp_path / "run" / "model", lines(tmp_path / "new.jsonl", [{"tokens": ["the", "New", "York", "of"]}])
    )
    assert said.code == 0, said.err
    (row,) = answers(said.out)
    assert row["tags"] == ["O", "B-LOC", "I-LOC", "O"]
    assert [(s["label"], s["text"], s["begin"], s["end"]) for s in row["spans"]] == [("LOC", "New York", 4, 12)]
    assert (
        unmask("evaluate", tmp_path / "run" / "model", tmp_path / "train.conll", "--errors", tmp_path / "e.jsonl").code
        == 0
    )


def test_questions_are_answered_with_pieces_of_their_context(road: Road, tmp_path: Path) -> None:
    rows = [
        {"id": str(n), "question": "who?", "context": f"it was {name} there", "answers": [{"text": name, "start": 7}]}
        for n, name in enumerate(["Ada", "Bob"] * 12)
    ]
    data = lines(tmp_path / "data.jsonl", rows)
    answer = unmask(
        "finetune", "answer", "-m", road.model, "-t", data, "-d", data, "-o", tmp_path / "run", "--epochs", 8, *FAST,
        "--set", "task.stride=8",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    said = unmask("predict", tmp_path / "run" / "model", data)
    assert said.code == 0, said.err
    assert set(answers(said.out)[0]["n_best"][0]) == {"text", "begin", "end", "score"}
    wrong = [{**row, "answers": [{"text": "nobody", "start": 0}]} for row in rows[:1]]
    answer = unmask("finetune", "answer", "-m", road.model, "-t", lines(tmp_path / "wrong.jsonl", [*wrong, *rows[1:]]))
    assert answer.code == 2 and "--set task.drop_wrong=true" in answer.err
    from unmask.config import Answering
    from unmask.tasks.jobs import job_of

    assert len(job_of(Answering(drop_wrong=True)).read(str(tmp_path / "wrong.jsonl")).examples) == 23
    for row, one in zip(rows, answers(said.out), strict=True):
        assert one["text"] == row["context"][one["begin"] : one["end"]] and one["id"] == row["id"]


@pytest.mark.parametrize("task", ["contrast", "rank"])
def test_search_models_are_trained_from_pairs(road: Road, tmp_path: Path, task: str) -> None:
    rows = [
        {"anchor": f"what is {n}", "positive": f"{n} is a number", "negative": f"no {n + 1} here"} for n in range(16)
    ]
    data = lines(tmp_path / "data.jsonl", rows)
    answer = unmask(
        "finetune", task, "-m", road.model, "-t", data, "-d", data, "-o", tmp_path / "run", "--epochs", 1, *FAST
    )
    assert answer.code == 0, answer.err
    assert "ndcg" in answer.out.lower()
    assert unmask("evaluate", tmp_path / "run" / "model", data).code == 0
    assert (tmp_path / "run" / "model" / "modules.json").exists() is (task == "contrast")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("finetune", "classify", "-t", "x.jsonl"), "no --model is given"),
        (("finetune", "sing", "-m", "m", "-t", "x.jsonl"), "unknown task 'sing'"),
        (("finetune", "classify", "-m", "m", "-t", "x.jsonl", "--map", "text"), "names no column"),
        (("finetune", "classify", "-m", "bert-base-uncased", "-t", "nofile.jsonl"), "nothing is downloaded"),
        (("finetune", "classify", "-m", ".", "-t", "nofile.jsonl"), "nofile.jsonl"),
        (("finetune", "classify", "-m", ".", "-t", "n.jsonl", "--set", "machine.device=cuda"), "no CUDA device"),
        (("finetune", "classify", "-m", ".", "-t", "n.jsonl", "--set", "machine.device=gpu"), "did you mean cuda?"),
        (("finetune", "classify", "-m", ".", "-t", "n.jsonl", "--set", "batch_size=8"), "did you mean examples?"),
        (("finetune", "classify", "-m", ".", "-t", "n.jsonl", "--epochs", -1), "where: --epochs"),
        (("finetune", "regress", "-m", ".", "-t", "n.jsonl", "--per-label", 3), "where: --per-label"),
        (("finetune", "classify", "-m", ".", "-t", "-", "--seeds", 2), "standard input can be read once"),
        (("mine", "nowhere", "n.jsonl", "-o", "m.jsonl"), "no such folder"),
        (("predict", "nowhere", "x.jsonl"), "no such folder"),
    ],
)
def test_what_is_missing_is_named(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    answer = unmask(*words)
    assert answer.code == 2 and said in answer.err


def test_a_model_without_a_task_is_told_to_be_tuned_first(road: Road, tmp_path: Path) -> None:
    answer = unmask("predict", road.model, lines(tmp_path / "x.jsonl", [{"text": "a"}]))
    assert answer.code == 2 and "unmask finetune" in answer.err


def test_a_folder_with_a_run_is_not_written_over(tuned: Path, road: Road) -> None:
    answer = unmask("finetune", "classify", "-m", road.model, "-t", tuned / "data.jsonl", "-o", tuned / "run", *FAST)
    assert answer.code == 2 and "--resume" in answer.err


def test_both_stages_of_a_search_are_measured_on_a_beir_folder(road: Road, tmp_path: Path) -> None:
    beir = beir_folder(tmp_path)
    pairs = lines(tmp_path / "p.jsonl", [{"anchor": f"{n}", "positive": f"is {n}", "negative": "no"} for n in range(8)])
    ranker = unmask("finetune", "rank", "-m", road.model, "-t", pairs, "-o", tmp_path / "run", "--epochs", 1, *FAST)
    assert ranker.code == 0, ranker.err
    answer = unmask("evaluate", road.model, beir, "--rerank", tmp_path / "run" / "model")
    assert answer.code == 0, answer.err
    assert all(name in answer.out for name in ("bm25", "bi-encoder", "bm25+rerank", "ndcg@10", "4 queries"))
    named = unmask("evaluate", road.model, beir / "test")
    assert named.code == 0 and "| bi-encoder |" in named.out and "4 queries" in named.out


def test_a_model_of_vectors_is_asked_by_embed(road: Road, tmp_path: Path) -> None:
    pairs = lines(tmp_path / "p.jsonl", [{"anchor": f"{n}", "positive": f"is {n}"} for n in range(8)])
    made = unmask("finetune", "contrast", "-m", road.model, "-t", pairs, "-o", tmp_path / "run", "--epochs", 1, *FAST)
    assert made.code == 0, made.err
    answer = unmask("predict", tmp_path / "run" / "model", pairs)
    assert answer.code == 2 and "unmask embed" in answer.err
    assert (
        unmask(
            "embed", tmp_path / "run" / "model", tmp_path / "p.jsonl", "-o", tmp_path / "v.npy", "--field", "anchor"
        ).code
        == 0
    )


def test_a_resumed_run_keeps_its_columns_and_takes_no_other_settings(tuned: Path, road: Road) -> None:
    answer = unmask("finetune", "classify", "--resume", "--out", tuned / "run")
    assert answer.code == 2 and "keeps the settings" in answer.err
    answer = unmask("finetune", "--resume", "--out", tuned / "run")
    assert answer.code == 0, answer.err
    assert "column 'review' holds the text" in answer.err
