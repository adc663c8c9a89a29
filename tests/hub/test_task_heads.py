"""Heads of tasks are saved as, and read from, the classes that transformers has for them, with the same answers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from small_models import GOALS, VARIANTS, our_network, padded, randomise
from test_round_trips import REWORDED
from theirs import ALBERT, BERT, BIASED, BUCKETS, GPT2, MODERN, RELATIVE, ROBERTA, T5, Theirs, batch_for, opened
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.files import LoadedModel, build_encoder, load_model, save_model, save_weights
from unmask.hub.restore import restore_into
from unmask.hub.task_heads import ACTIVATION_CLASSES, TaskSettings, head_shape
from unmask.nn.encoder import Encoder
from unmask.nn.heads import SequenceHead, TaskHead
from unmask.objectives.base import Joint, Objective

LENGTHS = [1, 2, 7, 7, 20, 41, 64]
LABELS = ("very good", "不错", "👍🏽", "LABEL_9", "ни то ни сё")
NAMES = {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
ENDINGS = {"classify": "ForSequenceClassification", "tag": "ForTokenClassification", "answer": "ForQuestionAnswering"}

FAMILIES: dict[str, tuple[str, type[hf.PreTrainedConfig], dict[str, Any]]] = {
    "bert": ("Bert", hf.BertConfig, BERT),
    "bert-dropout": ("Bert", hf.BertConfig, BERT | dict(classifier_dropout=0.3)),
    "roberta": ("Roberta", hf.RobertaConfig, ROBERTA),
    "roberta-dropout": ("Roberta", hf.RobertaConfig, ROBERTA | dict(classifier_dropout=0.3)),
    "camembert": ("Camembert", hf.CamembertConfig, ROBERTA),
    "xlm-roberta": ("XLMRoberta", hf.XLMRobertaConfig, ROBERTA),
    "electra": ("Electra", hf.ElectraConfig, BERT | dict(embedding_size=16)),
    "albert": ("Albert", hf.AlbertConfig, ALBERT),
    "deberta": ("Deberta", hf.DebertaConfig, RELATIVE | dict(pooler_hidden_act="relu")),
    "deberta-v2": ("DebertaV2", hf.DebertaV2Config, BUCKETS | dict(pooler_dropout=0.2, cls_dropout=0.15)),
    "modernbert": ("ModernBert", hf.ModernBertConfig, MODERN),
    "modernbert-mean": (
        "ModernBert", hf.ModernBertConfig, MODERN | BIASED | dict(classifier_pooling="mean", classifier_dropout=0.3)
    ),
    "gpt2": ("GPT2", hf.GPT2Config, GPT2 | dict(pad_token_id=0)),
    "t5": ("T5", hf.T5Config, T5),
}  # fmt: skip
UNREAD = {  # what the other classes of a family read, or what stands for what is written out
    "tag": {"pooler_hidden_act", "pooler_dropout", "cls_dropout"},
    "answer": {"pooler_hidden_act", "pooler_dropout", "cls_dropout", "classifier_dropout"},
    "classify": set(),
}
CASES = [(name, kind) for name in FAMILIES for kind in ENDINGS if name != "t5" or kind == "tag"]


def theirs_of(name: str, kind: str, **more: Any) -> hf.PreTrainedModel:
    prefix, config, settings = FAMILIES[name]
    names = {} if kind == "answer" else NAMES
    return Theirs(getattr(hf, prefix + ENDINGS[kind]), config, (kind,), settings).build(**names, **more)


def head_from(loaded: LoadedModel, kind: str) -> TaskHead:
    state, shape = loaded.heads[kind], loaded.head_shape(kind)
    head = (SequenceHead if kind == "classify" else TaskHead)(loaded.config, len(state["out.weight"]), shape)
    head.load_state_dict(state)
    return head.eval()


@torch.no_grad()
def our_logits(loaded: LoadedModel, kind: str, batch: PackedBatch) -> Tensor:
    hidden, head = build_encoder(loaded)(batch), head_from(loaded, kind)
    return head(hidden, batch) if isinstance(head, SequenceHead) else head.answer(hidden)


@torch.no_grad()
def their_logits(model: hf.PreTrainedModel, kind: str, batch: PackedBatch) -> Tensor:
    out = model(**padded(batch, model.config.pad_token_id or 0))
    if kind == "classify":
        return out.logits
    return batch.layout.unpad(torch.stack([out.start_logits, out.end_logits], -1) if kind == "answer" else out.logits)


def require_same_logits(loaded: LoadedModel, model: hf.PreTrainedModel, kind: str) -> None:
    batch = batch_for(model, LENGTHS, ())
    torch.testing.assert_close(our_logits(loaded, kind, batch), their_logits(model, kind, batch), atol=2e-5, rtol=2e-4)


def edit(folder: Path, **fields: Any) -> Path:
    """Other fields in config.json; None takes one out."""
    config = json.loads((folder / "config.json").read_text()) | fields
    kept = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder


# --- from transformers to us -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_class_of_transformers_loads_with_its_logits_and_comes_back_bit_for_bit(
    name: str, kind: str, tmp_path: Path
) -> None:
    theirs = theirs_of(name, kind)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert set(loaded.heads) == {kind} and not loaded.unexpected and not loaded.missing
    assert loaded.labels == (("LABEL_0", "LABEL_1") if kind == "answer" else LABELS)
    require_same_logits(loaded, theirs, kind)

    save_weights(tmp_path / "again", loaded.weights(), tokenizer_folder=None, about={})
    again = opened(type(theirs), tmp_path / "again")
    before, after = theirs.state_dict(), again.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    one, other = theirs.config.to_dict(), again.config.to_dict()
    usual = {"classifier_dropout"} if (name, kind) == ("gpt2", "tag") else set()  # absent stands for 0.1
    assert {key for key in one | other if one.get(key) != other.get(key)} <= REWORDED.keys() | UNREAD[kind] | usual
    files = [load_file(tmp_path / folder / "model.safetensors").keys() for folder in ("theirs", "again")]
    assert files[0] == files[1] and not (tmp_path / "again" / "heads.safetensors").exists()


@pytest.mark.parametrize(("name", "kind"), [("bert", "classify"), ("deberta", "tag"), ("modernbert", "answer")])
def test_a_sequence_alone_has_the_logits_that_it_has_in_a_batch(name: str, kind: str, tmp_path: Path) -> None:
    theirs_of(name, kind).save_pretrained(tmp_path)
    loaded, model = load_model(tmp_path), theirs_of(name, kind)
    batch = batch_for(model, [5, 30], ())
    together = our_logits(loaded, kind, batch)
    first = our_logits(loaded, kind, PackedBatch.pack(
        [batch.input_ids[:5].tolist()], None if batch.token_type_ids is None else [batch.token_type_ids[:5].tolist()]
    ))  # fmt: skip
    torch.testing.assert_close(first, together[: len(first)], atol=1e-5, rtol=1e-5)


# --- from us to transformers -----------------------------------------------------------------------------------------
class Part(Objective):
    """As little of a task's objective as a folder can be made of."""

    def __init__(self, config: EncoderConfig, kind: str, outputs: int, shape: HeadShape):
        super().__init__()
        self.head = (TaskHead if kind in ("tag", "answer") else SequenceHead)(config, outputs, shape)


