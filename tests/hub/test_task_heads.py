"""Heads of tasks are saved as, and read from, the classes that transformers has for them, with the same answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from small_models import GOALS, VARIANTS, our_network, randomise
from task_models import (
    ENDINGS,
    FAMILIES,
    LABELS,
    Part,
    edit,
    our_logits,
    ours_of,
    require_same_logits,
    saved,
    theirs_of,
)
from test_round_trips import REWORDED
from theirs import T5, Theirs, batch_for, opened
from torch import nn

from unmask.batch import PackedBatch
from unmask.config import Answering, Classification, Contrast, EncoderConfig, Ranking, Regression, Tagging
from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.files import load_model, save_model, save_weights
from unmask.hub.restore import restore_into
from unmask.hub.task_heads import TaskSettings, head_shape
from unmask.nn.encoder import Encoder
from unmask.objectives.answer import AnswerObjective
from unmask.objectives.base import Joint, Objective
from unmask.objectives.classify import ClassifyObjective
from unmask.objectives.contrast import ContrastObjective
from unmask.objectives.rank import RankObjective
from unmask.objectives.tag import TagObjective

UNREAD = {  # what the other classes of a family read, or what stands for what is written out
    "tag": {"pooler_hidden_act", "pooler_dropout", "cls_dropout"},
    "answer": {"pooler_hidden_act", "pooler_dropout", "cls_dropout", "classifier_dropout"},
    "classify": set(),
}
CASES = [(name, kind) for name in FAMILIES for kind in ENDINGS if name != "t5" or kind == "tag"]


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
OURS = [
    (name, kind)
    for name in VARIANTS
    for kind in ENDINGS
    if name != "neobert" and (name != "t5" or kind == "tag")
]  # fmt: skip


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


TAGS = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
SHAPE = head_shape("bert")
TOKENS = head_shape("bert", "tag")
OBJECTIVES: dict[str, Callable[[EncoderConfig], Objective]] = {
    "classify": lambda config: ClassifyObjective(config, Classification(labels=LABELS), SHAPE),
    "regress": lambda config: ClassifyObjective(config, Regression(), SHAPE),
    "rank": lambda config: RankObjective(config, Ranking(), SHAPE),
    "answer": lambda config: AnswerObjective(config, Answering(), head_shape("bert", "answer")),
    "tag": lambda config: TagObjective(config, Tagging(labels=TAGS), TOKENS),
    "tag crf": lambda config: TagObjective(config, Tagging(labels=TAGS, decoder="crf"), TOKENS),
    "tag bilstm_crf": lambda config: TagObjective(config, Tagging(labels=TAGS, decoder="bilstm_crf"), TOKENS),
    "contrast": lambda config: ContrastObjective(config, Contrast()),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_task_s_objective_comes_back_from_its_folder_whole(name: str, tmp_path: Path) -> None:
    config, kind = VARIANTS["bert"], name.split()[0]
    joint, fresh = (Joint({kind: OBJECTIVES[name](config)}) for _ in range(2))
    encoder, _ = ours_of(config, "tag", TOKENS)
    randomise(joint, 2)
    save_model(tmp_path, encoder, joint, tokenizer_folder=None, about={}, model_type="bert")
    assert restore_into(Encoder(config), fresh, load_model(tmp_path)) == []
    assert all(torch.equal(tensor, fresh.state_dict()[key]) for key, tensor in joint.state_dict().items())
    wanted = {"tag bilstm_crf": "Model", "contrast": "Model"}.get(name, ENDINGS.get(kind, ENDINGS["classify"]))
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["Bert" + wanted]


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
