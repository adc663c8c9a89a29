"""The heads of a model folder: which are looked for in its files, what lies beside their class, and what config.json and
unmask.json say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub import names
from unmask.hub.family import TASK_CLASSES, Family
from unmask.hub.match import Asked
from unmask.hub.task_heads import SHAPES, TaskSettings, plain_shape, read_task, task_fields, task_of
from unmask.hub.tensors import WEIGHTS, Stored, read_tensors, require_floats, tensors_in
from unmask.hub.weights import State, Weights

HEADS = "heads.safetensors"
BESIDE = "beside"  # in unmask.json: the parts of heads in heads.safetensors


# --- reading ---------------------------------------------------------------------------------------------------------------
def asked(
    stored: Sequence[Stored], settings: Mapping[str, Any], family: Family, config: EncoderConfig, folder: Path
) -> Asked:
    """What should be in the files; how many outputs a task's head has, they say themselves."""
    layers, task = _decoder_layers(settings, config), task_of(settings)
    if task not in family.tasks:
        return Asked(family, config, layers, folder)
    last = _last_name(family, task, config)
    outputs = next((entry.shape[0] for entry in stored if family.canonical(entry.name) == last and entry.shape), 1)
    return Asked(family, config, layers, folder, outputs, task)


def _last_name(family: Family, task: str, config: EncoderConfig) -> str:
    """What the matrix that gives a task's outputs is called there."""
    return next(row.theirs[0] for row in family.rows(task, config, 1) if row.ours == "out.weight")


def read_task_settings(settings: Mapping[str, Any], heads: Mapping[str, State], folder: Path) -> TaskSettings:
    """Of the head named by the class, or of one that lies beside; nothing is asked of config.json where there is none."""
    kind = next((kind for kind in (task_of(settings), *TASK_CLASSES) if "out.weight" in heads.get(kind, {})), None)
    if kind is None:
        return TaskSettings()
    outputs = len(heads[kind]["out.weight"])
    if kind == "answer" and outputs != 2:
        raise UnmaskError(
            f"the ANSWER head has {outputs} outputs; an answer has a begin and an end",
            where=str(folder),
            do="use a model for extractive question answering",
        )
    named = TASK_CLASSES[kind] if task_of(settings) == kind else HEADS
    return read_task(settings, outputs, f"the {kind.upper()} head ({named})", str(folder / "config.json"))


def beginnings(family: Family, theirs: State, config: EncoderConfig) -> dict[str, State]:
    """What there is already of the heads of tasks, under the names of their classes: all but the outputs."""
    found = {}
    for kind in family.tasks:
        rows = [row for row in family.rows(kind, config, 1) if not row.ours.startswith("out.")]
        found[kind] = names.to_ours([row for row in rows if all(name in theirs for name in row.theirs)], theirs, config)
    return found


def bare_heads(about: Mapping[str, Any], config: EncoderConfig) -> dict[str, State]:
    """A head that is the tied matrix and nothing else has no tensors: only unmask.json knows that there was one."""
    listed = about.get("heads")
    bare = config.tie_word_embeddings and not config.head_transform and not config.head_bias
    return {kind: {} for kind in ("mlm", "causal") if bare and isinstance(listed, list) and kind in listed}


def with_other_heads(heads: dict[str, State], folder: Path) -> dict[str, State]:
    """What lies in heads.safetensors besides: whole heads, and parts of heads that their class knows nothing of."""
    if not (folder / HEADS).is_file():
        return heads
    stored = tensors_in(folder / HEADS)
    require_floats(stored)
    for name, tensor in read_tensors({entry.name: entry for entry in stored}).items():
        kind, _, rest = name.partition(".")
        if rest in heads.setdefault(kind, {}):
            raise UnmaskError(
                f"{name} is in {HEADS} and in {WEIGHTS} too",
                where=str(folder),
                do="use a folder that holds one model only",
            )
        heads[kind][rest] = tensor
    return heads


def _decoder_layers(settings: Mapping[str, Any], config: EncoderConfig) -> int:
    found = settings.get("num_decoder_layers")
    whole = isinstance(found, int) and not isinstance(found, bool) and 0 < found <= 1 << 10
    return int(found) if whole and found is not None else config.num_hidden_layers


# --- writing ---------------------------------------------------------------------------------------------------------------
def task_settings(weights: Weights, family: Family, kinds: frozenset[str]) -> dict[str, Any]:
    """What config.json says of the head of a task, whether its class has it or it lies beside."""
    kind = next((kind for kind in (*kinds, *weights.heads) if kind in TASK_CLASSES), None)
    if kind is None or (kind == "answer" and not weights.task.labels):  # begin and end need no names
        return {}
    fields = task_fields(weights.task, len(weights.heads[kind]["out.weight"]))
    shape = weights.shapes.get(kind)
    return fields | (family.tasks[kind].write(shape, weights.config) if kind in kinds and shape else {})


def about_others(others: State, shapes: Mapping[str, HeadShape], kinds: frozenset[str]) -> dict[str, Any]:
    """What unmask.json says of what lies beside: a head is not the model without its CRF, and no class tells its shape."""
    parts = sorted({".".join(name.split(".")[:2]) for name in others})
    beside = {kind: plain_shape(shape) for kind, shape in shapes.items() if kind not in kinds}
    return ({BESIDE: parts} if parts else {}) | ({SHAPES: beside} if beside else {})