def ours_of(config: EncoderConfig, kind: str, shape: HeadShape, outputs: int = len(LABELS)) -> tuple[Encoder, Joint]:
    encoder, joint = Encoder(config), Joint({kind: Part(config, kind, outputs, shape)})
    randomise(encoder, 1)
    randomise(joint, 2)
    return encoder.eval(), joint.eval()


MODEL_TYPES = {"deberta-v1": "deberta", "deberta-v3": "deberta-v2"}
OURS = [
    (name, kind)
    for name in VARIANTS
    for kind in ENDINGS
    if name != "neobert" and (name != "t5" or kind == "tag")
]  # fmt: skip


def saved(name: str, kind: str, folder: Path, task: TaskSettings | None = None) -> tuple[Encoder, Joint]:
    config, model_type = replace(VARIANTS[name], attention_probs_dropout_prob=0.0), MODEL_TYPES.get(name, name)
    outputs = 2 if kind == "answer" else len(LABELS) if task is None else len(task.labels)
    usual = TaskSettings() if kind == "answer" else TaskSettings(labels=LABELS)
    shape = replace(head_shape(model_type, kind), bias=config.linear_bias) if name == "modernbert" else None
    encoder, joint = ours_of(config, kind, shape or head_shape(model_type, kind), outputs)
    save_model(folder, encoder, joint, tokenizer_folder=None, about={}, task=task or usual, model_type=model_type)
    return encoder, joint


