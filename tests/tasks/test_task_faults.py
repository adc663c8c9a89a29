"""Faults of the tools people fine-tune with today, tried on whole models: files in, a folder, answers out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as hf
from questions import KINDS, asked, shown_outputs, tokenizer
from safetensors.torch import load_file
from toy import texts, toy_model, tune, write

from unmask.config import (
    AdamW,
    Answering,
    Classification,
    Contrast,
    FineTuning,
    Keeping,
    Machine,
    Regression,
    Tagging,
)
from unmask.errors import UnmaskError
from unmask.inference.loaded import TruncationWarning, load
from unmask.labelled.records import Place, TaggedExample
from unmask.labelled.tagged import read_tagged
from unmask.tasks import answer, tag
from unmask.tasks.classify import Classified
from unmask.tasks.jobs import job_of
from unmask.tasks.run import finetune
from unmask.tasks.saved import TaskModel
from unmask.text.aligned import AlignedEncoder

NAMES = ("good news", "bad news")  # not as they sort


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(small_corpus, tmp_path_factory.mktemp("toy") / "model")


def settings(model: Path, train: Path, **changes: Any) -> FineTuning:
    """Chosen by the file it learns from."""
    run = FineTuning(
        model=str(model), train=str(train), dev=str(train), examples=16, epochs=2, max_length=48, dropout=0.0,
        optimizer=AdamW(learning_rate=3e-3), keeping=Keeping(evaluations=1, keep_last=1),
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    return replace(run, **changes)


@pytest.fixture(scope="module")
def classifier(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuned, with its labels in an order of their own."""
    here = tmp_path_factory.mktemp("classifier")
    run = settings(model, write(here / "train.jsonl", texts(200, 0)), task=Classification(labels=NAMES), epochs=4)
    metrics, _ = tune(run, here / "run")
    assert metrics["accuracy"] > 0.9
    return here / "run" / "model"


def told(folder: Path | TaskModel, path: Path, *, truth: bool = True) -> tuple[list[Any], dict[str, float]]:
    """Answers and metrics on a file."""
    loaded = folder if isinstance(folder, TaskModel) else TaskModel.load(folder)
    read = loaded.job.read(str(path), asked=not truth)
    if truth:
        loaded.job.require(read.examples, str(path))
    found = loaded.answer(loaded.features(read.examples))
    return found.predictions, found.metrics


# --- labels ------------------------------------------------------------------------------------------------------------
def test_B144_a_model_s_own_labels_are_used_whichever_way_round_they_are(classifier: Path, tmp_path: Path) -> None:
    """transformers#9812: the condition on the label map was inverted. Tuned further for the same labels, a model begins
    where it was, whether or not they are named; for labels in another order with a new head, and the order is told."""
    path = write(tmp_path / "data.jsonl", texts(60, 5))
    assert TaskModel.load(classifier).job.task.labels == NAMES
    accuracy = told(classifier, path)[1]["accuracy"]
    frozen = settings(classifier, path, epochs=0.3, optimizer=AdamW(learning_rate=1e-12))
    metrics, seen = tune(frozen, tmp_path / "same")
    first = next(record for record in seen if record["kind"] == "evaluation")
    assert accuracy > 0.9 and first["metrics"]["accuracy"] == metrics["accuracy"] == pytest.approx(accuracy)
    assert TaskModel.load(tmp_path / "same" / "model").job.task.labels == NAMES
    _, seen = tune(replace(frozen, task=Classification(labels=NAMES[::-1])), tmp_path / "sorted")
    assert any(record.get("message") == "2 labels: bad news, good news" for record in seen)
    folders = (classifier, tmp_path / "same" / "model", tmp_path / "sorted" / "model")
    old, same, new = (load_file(folder / "model.safetensors")["classifier.weight"] for folder in folders)
    assert np.allclose(old, same, atol=1e-6) and not np.allclose(old, new, atol=1e-6)


def test_B145_names_come_back_whatever_library_reads_the_folder(classifier: Path, tmp_path: Path) -> None:
    """transformers#13334: LABEL_0. Also where unmask.json is gone, as in a folder of others."""
    theirs = hf.AutoConfig.from_pretrained(classifier)
    assert theirs.id2label == dict(enumerate(NAMES)) and theirs.num_labels == 2
    path = write(tmp_path / "data.jsonl", texts(12, 6))
    said = told(classifier, path)[0]
    assert {one.label for one in said} == set(NAMES) and tuple(said[0].scores) == NAMES
    shutil.copytree(classifier, tmp_path / "bare")
    for name in ("unmask.json", "manifest.json"):
        (tmp_path / "bare" / name).unlink()
    assert [one.label for one in told(tmp_path / "bare", path)[0]] == [one.label for one in said]


