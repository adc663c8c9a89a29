"""What config.json says of a task's head: labels in order, the kind of problem, dropout and pooling; honoured or refused."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import GOALS, VARIANTS, our_network, padded
from task_models import (
    LABELS,
    Part,
    edit,
    head_from,
    our_logits,
    ours_of,
    require_same_logits,
    saved,
    theirs_of,
)
from theirs import batch_for, opened
from torch import nn

from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.files import load_model, save_model
from unmask.hub.restore import restore_into
from unmask.hub.task_heads import ACTIVATION_CLASSES, TaskSettings, head_shape, read_task, task_fields
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint


# --- kinds of problems -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["regress", "rank"])
def test_one_number_for_a_sequence_is_a_class_for_sequences_with_one_label(kind: str, tmp_path: Path) -> None:
    encoder, joint = ours_of(VARIANTS["bert"], kind, head_shape("bert", kind), 1)
    task = TaskSettings(labels=("similarity",), problem_type="regression")
    save_model(tmp_path, encoder, joint, tokenizer_folder=None, about={}, task=task)
    model = opened(hf.AutoModelForSequenceClassification, tmp_path)
    assert model.config.num_labels == 1 and model.config.problem_type == "regression"
    loaded = load_model(tmp_path)
    assert loaded.labels == ("similarity",) and loaded.problem_type == "regression"
    require_same_logits(loaded, model, "classify")
    batch = batch_for(model, [3, 8], ())
    wanted = torch.tensor([0.93, 0.11])
    with torch.no_grad():
        loss = model(**padded(batch), labels=wanted).loss
    torch.testing.assert_close(loss, (our_logits(loaded, "classify", batch).squeeze(1) - wanted).square().mean())
    fresh = Joint({kind: Part(VARIANTS["bert"], kind, 1, loaded.head_shape(kind))})
    assert restore_into(Encoder(VARIANTS["bert"]), fresh, loaded) == []
    assert torch.equal(fresh.members()[kind].head.out.weight, joint.members()[kind].head.out.weight)


def test_several_labels_at_once_are_told_apart_from_one_of_several(tmp_path: Path) -> None:
    task = TaskSettings(labels=LABELS, problem_type="multi_label_classification")
    saved("roberta", "classify", tmp_path, task)
    model = opened(hf.AutoModelForSequenceClassification, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.problem_type == model.config.problem_type == "multi_label_classification"
    batch, wanted = batch_for(model, [3, 8], ()), torch.tensor([[1.0, 0, 0, 1, 1], [0.0] * 5])
    with torch.no_grad():
        loss = model(**padded(batch, 1), labels=wanted).loss
    ours = nn.functional.binary_cross_entropy_with_logits(our_logits(loaded, "classify", batch), wanted)
    torch.testing.assert_close(loss, ours)


def test_seven_classes_stay_seven_classes(tmp_path: Path) -> None:
    """TencentPretrain#93: exported as two."""
    labels = tuple(f"class {i}" for i in range(7))
    saved("bert", "classify", tmp_path, TaskSettings(labels=labels))
    model = opened(hf.AutoModelForSequenceClassification, tmp_path)
    assert model.config.num_labels == 7 and [model.config.id2label[i] for i in range(7)] == list(labels)
    require_same_logits(load_model(tmp_path), model, "classify")


# --- labels ----------------------------------------------------------------------------------------------------------
def test_labels_keep_their_order_and_every_character(tmp_path: Path) -> None:
    """transformers#13334, #7917: names instead of LABEL_0, in the order of the outputs, whatever they sort like."""
    labels = (
        "z last",
        "a first",
        "  padded ",
        "\u00e9",
        "e\u0301",
        "中 文",
        "👩‍👩‍👧",
        '"quoted"',
        "tab\there",
        "10",
        "9",
    )
    saved("bert", "tag", tmp_path, TaskSettings(labels=labels))
    assert load_model(tmp_path).labels == labels
    text = (tmp_path / "config.json").read_text(encoding="utf-8")
    assert "中 文" in text and "👩‍👩‍👧" in text
    config = hf.AutoConfig.from_pretrained(tmp_path)
    assert [config.id2label[i] for i in range(11)] == list(labels)
    assert config.label2id == {label: i for i, label in enumerate(labels)}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=12, unique=True))
def test_any_labels_come_back_from_json_in_order(labels: list[str]) -> None:
    fields = json.loads(json.dumps(task_fields(TaskSettings(labels=tuple(labels)), len(labels)), sort_keys=True))
    assert read_task(fields, len(labels), "the head", "config.json").labels == tuple(labels)