@pytest.mark.parametrize(("name", "kind"), OURS)
def test_transformers_opens_our_folder_as_the_task_s_class_and_gives_our_logits(
    name: str, kind: str, tmp_path: Path
) -> None:
    encoder, joint = saved(name, kind, tmp_path / "model")
    auto = getattr(hf, f"AutoModel{ENDINGS[kind]}")
    model = opened(auto, tmp_path / "model")
    assert type(model).__name__.endswith(ENDINGS[kind])
    loaded = load_model(tmp_path / "model")
    model.config.pad_token_id = (
        model.config.pad_token_id or 0
    )  # GPT-2 has none without a tokenizer, and takes no batches
    if kind != "answer":
        assert tuple(model.config.id2label[i] for i in range(len(LABELS))) == LABELS == loaded.labels
    require_same_logits(loaded, model, kind)
    other, fresh = ours_of(encoder.config, kind, loaded.head_shape(kind), len(loaded.heads[kind]["out.weight"]))
    for parameter in [*other.parameters(), *fresh.parameters()]:
        parameter.data.zero_()
    assert restore_into(other, fresh, loaded) == []
    for mine, back in ((encoder, other), (joint, fresh)):
        assert all(torch.equal(tensor, back.state_dict()[key]) for key, tensor in mine.state_dict().items())


NO_CLASS = [
    ("t5", "classify"), ("t5", "answer"), ("neobert", "tag"), ("neobert", "answer"), ("own", "classify"), ("own", "tag"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), NO_CLASS)
def test_a_head_that_no_class_has_lies_beside_and_comes_back_with_its_shape_and_labels(
    name: str, kind: str, tmp_path: Path
) -> None:
    own = replace(VARIANTS["bert"], norm="rms", type_vocab_size=0)
    config, model_type = (own, "unmask") if name == "own" else (VARIANTS[name], name)
    shape = replace(head_shape(model_type, kind), dropout=0.25)
    encoder, joint = ours_of(config, kind, shape, 2)
    task = TaskSettings(labels=("jà", "否"))
    save_model(tmp_path, encoder, joint, tokenizer_folder=None, about={}, task=task, model_type=model_type)
    loaded = load_model(tmp_path)
    about = json.loads((tmp_path / "unmask.json").read_text())
    assert loaded.model_type == model_type and kind + ".out" in about["beside"]
    assert loaded.head_shape(kind) == shape and loaded.labels == ("jà", "否")
    wanted = joint.members()[kind].head.state_dict()
    assert loaded.heads[kind].keys() == wanted.keys()
    assert all(torch.equal(tensor, wanted[key]) for key, tensor in loaded.heads[kind].items())
    save_weights(tmp_path / "again", loaded.weights(), tokenizer_folder=None, about=loaded.about)
    assert load_model(tmp_path / "again").head_shape(kind) == shape


def test_the_usual_head_of_a_network_without_classes_is_BERT_s_over_the_mean_of_all_states() -> None:
    for model_type in ("t5", "unmask"):
        assert head_shape(model_type) == HeadShape(pooling="mean", act="tanh", dropout=-1.0, input_dropout=-1.0)
        assert head_shape(model_type, "answer") == HeadShape(act=None)