def test_labels_stay_frozen_when_a_file_has_others_fewer_or_another_order(classifier: Path, tmp_path: Path) -> None:
    """BERT-Classification-Tutorial PR#6, FinBERT#17: the map was made anew of the file that was evaluated."""
    rows = texts(40, 7)
    said = told(classifier, write(tmp_path / "all.jsonl", rows))[0]
    for chosen in (list(reversed(range(40))), [at for at in range(40) if rows[at]["label"] == NAMES[0]]):
        part, metrics = told(classifier, write(tmp_path / "part.jsonl", [rows[at] for at in chosen]))
        assert [one.label for one in part] == [said[at].label for at in chosen]
        right = [rows[at]["label"] == said[at].label for at in chosen]
        assert metrics["accuracy"] == pytest.approx(np.mean(right))
    with pytest.raises(UnmaskError) as caught:
        told(classifier, write(tmp_path / "odd.jsonl", [*rows, {"text": "x", "label": "no news"}]))
    assert all(name in str(caught.value) for name in ("'no news'", *map(repr, NAMES), "line 41"))


def test_several_labels_go_from_lists_to_thresholds_and_back(model: Path, tmp_path: Path) -> None:
    """setfit#250, transformers#10232: the type of the targets; and no label at all is an answer."""
    rows = [
        {"text": row["text"], "labels": [name for name in ("good", "bad", "very") if name in row["text"].split()]}
        for row in texts(64, 8)
    ]
    rows += [{"text": "the of and", "labels": []}] * 4
    path = write(tmp_path / "train.jsonl", rows)
    metrics, _ = tune(settings(model, path, task=Classification(multi_label=True)), tmp_path / "run")
    folder = tmp_path / "run" / "model"
    about = json.loads((folder / "unmask.json").read_text(encoding="utf-8"))
    assert about["job"]["task"]["labels"] == ["bad", "good", "very"] and len(about["job"]["thresholds"]) == 3
    assert hf.AutoConfig.from_pretrained(folder).problem_type == "multi_label_classification"
    loaded = TaskModel.load(folder)
    targets = loaded.features(loaded.job.read(str(path)).examples).sequences.labels["label"].value_M
    named = [[name in row["labels"] for name in ("bad", "good", "very")] for row in rows]
    assert targets.dtype == np.float32 and targets.tolist() == named
    said, again = told(loaded, path)
    assert again == pytest.approx(metrics)
    for one in said:
        limits = zip(one.scores.items(), loaded.job.thresholds, strict=True)  # type: ignore[attr-defined]
        assert one.label == tuple(name for (name, score), limit in limits if score >= limit)


# --- numbers -----------------------------------------------------------------------------------------------------------
def test_B143_B147_B148_a_number_from_a_csv_is_learned_kept_and_told_as_a_number(model: Path, tmp_path: Path) -> None:
    """transformers#9393, simpletransformers#564, flair#2067: a label map was looked for, in training and when asked; and
    what the number is was forgotten."""
    path = tmp_path / "train.csv"
    path.write_text("text,score\n" + "".join(f"{row['text']},{row['score'] / 3:.2f}\n" for row in texts(32, 9)))
    metrics, seen = tune(settings(model, path, task=Regression()), tmp_path / "run")
    assert "mean_squared_error" in metrics
    assert "train: column 'score' holds the number" in [record.get("message") for record in seen]
    folder = tmp_path / "run" / "model"
    assert json.loads((folder / "unmask.json").read_text())["job"] == {
        "task": {"kind": "regress", "target": "score"},
        "texts": 1,
    }
    theirs = hf.AutoConfig.from_pretrained(folder)
    assert (theirs.num_labels, theirs.problem_type, theirs.id2label) == (1, "regression", {0: "score"})
    assert "`score`" in (folder / "README.md").read_text(encoding="utf-8")
    new = write(tmp_path / "new.jsonl", [{"text": "the very good"}, {"text": ""}])
    said, nothing = told(folder, new, truth=False)
    assert len(said) == 2 and all(isinstance(one.label, float) and np.isfinite(one.label) for one in said)
    assert [one.scores for one in said] == [{"score": one.label} for one in said] and nothing == {}
    assert told(folder, path)[1] == pytest.approx(metrics)


