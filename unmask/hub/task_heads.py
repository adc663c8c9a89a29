"""What a `config.json` says of a task's head besides its tensors: labels, kind of problem, shape; read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.families import FAMILIES
from unmask.hub.family import TASK_CLASSES
from unmask.hub.fields import EXPORTED, Fields, refusal, shown

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]
ScoreActivation = Literal["sigmoid", "identity"]

# Objectives whose head is that of a class for sequences, under one name in every folder.
HEAD_OF = {"regress": "classify", "rank": "classify"}
# How CrossEncoder of sentence-transformers spells what it puts around the outputs.
ACTIVATION_CLASSES: dict[ScoreActivation, str] = {
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "identity": "torch.nn.modules.linear.Identity",
}
SHAPES = "head_shapes"  # in unmask.json: of heads that no class has


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """What the outputs of a task's head are.

    `labels` are their names in order; without any, LABEL_0 and so on. `activation` makes a cross-encoder's score of its
    output; None leaves it to whoever reads the folder (CrossEncoder takes the sigmoid of a single output).
    """

    labels: tuple[str, ...] = ()
    problem_type: ProblemType | None = None
    activation: ScoreActivation | None = None


def head_kind(kind: str) -> str:
    """The name that the head of an objective of this kind has in a folder."""
    return HEAD_OF.get(kind, kind)


def task_of(data: Mapping[str, Any]) -> str:
    """The task that a configuration's class is for ("classify", "tag", "answer"); "" for every other class."""
    listed = data.get("architectures")
    for name in listed if isinstance(listed, list) else ():
        for kind, ending in TASK_CLASSES.items():
            if isinstance(name, str) and name.endswith(ending):
                return kind
    return ""


# --- shapes ----------------------------------------------------------------------------------------------------------------
def head_shape(
    model_type: str, kind: str = "classify", data: Mapping[str, Any] | None = None, where: str = "config.json"
) -> HeadShape:
    """The head that a family's class for a task has, with the settings of its configuration, or the usual ones.

    Where no class is (T5 and NeoBERT have them for some tasks only, our own networks for none): BERT's head over the mean
    of all states, which says something whatever frame a tokenizer puts around a text, and one linear layer over tokens.
    Raises UnmaskError for settings that we can't compute with.
    """
    kind = head_kind(kind)
    known = FAMILIES[model_type].tasks.get(kind)
    if known is not None:
        return known.read(Fields(data or {}, where))
    return HeadShape(pooling="mean", input_dropout=-1.0) if kind == "classify" else HeadShape(act=None)


def shape_beside(about: Mapping[str, Any], kind: str, where: str) -> HeadShape | None:
    """The shape of a head that no class has, from unmask.json; None where it names none."""
    listed = about.get(SHAPES)
    if not isinstance(listed, dict) or kind not in listed:
        return None
    if not isinstance(listed[kind], dict):
        raise refusal(f"{SHAPES}.{kind} must be a table of settings", where)
    f = Fields(listed[kind], where)
    pooling = f.value("pooling", "first")
    if pooling not in ("first", "mean", "last"):
        raise refusal(f"pooling must be first, mean or last, not {shown(pooling)}", where)
    found = HeadShape(
        pooling=pooling,
        act=None if f.value("act") is None else f.activation("act"),
        normed=f.flag("normed", False),
        bias=f.flag("bias", True),
        out_bias=f.flag("out_bias", True),
        dropout=_rate(f, "dropout"),
        input_dropout=_rate(f, "input_dropout"),
    )
    f.finish()
    return found


def _rate(f: Fields, name: str) -> float:
    return -1.0 if f.value(name) is None else f.fraction(name, 0.0)


def plain_shape(shape: HeadShape) -> dict[str, Any]:
    """What `shape_beside` reads back."""
    rates = {"dropout": shape.dropout, "input_dropout": shape.input_dropout}
    return {
        "pooling": shape.pooling,
        "act": None if shape.act is None else EXPORTED[shape.act],
        "normed": shape.normed,
        "bias": shape.bias,
        "out_bias": shape.out_bias,
        **{name: None if rate < 0 else rate for name, rate in rates.items()},
    }


# --- reading ---------------------------------------------------------------------------------------------------------------
def read_task(data: Mapping[str, Any], outputs: int, tensor: str, where: str) -> TaskSettings:
    """Labels and the rest of a configuration whose head has `outputs` outputs, as `tensor` in the weights says.

    Raises UnmaskError where labels are not numbered from 0 without gaps, where id2label and label2id contradict each other,
    and where there are more or fewer of them than outputs.
    """
    names = _labels(data, where)
    told = len(names) if names else data.get("num_labels")
    if told is not None and told != outputs:
        listed = f"id2label names {told}: {shown(list(names))}" if names else f"num_labels is {shown(told)}"
        raise refusal(f"{tensor} has {outputs} outputs, but {listed}", where)
    return TaskSettings(
        labels=names or tuple(f"LABEL_{i}" for i in range(outputs)),
        problem_type=_problem_type(data, where),
        activation=_activation(data, where),
    )