def test_neobert_keeps_the_names_that_its_own_class_has(tmp_path: Path) -> None:
    encoder, joint = saved("neobert", "classify", tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["NeoBERTForSequenceClassification"]
    names = load_file(tmp_path / "model.safetensors").keys()
    assert {name for name in names if not name.startswith("model.")} == {
        "dense.weight", "dense.bias", "classifier.weight", "classifier.bias",
    }  # fmt: skip
    assert set(load_model(tmp_path).heads) == {"classify"}


def test_a_shape_that_the_family_s_class_cannot_have_lies_beside(tmp_path: Path) -> None:
    """A class that computes something else with these very tensors would give wrong answers without a word."""
    shape = HeadShape(pooling="mean")
    encoder, joint = ours_of(VARIANTS["bert"], "classify", shape)
    task = TaskSettings(labels=LABELS)
    save_model(tmp_path, encoder, joint, tokenizer_folder=None, about={}, task=task, model_type="bert")
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertModel"]
    assert load_model(tmp_path).head_shape("classify") == shape and load_model(tmp_path).labels == LABELS


def test_a_fresh_network_is_of_the_family_whose_head_it_has(tmp_path: Path) -> None:
    """ELECTRA's head over BERT's encoder, without a word on the family, is an ELECTRA."""
    joint = ours_of(VARIANTS["bert"], "classify", HeadShape(act="gelu", input_dropout=-1.0))
    save_model(tmp_path, *joint, tokenizer_folder=None, about={})
    assert load_model(tmp_path).model_type == "electra"
    opened(hf.ElectraForSequenceClassification, tmp_path)


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


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    theirs_of("bert", "classify").save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


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


# --- what stands beside ----------------------------------------------------------------------------------------------
class Tagger(Objective):
    """Parts beside the linear head, named as a CRF's and an LSTM's."""

    def __init__(self, config: EncoderConfig, *, lstm: bool):
        super().__init__()
        width = config.hidden_size
        self.out = nn.Linear(2 * width if lstm else width, len(LABELS))
        self.crf = nn.ParameterDict(
            {"transitions": nn.Parameter(torch.randn(5, 5)), "start": nn.Parameter(torch.randn(5))}
        )
        self.lstm = nn.LSTM(width, width, bidirectional=True) if lstm else None


def saved_tagger(folder: Path, *, lstm: bool) -> Joint:
    joint = Joint({"tag": Tagger(VARIANTS["bert"], lstm=lstm)})
    encoder, _ = ours_of(VARIANTS["bert"], "tag", HeadShape(act=None))
    save_model(folder, encoder, joint, tokenizer_folder=None, about={}, task=TaskSettings(labels=LABELS))
    return joint


def require_back(folder: Path, joint: Joint, *, lstm: bool) -> None:
    fresh = Joint({"tag": Tagger(VARIANTS["bert"], lstm=lstm)})
    assert restore_into(Encoder(VARIANTS["bert"]), fresh, load_model(folder)) == []
    assert all(torch.equal(tensor, fresh.state_dict()[key]) for key, tensor in joint.state_dict().items())


def test_a_linear_head_is_its_class_s_and_the_CRF_on_it_lies_beside_and_is_named(tmp_path: Path) -> None:
    joint = saved_tagger(tmp_path, lstm=False)
    opened(hf.BertForTokenClassification, tmp_path)
    assert json.loads((tmp_path / "unmask.json").read_text())["beside"] == ["tag.crf"]
    assert set(load_file(tmp_path / "heads.safetensors")) == {"tag.crf.transitions", "tag.crf.start"}
    require_back(tmp_path, joint, lstm=False)


def test_a_head_over_an_LSTM_is_no_class_s_and_lies_beside_whole(tmp_path: Path) -> None:
    joint = saved_tagger(tmp_path, lstm=True)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertModel"]
    assert json.loads((tmp_path / "unmask.json").read_text())["beside"] == ["tag.crf", "tag.lstm", "tag.out"]
    assert load_model(tmp_path).labels == LABELS
    require_back(tmp_path, joint, lstm=True)


def test_a_CRF_is_never_dropped_without_a_word(tmp_path: Path) -> None:
    saved_tagger(tmp_path, lstm=False)
    plain = Joint({"tag": Part(VARIANTS["bert"], "tag", len(LABELS), HeadShape(act=None))})
    with pytest.raises(UnmaskError, match="tag.crf.* is part of the model to go on from"):
        restore_into(Encoder(VARIANTS["bert"]), plain, load_model(tmp_path))


# --- a new head on an old model --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "kind", "known"),
    [
        ("bert", "classify", {"dense.weight", "dense.bias"}),
        ("bert", "tag", set()),
        ("albert", "classify", {"dense.weight", "dense.bias"}),
        ("roberta", "classify", set()),
        ("modernbert", "classify", {"dense.weight", "norm.weight"}),
        ("modernbert", "answer", {"dense.weight", "norm.weight"}),
        ("gpt2", "classify", set()),
    ],
)
def test_a_new_head_begins_where_transformers_lets_it_begin(
    name: str, kind: str, known: set[str], tmp_path: Path
) -> None:
    """BERT's pooler and ModernBERT's dense layer were pre-trained."""
    goals = {"bert": ("mlm", "nsp"), "albert": ("mlm", "sop"), "gpt2": ("causal",)}.get(name, ("mlm",))
    save_model(tmp_path, *our_network(VARIANTS[name], [GOALS[goal] for goal in goals]), tokenizer_folder=None, about={})
    loaded = load_model(tmp_path)
    assert set(loaded.beginnings[kind]) == known and kind not in loaded.heads and loaded.labels == ()
    encoder, joint = Encoder(VARIANTS[name]), Joint({kind: Part(VARIANTS[name], kind, 2, loaded.head_shape(kind))})
    new = restore_into(encoder, joint, loaded, ("no", "yes"))
    head = joint.members()[kind].head.state_dict()
    assert {n.removeprefix(f"{kind}.").removeprefix("head.") for n in new} == head.keys() - known
    prefix = {"bert": "Bert", "albert": "Albert", "roberta": "Roberta", "modernbert": "ModernBert", "gpt2": "GPT2"}[
        name
    ]
    theirs = getattr(hf, prefix + ENDINGS[kind]).from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "theirs")
    there = load_model(tmp_path / "theirs").heads[kind]
    assert all(torch.equal(there[key], head[key]) for key in known)