def test_without_names_the_outputs_are_numbered(classifier: Path) -> None:
    assert load_model(edit(classifier, id2label=None, label2id=None)).labels == tuple(f"LABEL_{i}" for i in range(5))


@pytest.mark.parametrize("field", ["id2label", "label2id"])
def test_one_of_the_two_maps_is_enough(classifier: Path, field: str) -> None:
    assert load_model(edit(classifier, **{field: None})).labels == LABELS


def test_a_map_that_was_left_at_its_default_says_nothing(classifier: Path) -> None:
    """Many published folders name their labels in one of the two only."""
    assert load_model(edit(classifier, label2id={f"LABEL_{i}": i for i in range(5)})).labels == LABELS
    left = {str(i): f"LABEL_{i}" for i in range(5)}
    named = {label: i for i, label in enumerate(LABELS)}
    assert load_model(edit(classifier, id2label=left, label2id=named)).labels == LABELS


def test_the_order_of_the_file_does_not_matter_the_numbers_do(classifier: Path) -> None:
    backwards = {str(i): LABELS[i] for i in reversed(range(5))}
    assert load_model(edit(classifier, id2label=backwards)).labels == LABELS


def test_maps_that_contradict_each_other_are_an_error_that_lists_both(classifier: Path) -> None:
    other = {label: i for i, label in enumerate(reversed(LABELS))}
    with pytest.raises(UnmaskError, match="contradict each other") as caught:
        load_model(edit(classifier, label2id=other))
    assert '"0": "very good"' in caught.value.what and '"very good": 4' in caught.value.what
    assert "不错" in caught.value.what and "config.json" in caught.value.where


FIVE = {str(i): f"name {i}" for i in range(5)}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "has 5 outputs, but id2label names 2: .*a.*b"),
        ({"id2label": {**FIVE, "5": "six"}}, "has 5 outputs, but id2label names 6"),
        ({"id2label": None, "num_labels": 3}, "has 5 outputs, but num_labels is 3"),
        ({"id2label": {"0": "a", "2": "b", "3": "c", "4": "d", "5": "e"}}, "id2label must number its labels from 0"),
        ({"id2label": {**FIVE, "04": "another"}}, "id2label must number its labels from 0"),
        ({"id2label": {**FIVE, "4": "name 3"}}, 'id2label gives the label "name 3" to two outputs'),
        ({"id2label": {**FIVE, "x": "another"}}, "id2label must map numbers to names"),
        ({"id2label": {**FIVE, "-1": "another"}}, "id2label must map numbers to names"),
        ({"id2label": {**FIVE, "4": 4}}, "id2label must map numbers to names"),
        ({"id2label": ["a", "b", "c", "d", "e"]}, "id2label must map numbers to names"),
        ({"id2label": {**FIVE, "9" * 400: "another"}}, "id2label must map numbers to names"),
        ({"id2label": None, "label2id": {"a": 0, "b": 2, "c": 3, "d": 4, "e": 5}}, "label2id must number its labels"),
        ({"id2label": None, "label2id": {"a": None}}, "label2id must map names to numbers"),
        ({"id2label": None, "label2id": 5}, "label2id must map names to numbers"),
        ({"problem_type": "ordinal"}, "problem_type must be one of regression"),
        ({"problem_type": ["regression"]}, "problem_type must be one of regression"),
        ({"sbert_ce_default_activation_function": "os.system"}, "activation_fn must be one of"),
        ({"sentence_transformers": {"activation_fn": 7}}, "activation_fn must be one of"),
    ],
)
def test_labels_that_are_not_those_of_the_head_are_refused_in_words(
    classifier: Path, fields: dict[str, Any], words: str
) -> None:
    fields = {"label2id": None} | fields
    with pytest.raises(UnmaskError, match=words):
        load_model(edit(classifier, **fields))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (TaskSettings(labels=("a", "b")), "the head has 5 outputs, but there are 2 labels"),
        (TaskSettings(labels=("a", "b", "c", "d", "a")), "a label stands for two outputs"),
    ],
)
def test_a_folder_with_wrong_labels_is_never_written(task: TaskSettings, words: str, tmp_path: Path) -> None:
    encoder, joint = ours_of(VARIANTS["bert"], "classify", HeadShape())
    with pytest.raises(UnmaskError, match=words):
        save_model(tmp_path / "model", encoder, joint, tokenizer_folder=None, about={}, task=task)
    assert not (tmp_path / "model").exists()


def test_one_output_is_no_choice_between_labels(tmp_path: Path) -> None:
    task = TaskSettings(labels=("only",), problem_type="single_label_classification")
    encoder, joint = ours_of(VARIANTS["bert"], "classify", HeadShape(), 1)
    with pytest.raises(UnmaskError, match="one output can't tell labels apart"):
        save_model(tmp_path / "model", encoder, joint, tokenizer_folder=None, about={}, task=task)


