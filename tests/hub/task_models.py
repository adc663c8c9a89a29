"""Small models with the heads of tasks: transformers', of every family, and ours; and their logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from small_models import VARIANTS, padded, randomise
from theirs import ALBERT, BERT, BIASED, BUCKETS, GPT2, MODERN, RELATIVE, ROBERTA, T5, Theirs, batch_for
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.hub.files import LoadedModel, build_encoder, save_model
from unmask.hub.task_heads import TaskSettings, head_shape
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


def saved(name: str, kind: str, folder: Path, task: TaskSettings | None = None) -> tuple[Encoder, Joint]:
    config, model_type = replace(VARIANTS[name], attention_probs_dropout_prob=0.0), MODEL_TYPES.get(name, name)
    outputs = 2 if kind == "answer" else len(LABELS) if task is None else len(task.labels)
    usual = TaskSettings() if kind == "answer" else TaskSettings(labels=LABELS)
    shape = replace(head_shape(model_type, kind), bias=config.linear_bias) if name == "modernbert" else None
    encoder, joint = ours_of(config, kind, shape or head_shape(model_type, kind), outputs)
    save_model(folder, encoder, joint, tokenizer_folder=None, about={}, task=task or usual, model_type=model_type)
    return encoder, joint
