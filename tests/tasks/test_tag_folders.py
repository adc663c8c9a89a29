"""Taggers of others by their labels alone, Chinese words without types, broken tags, heads that go on in their own order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.metrics.v1 import precision_recall_fscore_support
from seqeval.scheme import IOBES
from tag_grammars import GRAMMARS, LETTERS, alphabet, in_iobes, is_legal
from toy import toy_model, tune, write
from typer.testing import CliRunner

from unmask.cli.main import app
from unmask.config import AdamW, Classification, FineTuning, Keeping, Machine, Tagging
from unmask.errors import UnmaskError
from unmask.hub.files import load_model, save_model
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.classify import ClassifyObjective
from unmask.objectives.tag import TagObjective
from unmask.tasks.jobs import job_of
from unmask.tasks.network import build_network, load_start
from unmask.tasks.saved import TaskModel

CHINESE = ("北京", "是", "2024", "的", "a", "word")  # each character a word of its own, with these letters:
CUT = ("BE", "S", "BMME", "S", "S", "BMME")


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(small_corpus, tmp_path_factory.mktemp("toy") / "model")


def folder_of(model: Path, folder: Path, task: Tagging | Classification) -> Path:
    """A model with a random head for the task, whose folder names the labels and nothing more, as those of others."""
    loaded = load_model(model)
    shape = loaded.head_shape(task.kind)
    encoder = Encoder(loaded.config)
    encoder.load_state_dict(loaded.encoder)
    kind = TagObjective if isinstance(task, Tagging) else ClassifyObjective
    objective = kind(loaded.config, task, shape)  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.normal_(0, 0.5, generator=draw)
    save_model(
        folder, encoder, Joint({task.kind: objective}), tokenizer_folder=model, about={}, task=job_of(task).settings()
    )
    return folder


def run_of(model: Path, train: Path, **changes: Any) -> FineTuning:
    run = FineTuning(
        model=str(model), train=str(train), dev=str(train), examples=8, epochs=1, max_length=48, dropout=0.0,
        optimizer=AdamW(learning_rate=3e-3), keeping=Keeping(evaluations=1, keep_last=1),
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    return replace(run, **changes)


def characters(words: Sequence[str] = CHINESE, cut: Sequence[str] = CUT) -> dict[str, list[str]]:
    return {"tokens": list("".join(words)), "tags": list("".join(cut))}


@pytest.mark.parametrize("scheme", GRAMMARS)
@pytest.mark.parametrize("typed", [True, False])
def test_a_folder_of_others_makes_the_spans_of_its_labels(
    model: Path, tmp_path: Path, scheme: str, typed: bool
) -> None:
    labels = tuple(alphabet(scheme) if typed else ["O", *LETTERS[scheme]])[::-1]
    loaded = TaskModel.load(folder_of(model, tmp_path / "model", Tagging(labels=labels, scheme="plain")))
    assert loaded.job.task == Tagging(labels=labels, scheme=scheme)  # type: ignore[arg-type]
    name = "-X" if typed else ""
    single = {"bio": "B"}.get(scheme, LETTERS[scheme][-1]) + name
    rows = [{"tokens": ["the", "of", "and", "in"] * 2, "tags": [single, "O", single, single, "O", "O", "O", single]}]
    read = loaded.job.read(str(write(tmp_path / "data.jsonl", rows * 3)))
    loaded.job.require(read.examples, "data.jsonl")
    found = loaded.answer(loaded.features(read.examples))
    for said in found.predictions:
        spans = [(span.label, span.first, span.last - 1) for span in said.spans]
        assert spans == get_entities(in_iobes(said.tags)) and set(said.tags) <= set(labels)
    if scheme not in ("bio", "bios"):
        truth, guessed = ([in_iobes(row) for row in tags] for tags in (
            [e.tags or () for e in read.examples], [said.tags for said in found.predictions]
        ))  # fmt: skip
        *_, f1, _ = precision_recall_fscore_support(truth, guessed, average="micro", zero_division=0, scheme=IOBES)
        assert found.metrics["f1"] == pytest.approx(f1)


@pytest.mark.parametrize("scheme", ["bioes", "bilou", "bmes", "bmewo"])
def test_records_in_other_letters_are_read_in_those_of_the_folder(model: Path, tmp_path: Path, scheme: str) -> None:
    labels = tuple(alphabet(scheme))
    loaded = TaskModel.load(folder_of(model, tmp_path / "model", Tagging(labels=labels, scheme="plain")))
    for other in ("bioes", "bilou", "bmes", "bmewo"):
        begin, inside, end, single = LETTERS[other] if other != "bilou" else "BILU"
        row = {"tokens": ["the"] * 4, "tags": [f"{letter}-X" for letter in (begin, inside, end, single)]}
        read = loaded.job.read(str(write(tmp_path / "data.jsonl", [row])))
        assert read.examples[0].tags == tuple(f"{letter}-X" for letter in LETTERS[scheme]) and not read.warnings


def test_chinese_words_are_learned_from_letters_alone_and_found_in_running_text(model: Path, tmp_path: Path) -> None:
    """B158: each character was a word in training, those of a number too; so they are when it is asked."""
    rows = [characters()] * 8
    train = write(tmp_path / "train.jsonl", rows)
    task = Tagging(scheme="bmes", decoder="crf", repair="drop")
    metrics, _ = tune(run_of(model, train, task=task, epochs=30), tmp_path / "run")
    assert metrics["f1"] == 1.0
    measured = json.loads((tmp_path / "run" / "eval.json").read_text(encoding="utf-8"))
    assert measured["dev"] == pytest.approx(metrics) and measured["task"]["repair"] == "drop"
    assert measured["task"]["labels"] == ["B", "E", "M", "S"] and measured["task"]["scheme"] == "bmes"
    loaded = TaskModel.load(tmp_path / "run" / "model")
    assert loaded.job.task == replace(task, labels=("B", "E", "M", "S"))
    text = "".join(CHINESE)
    asked = loaded.job.read(
        str(write(tmp_path / "new.jsonl", [{"text": text}, {"text": f" {text[:3]} {text}"}])), asked=True
    )
    said, more = loaded.answer(loaded.features(asked.examples)).predictions
    assert [span.text for span in said.spans] == list(CHINESE) and {span.label for span in said.spans} == {"_"}
    assert is_legal(more.tags, "bmes") and more.words == tuple(text[:3] + text)


def test_words_of_a_segmenter_are_missed_where_a_text_has_none(model: Path, tmp_path: Path) -> None:
    labels = ("NN", "VV")
    rows = [{"tokens": ["北京", "是"], "tags": ["NN", "VV"]}]
    job = job_of(Tagging(scheme="plain"))
    begun = job.begin(job.read(str(write(tmp_path / "train.jsonl", rows))))
    assert begun.task.labels == labels and begun.learned() == {"parting": "segments"}
    again = job_of(begun.task).with_learned(json.loads(json.dumps(begun.learned())))
    new = write(tmp_path / "new.jsonl", [{"text": "去 a b"}, {"text": "上海"}, {"text": "the 上海 of"}])
    read = again.read(str(new), asked=True)
    assert [example.words for example in read.examples][1:] == [("上", "海"), ("the", "上", "海", "of")]
    (warning,) = read.warnings
    assert "the model learned words of several" in warning and ": 2 (first" in warning and "line 2" in warning
    assert not again.read(str(write(tmp_path / "w.jsonl", [{"tokens": ["上海"]}])), asked=True).warnings


def test_broken_tags_are_read_as_the_run_or_whoever_measures_wants(model: Path, tmp_path: Path) -> None:
    """emnlp2017-bilstm-cnn-crf#19."""
    folder = folder_of(model, tmp_path / "model", Tagging(labels=("O", "B-X", "I-X")))
    path = write(tmp_path / "broken.jsonl", [{"tokens": ["the", "of", "a"], "tags": ["O", "I-X", "I-X"]}])
    wanted = {None: ("O", "B-X", "I-X"), "begin": ("O", "B-X", "I-X"), "drop": ("O", "O", "O")}
    for repair, tags in wanted.items():
        read = TaskModel.load(folder, repair=repair).job.read(str(path))  # type: ignore[arg-type]
        assert read.examples[0].tags == tags and len(read.warnings) == 1
    for words, said in (([], "given a beginning and an end: 1"), (["--repair", "drop"], "made O: 1")):
        answer = CliRunner().invoke(app, ["evaluate", str(folder), str(path), *words])
        assert answer.exit_code == 0 and said in " ".join(answer.output.split())
    with pytest.raises(UnmaskError, match="'I-X' breaks the BIO scheme after 'O'"):
        TaskModel.load(folder, repair="error").job.read(str(path))
    other = CliRunner().invoke(app, ["evaluate", str(folder), str(path), "--repair", "mend"])
    assert isinstance(other.exception, UnmaskError) and "drop" in str(other.exception)
    classifier = folder_of(model, tmp_path / "classifier", Classification(labels=("b", "a")))
    with pytest.raises(UnmaskError, match="only tags can be broken"):
        TaskModel.load(classifier, repair="drop")