def _labels(data: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """In order; () where the configuration names none. Either map may still be the default, LABEL_0 …, which says nothing."""
    by_id, by_name = _by_id(data.get("id2label"), where), _by_name(data.get("label2id"), where)
    names = tuple(by_id[i] for i in range(len(by_id))) if by_id else ()
    others = tuple(by_name[i] for i in range(len(by_name))) if by_name else ()
    if names and others and names != others and len(names) == len(others):
        if _is_default(others):
            return names
        if _is_default(names):
            return others
    if names and others and names != others:
        raise UnmaskError(
            f"id2label and label2id contradict each other: {_listed(data['id2label'])} and {_listed(data['label2id'])}",
            where=where,
            do="correct the one that is wrong in a copy of the folder: which output is which label can't be guessed",
        )
    return names or others


def _listed(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:400]


def _is_default(names: Sequence[str]) -> bool:
    return tuple(names) == tuple(f"LABEL_{i}" for i in range(len(names)))


def _by_id(value: object, where: str) -> dict[int, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value.values()):
        raise refusal(f"id2label must map numbers to names, not {shown(value)}", where)
    if not all(re.fullmatch(r"[0-9]{1,7}", str(key), re.ASCII) for key in value):
        raise refusal(f"id2label must map numbers to names, not {shown(value)}", where)
    return _without_gaps("id2label", {int(key): name for key, name in value.items()}, len(value), where)


def _by_name(value: object, where: str) -> dict[int, str]:
    if value is None:
        return {}
    numbers = list(value.values()) if isinstance(value, dict) else [None]
    if not all(re.fullmatch(r"[0-9]{1,7}", str(number), re.ASCII) for number in numbers):
        raise refusal(f"label2id must map names to numbers, not {shown(value)}", where)
    assert isinstance(value, dict)
    return _without_gaps("label2id", {int(number): name for name, number in value.items()}, len(value), where)


def _without_gaps(field: str, names: dict[int, str], count: int, where: str) -> dict[int, str]:
    if sorted(names) != list(range(count)):
        raise refusal(f"{field} must number its labels from 0 without gaps, not {sorted(names)[:20]}", where)
    if len(set(names.values())) < count:
        twice = next(name for name in names.values() if list(names.values()).count(name) > 1)
        raise refusal(f"{field} gives the label {shown(twice)} to two outputs", where)
    return names


def _problem_type(data: Mapping[str, Any], where: str) -> ProblemType | None:
    value, known = data.get("problem_type"), get_args(ProblemType)
    if value is not None and value not in known:
        raise refusal(f"problem_type must be one of {', '.join(known)}, not {shown(value)}", where)
    found: ProblemType | None = value
    return found


def _activation(data: Mapping[str, Any], where: str) -> ScoreActivation | None:
    """From the field of today, or that of folders older than version 4 of the library."""
    table = data.get("sentence_transformers")
    named = table.get("activation_fn") if isinstance(table, dict) else None
    value = data.get("sbert_ce_default_activation_function") if named is None else named
    if value is None:
        return None
    for activation, name in ACTIVATION_CLASSES.items():
        if value == name:
            return activation
    known = ", ".join(ACTIVATION_CLASSES.values())
    raise refusal(f"activation_fn must be one of {known}, not {shown(value)}", where)


# --- writing ---------------------------------------------------------------------------------------------------------------
def task_fields(task: TaskSettings, outputs: int) -> dict[str, Any]:
    """The fields for a head with so many outputs; UnmaskError for labels that are not as many, or not all different."""
    labels = task.labels or tuple(f"LABEL_{i}" for i in range(outputs))
    if len(labels) != outputs:
        raise UnmaskError(
            f"the head has {outputs} outputs, but there are {len(labels)} labels: {shown(list(labels))}",
            do="give one label for each output, in order",
        )
    if len(set(labels)) < len(labels):
        raise UnmaskError(f"a label stands for two outputs: {shown(list(labels))}", do="give each a name of its own")
    if task.problem_type == "single_label_classification" and outputs == 1:
        raise UnmaskError(
            "one output can't tell labels apart", do="give two labels at least, or take it as a regression"
        )
    fields: dict[str, Any] = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    if task.problem_type is not None:
        fields["problem_type"] = task.problem_type
    if task.activation is not None:
        fields["sentence_transformers"] = {"activation_fn": ACTIVATION_CLASSES[task.activation]}
    return fields