def test_an_answer_has_a_begin_and_an_end(tmp_path: Path) -> None:
    theirs_of("bert", "answer", num_labels=3).save_pretrained(tmp_path)
    with pytest.raises(UnmaskError, match="ANSWER head has 3 outputs"):
        load_model(tmp_path)


# --- what config.json says of the head -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("bert", "classify", HeadShape()),
        ("bert", "answer", HeadShape(act=None, dropout=0.0)),
        ("bert-dropout", "tag", HeadShape(act=None, dropout=0.3)),
        ("roberta", "classify", HeadShape(input_dropout=-1.0)),
        ("roberta-dropout", "classify", HeadShape(dropout=0.3, input_dropout=0.3)),
        ("electra", "classify", HeadShape(act="gelu", input_dropout=-1.0)),
        ("albert", "classify", HeadShape(dropout=0.1)),
        ("deberta", "classify", HeadShape(act="relu")),
        ("deberta-v2", "classify", HeadShape(act="gelu", dropout=0.15, input_dropout=0.2)),
        ("deberta-v2", "tag", HeadShape(act=None)),
        ("modernbert", "tag", HeadShape(act="gelu", normed=True, bias=False, dropout=0.0)),
        ("modernbert-mean", "classify", HeadShape(pooling="mean", act="gelu", normed=True, dropout=0.3)),
        ("gpt2", "classify", HeadShape(pooling="last", act=None, out_bias=False, dropout=0.0)),
        ("gpt2", "tag", HeadShape(act=None, dropout=0.1)),
    ],
)
def test_dropout_and_pooling_are_those_of_the_class(name: str, kind: str, wanted: HeadShape, tmp_path: Path) -> None:
    theirs = theirs_of(name, kind)
    theirs.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.head_shape(kind) == wanted
    rates = {m.p for m in theirs.modules() if isinstance(m, nn.Dropout)} | {0.0}
    head = head_from(loaded, kind)
    assert {head.dropout.p, head.input_dropout.p} <= rates


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bert", "classifier_dropout", "0.1"),
        ("bert", "classifier_dropout", 1.5),
        ("albert", "classifier_dropout_prob", -0.1),
        ("deberta", "pooler_dropout", True),
        ("deberta", "cls_dropout", "none"),
        ("deberta", "pooler_hidden_act", "quick_gelu"),
        ("deberta", "pooler_hidden_size", 24),
        ("modernbert", "classifier_pooling", "max"),
        ("modernbert", "classifier_dropout", 2),
    ],
)
def test_a_setting_of_the_head_that_we_cannot_compute_with_is_refused_by_name(
    name: str, field: str, value: Any, tmp_path: Path
) -> None:
    theirs_of(name, "classify").save_pretrained(tmp_path)
    with pytest.raises(UnmaskError, match=field):
        load_model(edit(tmp_path, **{field: value})).head_shape("classify")


def test_an_encoder_asks_nothing_of_the_settings_of_heads_that_it_does_not_have(tmp_path: Path) -> None:
    encoder, objective = our_network(VARIANTS["bert"], [GOALS["mlm"]])
    save_model(tmp_path, encoder, objective, tokenizer_folder=None, about={})
    (tmp_path / "manifest.json").unlink()
    loaded = load_model(edit(tmp_path, id2label={"0": "a", "7": "b"}, problem_type="ordinal", classifier_dropout="x"))
    assert loaded.labels == () and loaded.problem_type is None and set(loaded.heads) == {"mlm"}
    with pytest.raises(UnmaskError, match="classifier_dropout"):
        loaded.head_shape("classify")


@pytest.mark.parametrize("activation", ACTIVATION_CLASSES)
def test_what_a_cross_encoder_puts_around_its_output_is_written_and_read(activation: Any, tmp_path: Path) -> None:
    encoder, joint = ours_of(VARIANTS["bert"], "rank", HeadShape(), 1)
    save_model(tmp_path, encoder, joint, tokenizer_folder=None, about={}, task=TaskSettings(activation=activation))
    path = json.loads((tmp_path / "config.json").read_text())["sentence_transformers"]["activation_fn"]
    module, _, name = path.rpartition(".")
    x = torch.linspace(-3, 3, 7)
    assert torch.equal(
        getattr(importlib.import_module(module), name)()(x), x.sigmoid() if activation == "sigmoid" else x
    )
    assert load_model(tmp_path).task.activation == activation
    (tmp_path / "manifest.json").unlink()
    old = edit(tmp_path, sentence_transformers=None, sbert_ce_default_activation_function=path)
    assert load_model(old).task.activation == activation