def test_B148_a_number_keeps_its_name_whoever_gave_it(model: Path, tmp_path: Path) -> None:
    """A column of any name, a person's own name for it, or a folder of others, where LABEL_0 is no name; and to transformers."""
    path = tmp_path / "train.csv"
    path.write_text("text,звёзды ⭐\n" + "".join(f"{row['text']},{row['score']}\n" for row in texts(16, 9)), "utf-8")
    job = job_of(Regression(), {"label": "звёзды ⭐"})
    assert job.begin(job.read(str(path))).task == Regression(target="звёзды ⭐")
    named = job_of(Regression(target="stars"), {"label": "звёзды ⭐"})
    folder, bare = tmp_path / "run" / "model", tmp_path / "bare"
    finetune(
        settings(model, path, task=named.task, epochs=1), tmp_path / "run",
        columns={"label": "звёзды ⭐"}, view=lambda record: None,
    )  # fmt: skip
    (said,) = told(folder, write(tmp_path / "new.jsonl", [{"text": "the very good"}]), truth=False)[0]
    pipeline = hf.pipeline("text-classification", str(folder), device="cpu")
    assert pipeline("the very good") == [{"label": "stars", "score": pytest.approx(said.label, abs=1e-5)}]
    assert said.scores == {"stars": said.label}
    shutil.copytree(folder, bare)
    for name in ("unmask.json", "manifest.json"):
        (bare / name).unlink()
    assert [TaskModel.load(one).job.task for one in (folder, bare)] == [Regression(target="stars")] * 2
    about = json.loads((bare / "config.json").read_text(encoding="utf-8"))
    unnamed = {**about, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    (bare / "config.json").write_text(json.dumps(unnamed), encoding="utf-8")
    assert TaskModel.load(bare).job.task == Regression()
    (folder / "manifest.json").unlink()
    shutil.copyfile(bare / "config.json", folder / "config.json")
    with pytest.raises(UnmaskError, match=r"names the labels \['LABEL_0'\], but unmask.json \['stars'\]"):
        TaskModel.load(folder)


# --- lengths and odd texts ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stated", [10**30, 512, None])
def test_the_model_s_own_length_is_the_limit_whatever_its_tokenizer_says(
    classifier: Path, tmp_path: Path, stated: int | None
) -> None:
    """flair#1751, #3184, #3450, transformers#5983, #4501: 10³⁰ tokens in tokenizer_config.json, and an index error at 513.
    Whatever is asked for, what is longer is cut, and counted."""
    folder = tmp_path / "model"
    shutil.copytree(classifier, folder)
    (folder / "manifest.json").unlink()
    about = json.loads((folder / "unmask.json").read_text(encoding="utf-8"))
    (folder / "unmask.json").write_text(json.dumps({**about, "texts": {}}), encoding="utf-8")
    kept = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")) | {"model_max_length": stated}
    (folder / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in kept.items() if v}), encoding="utf-8")
    path = write(tmp_path / "long.jsonl", [{"text": "the good " * n} for n in (1, 500, 700)])
    for asked_for in (0, 4096):
        loaded = TaskModel.load(folder, max_length=asked_for)
        assert loaded.texts.max_length == 64
        features = loaded.features(loaded.job.read(str(path), asked=True).examples)
        assert features.notes == ("2 of 3 are longer than 64 tokens and were cut",)
        said = loaded.answer(features).predictions
        assert said[1].scores == pytest.approx(said[2].scores, abs=1e-5)
    with pytest.warns(TruncationWarning, match="2 of 3 texts"):
        assert np.isfinite(
            load(folder).encode([json.loads(line)["text"] for line in path.read_text().splitlines()])
        ).all()