HEADS: dict[str, tuple[Tagging | Classification, list[dict[str, Any]]]] = {
    "classify": (Classification(labels=("c", "a", "b")), [{"text": "x", "label": label} for label in "abc"]),
    "several labels": (
        Classification(labels=("c", "a", "b"), multi_label=True),
        [{"text": "x", "labels": ["a", "b"]}, {"text": "y", "labels": ["c"]}],
    ),
    "tag": (Tagging(labels=("I-X", "B-X", "O")), [{"tokens": ["x", "y"], "tags": ["B-X", "O"]}]),
    "tag plain": (Tagging(labels=("VV", "NN"), scheme="plain"), [{"tokens": ["x", "y"], "tags": ["NN", "VV"]}]),
    "tag crf": (
        Tagging(labels=("S", "M", "E", "B"), scheme="bmes", decoder="crf"),
        [{"tokens": ["x", "y"], "tags": ["B", "E"]}],
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_for_the_same_labels_goes_on_in_its_own_order(model: Path, tmp_path: Path, name: str) -> None:
    """The labels of the data alone would be sorted, and the head be new."""
    task, rows = HEADS[name]
    folder = folder_of(model, tmp_path / "model", task)
    run = run_of(folder, write(tmp_path / "train.jsonl", rows), task=replace(task, labels=()))
    loaded, job = load_start(run), job_of(run.task)
    begun = job.begin(job.read(run.train), loaded.labels)
    assert begun.task == task and job.begin(job.read(run.train)).task.labels == tuple(sorted(task.labels))
    (member,) = build_network(run, begun, loaded).objective.members().values()
    there = {f"head.{name}" if f"head.{name}" in member.state_dict() else name: tensor
             for name, tensor in loaded.heads[task.kind].items()}  # fmt: skip
    assert there.keys() == member.state_dict().keys()
    assert all(torch.equal(tensor, member.state_dict()[key]) for key, tensor in there.items())
    given = job_of(replace(task, labels=task.labels[::-1]))
    begun = given.begin(given.read(run.train), loaded.labels)
    assert begun.task.labels == task.labels[::-1], "a person's order is the person's"
    (member,) = build_network(run, begun, loaded).objective.members().values()
    assert not torch.equal(there["head.out.weight"], member.state_dict()["head.out.weight"])


def test_weights_of_labels_follow_their_order(tmp_path: Path) -> None:
    rows = [{"text": "x", "label": label} for label in "aaab"]
    job = job_of(Classification(class_weights="balanced"))
    read = job.read(str(write(tmp_path / "train.jsonl", rows)))
    ahead, back = (job.begin(read, there).weights for there in ((), ("b", "a")))  # type: ignore[attr-defined]
    assert ahead == back[::-1] and ahead[0] < ahead[1]