def test_a_head_for_the_very_same_labels_is_taken_over_and_another_is_not(classifier: Path) -> None:
    loaded = load_model(classifier)

    def restored(labels: tuple[str, ...] | None) -> tuple[list[str], Part]:
        joint = Joint({"classify": Part(loaded.config, "classify", 5, loaded.head_shape("classify"))})
        encoder = Encoder(loaded.config)
        return restore_into(encoder, joint, loaded, labels), joint.members()["classify"]

    for labels in (None, LABELS):
        new, part = restored(labels)
        assert new == [] and torch.equal(part.head.out.weight, loaded.heads["classify"]["out.weight"])
    new, part = restored(tuple(reversed(LABELS)))
    assert [name.rpartition("out.")[2] for name in new] == ["weight", "bias"]
    assert torch.equal(part.head.dense.weight, loaded.heads["classify"]["dense.weight"])
    assert not torch.equal(part.head.out.weight, loaded.heads["classify"]["out.weight"])


# --- folders that have no such head ----------------------------------------------------------------------------------
def without_class(folder: Path) -> Path:
    return edit(folder, architectures=None)


@pytest.mark.parametrize(
    "change", [without_class, lambda folder: edit(folder, architectures=["BertForMultipleChoice"])]
)
def test_a_folder_that_does_not_name_a_task_s_class_has_no_head_and_its_tensors_are_listed(
    change: Callable[[Path], Path], classifier: Path
) -> None:
    """BERT's classifiers of sequences and of tokens are called alike: without the class nobody can tell."""
    loaded = load_model(change(classifier))
    assert set(loaded.heads) == {"pooler"} and loaded.labels == ()
    assert loaded.unexpected == ["classifier.bias", "classifier.weight"]


def test_T5_s_class_over_its_decoder_is_loaded_as_an_encoder_and_its_head_is_listed(tmp_path: Path) -> None:
    Theirs(hf.T5ForSequenceClassification, hf.T5Config, (), T5).build().save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert "classify" not in loaded.heads and loaded.labels == ()
    assert "classification_head.out_proj.weight" in loaded.unexpected


def test_half_a_head_is_an_error(classifier: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = load_file(classifier / "model.safetensors")
    del tensors["bert.pooler.dense.weight"]
    save_file(tensors, classifier / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnmaskError, match="CLASSIFY head is not whole: the file lacks pooler.dense.weight"):
        load_model(classifier)