def test_no_answer_depends_on_its_batch_and_texts_of_nothing_are_alike(classifier: Path, tmp_path: Path) -> None:
    """sentence-transformers#2312, text-embeddings-inference#365, dify#6807: an empty text spoilt the batch."""
    nothing = ["", " \t\n", "\u3000"]
    every = [
        *nothing,
        "\u200b",
        "[SEP] [MASK]",
        "the good one",
        "the bad " * 60,
        "北京",
        "\U0001f469\u200d\U0001f4bb",
        "a",
    ]
    loaded = TaskModel.load(classifier)

    def said(rows: list[str]) -> list[Classified]:
        return told(loaded, write(tmp_path / "t.jsonl", [{"text": text} for text in rows]), truth=False)[0]

    together = said(every)
    for order in ([9], [6], [3, 5], list(reversed(range(10)))):
        for at, one in zip(order, said([every[at] for at in order]), strict=True):
            assert one.label == together[at].label
            assert one.scores == pytest.approx(together[at].scores, abs=1e-5)
    assert together[1].scores == together[2].scores == pytest.approx(together[0].scores, abs=1e-6)
    added = json.loads((classifier / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    special = {one["id"] for one in added if one["content"] in ("[SEP]", "[MASK]")}
    ids = loaded.texts.texts(["[SEP] [MASK]"]).sequences().ids_T.tolist()
    assert len(special) == 2 and not special & set(ids[1:-1])


def test_B187_a_vector_has_length_1_however_long_its_text_is(classifier: Path) -> None:
    """vllm#57498: the mean of several parts' unit vectors is shorter."""
    with pytest.warns(TruncationWarning):
        vectors = load(classifier).encode(["", "a", "the good one " * 400, "it was bad " * 21], normalize=True)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6


# --- words -------------------------------------------------------------------------------------------------------------
def test_B158_a_text_has_the_words_in_training_that_it_has_when_it_is_asked(tmp_path: Path) -> None:
    """transformers#33579: other words in training than afterwards. Words that a person gives are never parted."""
    text = "She's in state-of-the-art 7.7 北京, e\u0301tat \U0001f469\u200d\U0001f4bb."
    begin = text.index("state")
    path = write(tmp_path / "a.jsonl", [{"text": text, "spans": [[begin, begin + len("state-of-the-art"), "X"]]}])
    (learned,) = read_tagged(str(path)).examples
    assert (learned.words, learned.offsets) == (tag.from_text([text])[0].words, tag.from_text([text])[0].offsets)
    assert learned.tags is not None and learned.tags.count("B-X") == 1, "one entity, not one a piece"
    words = ("state-of-the-art", "5.975,74", "e\u0301tat")
    for kind in KINDS:
        given = [TaggedExample(words, None, Place("f", 1, 1))]
        features, _ = tag.sequences(given, AlignedEncoder(tokenizer(kind), 64), Tagging(labels=("O", "B-X", "I-X")))
        assert len(features.labels["tag"].place_M) == len(words)


# --- questions ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_at_an_edge_of_its_context_is_an_answer_where_none_is_allowed_too(kind: str) -> None:
    """FARM#686, google-research/bert#353: the first and the last token were taken for no answer."""
    task = Answering(stride=4, impossible=True)
    for context in ("Ada is in Rome", "Ada", "Ada " * 30 + "Rome"):
        for max_length in (16, 64):
            edges = {context[:3]: 0, context.split()[-1]: context.rindex(context.split()[-1])}
            for name, begin in edges.items():
                examples = [asked(context, name, begin)]
                features, windows = answer.sequences(examples, AlignedEncoder(tokenizer(kind), max_length), task)
                inside = [
                    int(token)
                    for token, (a, b) in zip(windows.token_M, windows.offsets_M2.tolist(), strict=True)
                    if max(a, begin) < min(b, begin + len(name))
                ]
                assert features.labels["start"].place_M.any(), "some window has it"
                (said,) = answer.decode(shown_outputs(windows, min(inside), max(inside)), windows, examples, task)
                assert (said.text, said.begin, said.end) == (name, begin, begin + len(name))


def test_the_threshold_for_no_answer_is_tuned_kept_and_used_again(model: Path, tmp_path: Path) -> None:
    """transformers#8710, PR#7319: SQuAD 2.0 was answered with a threshold that nobody had tuned."""
    rows = [
        {"id": str(n), "question": f"who {n % 3}?", "context": f"it was {name} there",
         "answers": [{"text": name, "start": 7}] if n % 3 else []}
        for n, name in enumerate(["Ada", "Bob"] * 12)
    ]  # fmt: skip
    path = write(tmp_path / "train.jsonl", rows)
    metrics, _ = tune(settings(model, path, task=Answering(stride=8)), tmp_path / "run")
    folder = tmp_path / "run" / "model"
    kept = json.loads((folder / "unmask.json").read_text(encoding="utf-8"))["job"]
    loaded = TaskModel.load(folder)
    assert loaded.job.task.impossible and loaded.job.threshold == kept["threshold"] != 0.0  # type: ignore[attr-defined]
    said, again = told(loaded, path)
    assert next(iter(again)) == "f1" and again == pytest.approx(metrics)
    assert [not one.text for one in said] == [one.no_answer_score > kept["threshold"] for one in said]
    untuned = replace(loaded, job=replace(loaded.job, threshold=0.0))  # type: ignore[type-var]
    assert told(untuned, path)[1]["f1"] <= again["f1"]


# --- search ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("parts", [1, 2])
def test_who_adds_up_gradients_is_told_that_this_adds_no_negatives(model: Path, tmp_path: Path, parts: int) -> None:
    """sentence-transformers#2916, #1752."""
    rows = [{"anchor": f"what is {n}", "positive": f"{n} is a number"} for n in range(8)]
    run = settings(model, write(tmp_path / "train.jsonl", rows), task=Contrast(), examples=4, epochs=1)
    _, seen = tune(replace(run, accumulate=parts, dev=""), tmp_path / "run")
    warned = [record for record in seen if "share no negatives" in str(record.get("message"))]
    assert len(warned) == parts - 1
