"""Fine-tuning from file to model folder: it learns, resumes bit for bit, keeps the best, and says what it understood."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_models import SMALL
from toy import texts, toy_model, tune, write

from unmask.config import AdamW, Classification, Contrast, FineTuning, Keeping, Machine, Regression
from unmask.errors import UnmaskError
from unmask.hub.sentence_layout import SentenceLayout, write_sentence_layout
from unmask.tasks.run import finetune
from unmask.tasks.saved import TaskModel
from unmask.train.journal import read_run, update_run


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(small_corpus, tmp_path_factory.mktemp("toy") / "model")


def settings(model: Path, folder: Path, **changes: Any) -> FineTuning:
    """Two hundred texts to learn from, sixty to choose by."""
    train, dev = write(folder / "train.jsonl", texts(200, 0)), write(folder / "dev.jsonl", texts(60, 1))
    run = FineTuning(
        model=str(model), train=str(train), dev=str(dev), examples=16, epochs=4, max_length=48, dropout=0.1,
        optimizer=AdamW(learning_rate=3e-3), keeping=Keeping(evaluations=4, keep_last=9),
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    return replace(run, **changes)


def test_a_toy_task_is_learned_and_the_folder_answers_as_the_run_did(model: Path, tmp_path: Path) -> None:
    metrics, seen = tune(settings(model, tmp_path), tmp_path / "run")
    assert next(iter(metrics)) == "accuracy" and metrics["accuracy"] > 0.95
    said = [record["message"] for record in seen if record["kind"] == "message"]
    assert any(line.startswith("train:") and "label" in line for line in said)
    loaded = TaskModel.load(tmp_path / "run" / "model")
    assert loaded.job.task == Classification(labels=("bad news", "good news"))
    read = loaded.job.read(str(tmp_path / "dev.jsonl"))
    assert loaded.answer(loaded.features(read.examples)).metrics == pytest.approx(metrics)
    assert json.loads((tmp_path / "run" / "eval.json").read_text())["dev"] == pytest.approx(metrics)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "`good news`" in card and "pipeline_tag: text-classification" in card and "200 records" in card
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Confusion" in page and "good news" in page and "By length" in page


def test_a_number_is_learned_too(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, task=Regression(), epochs=6.0)
    for name in ("train", "dev"):
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        write(tmp_path / f"{name}.jsonl", [{"text": r["text"], "score": r["score"]} for r in rows])
    metrics, _ = tune(run, tmp_path / "run")
    assert next(iter(metrics)) == "spearman" and metrics["spearman"] > 0.8


def test_a_run_that_goes_on_from_a_checkpoint_ends_with_the_same_bits(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, epochs=2.0)
    tune(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "model")
    for step in sorted((tmp_path / "again" / "steps").iterdir())[1:]:
        shutil.rmtree(step)
    tune(run, tmp_path / "again")
    whole, again = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "again"))
    assert whole.keys() == again.keys() and all(torch.equal(whole[k], again[k]) for k in whole)


def test_the_best_checkpoint_is_kept_not_the_last(model: Path, tmp_path: Path) -> None:
    run = settings(
        model, tmp_path, optimizer=AdamW(learning_rate=3e-2), epochs=3.0, keeping=Keeping(evaluations=6, keep_last=9)
    )
    metrics, seen = tune(run, tmp_path / "run")
    scores = [record["score"] for record in seen if record["kind"] == "evaluation"]
    assert metrics["accuracy"] == pytest.approx(max(scores[1:]))


def test_patience_ends_a_run_that_gets_no_better(model: Path, tmp_path: Path) -> None:
    run = settings(
        model, tmp_path, optimizer=AdamW(learning_rate=1e-9), patience=2, keeping=Keeping(evaluations=8, keep_last=2)
    )
    _, seen = tune(run, tmp_path / "run")
    assert sum(record["kind"] == "evaluation" for record in seen) == 1 + 3  # the start, the first, two no better


def test_frozen_layers_keep_every_bit(model: Path, tmp_path: Path) -> None:
    tune(settings(model, tmp_path, epochs=1.0, frozen_layers=2, layer_decay=0.9), tmp_path / "run")
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "run" / "model" / "model.safetensors")
    moved = {
        name.removeprefix("bert.")
        for name in after
        if not torch.equal(after[name], before.get(name.removeprefix("bert."), torch.zeros(1)))
    }
    assert not any(name.startswith(("embeddings", "encoder.layer.0", "encoder.layer.1")) for name in moved)
    assert any(name.startswith("encoder.layer.2") for name in moved)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"text": "x", "label": "a"}], "nothing to learn"),
        ([{"text": "x", "label": "a"}, {"text": "y", "label": "third"}], "third"),
    ],
    ids=["one class", "label unknown to training"],
)
def test_labels_that_can_t_be_learned_are_refused_by_name(
    model: Path, tmp_path: Path, rows: list[dict[str, Any]], words: str
) -> None:
    run = settings(model, tmp_path)
    which = "dev" if len(rows) > 1 else "train"
    path = write(tmp_path / f"{which}.jsonl", rows)
    with pytest.raises(UnmaskError, match=words) as caught:
        tune(run, tmp_path / "run")
    assert path.name in str(caught.value)
    assert not (tmp_path / "run" / "model").exists()


def test_what_a_run_is_stands_in_its_folder(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, epochs=1.0)
    tune(run, tmp_path / "run")
    found = read_run(tmp_path / "run")
    assert found["run"]["task"]["kind"] == "classify" and found["data"] == {"train": 200, "dev": 60}
    assert found["result"]["status"] == "finished" and found["dev"]["records"] == 60


@pytest.mark.parametrize("which", ["train", "dev"])
def test_a_resumed_run_refuses_other_records(model: Path, tmp_path: Path, which: str) -> None:
    run = settings(model, tmp_path, epochs=0.2)
    tune(run, tmp_path / "run")
    write(tmp_path / f"{which}.jsonl", texts(200, 7))
    with pytest.raises(UnmaskError, match=f"the {which} records.* not those this run began with") as caught:
        tune(run, tmp_path / "run")
    assert f"{which}.jsonl" in str(caught.value)


def test_a_resumed_run_refuses_other_settings_than_those_of_the_machine(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, epochs=0.2, lora_rank=2)
    tune(run, tmp_path / "run")
    for changes, words in (
        ({"lora_alpha": 6.0}, "lora_alpha is 6.0, but the run in this folder began with 16.0"),
        ({"lora_rank": 0}, "lora_rank is 0, but the run in this folder began with 2"),
        ({"optimizer": AdamW(learning_rate=1e-4)}, "optimizer is .*0.0001.* began with .*0.003"),
    ):
        with pytest.raises(UnmaskError, match=words):
            tune(replace(run, **changes), tmp_path / "run")  # type: ignore[arg-type]
    tune(replace(run, keeping=Keeping(evaluations=1, keep_last=1)), tmp_path / "run")


def test_a_run_in_which_nothing_learns_is_refused(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, dev="", task=Contrast(), frozen_layers=SMALL.num_hidden_layers)
    write(tmp_path / "train.jsonl", [{"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "d"}])
    with pytest.raises(UnmaskError, match="frozen_layers leaves nothing that learns"):
        tune(run, tmp_path / "run")


def test_settings_that_have_no_effect_are_named(model: Path, tmp_path: Path) -> None:
    _, seen = tune(settings(model, tmp_path, dev="", epochs=0.1, max_length=500), tmp_path / "run")
    said = [record["message"] for record in seen if record["kind"] == "message"]
    assert "Texts are read up to 64 tokens, the model's limit, not 500." in said
    with pytest.raises(ValueError, match="patience needs a dev file"):
        settings(model, tmp_path, dev="", patience=2)


def test_what_was_understood_is_told_before_the_next_file_is_read(model: Path, tmp_path: Path) -> None:
    run, seen = settings(model, tmp_path, dev=str(tmp_path / "nowhere.jsonl")), list[dict[str, Any]]()
    with pytest.raises(UnmaskError, match="no such file"):
        finetune(run, tmp_path / "run", view=seen.append)
    assert "train: column 'text' holds the text" in [record["message"] for record in seen]


def test_the_card_names_the_model_it_began_with_and_the_run_its_best_step(model: Path, tmp_path: Path) -> None:
    tune(settings(model, tmp_path, epochs=0.1), tmp_path / "run")
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    best = read_run(tmp_path / "run")["result"]["best"]
    assert f"from `{model.parent.name}/model`" in card and f"This is step {best:,} of" in card


def test_a_run_of_before_records_had_names_can_be_gone_on_with(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, epochs=0.2)
    tune(run, tmp_path / "run")
    update_run(tmp_path / "run", records="0123")
    tune(run, tmp_path / "run")


def test_without_a_dev_set_the_last_checkpoint_is_taken_and_no_figure_is_invented(model: Path, tmp_path: Path) -> None:
    metrics, seen = tune(settings(model, tmp_path, dev="", epochs=1.0), tmp_path / "run")
    assert metrics == {} and not any(record["kind"] == "evaluation" for record in seen)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "held-out" not in page.partition("<script")[0].lower() or "Masked words" not in page
    assert TaskModel.load(tmp_path / "run" / "model").job.task == Classification(labels=("bad news", "good news"))


def test_of_equally_good_checkpoints_the_one_with_the_lower_loss_is_kept(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, task=Regression(), epochs=2.0)
    for name in ("train", "dev"):  # a constant truth has no correlation: every checkpoint's score is undefined
        write(tmp_path / f"{name}.jsonl", [{"text": row["text"], "score": 1.0} for row in texts(64, 3)])
    _, seen = tune(run, tmp_path / "run")
    losses = [record["loss"] for record in seen if record["kind"] == "evaluation"]
    best = min(range(1, len(losses)), key=lambda at: losses[at])
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    steps = [record["step"] for record in seen if record["kind"] == "evaluation"]
    assert f"This is step {steps[best]:,} of" in card.replace("\n", " "), (steps, losses, card)


def test_labels_given_by_a_person_must_cover_the_training_data(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, task=Classification(labels=("good news", "no news")))
    with pytest.raises(UnmaskError, match="bad news"):
        tune(run, tmp_path / "run")


def test_a_folder_whose_two_lists_of_labels_contradict_is_refused(model: Path, tmp_path: Path) -> None:
    tune(settings(model, tmp_path, epochs=1.0), tmp_path / "run")
    folder = tmp_path / "run" / "model"
    about = json.loads((folder / "unmask.json").read_text(encoding="utf-8"))
    about["job"]["task"]["labels"].reverse()
    (folder / "unmask.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "manifest.json").unlink()
    with pytest.raises(UnmaskError, match="names the labels"):
        TaskModel.load(folder)


def test_a_folder_that_pools_otherwise_is_not_begun_anew_without_a_word(small_corpus: Path, tmp_path: Path) -> None:
    folder = toy_model(small_corpus, tmp_path / "model")
    write_sentence_layout(SentenceLayout(folder, ("cls",)), SMALL.hidden_size)
    run = settings(folder, tmp_path, task=Contrast())
    write(tmp_path / "train.jsonl", [{"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "d"}])
    with pytest.raises(UnmaskError, match="pools by cls, but task.pooling is mean"):
        tune(replace(run, dev=""), tmp_path / "run")
