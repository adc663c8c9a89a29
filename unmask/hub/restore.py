"""A saved model into a network that exists: to go on with its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from torch import Tensor, nn

from unmask.config import EncoderConfig
from unmask.errors import UnmaskError
from unmask.hub.family import TASK_CLASSES, meaning
from unmask.hub.files import LoadedModel, load_model
from unmask.hub.task_heads import head_kind
from unmask.hub.weights import TABLES, State, head_state
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint, Objective
from unmask.objectives.replaced import ReplacedTokenObjective

# Settings that two models may differ in and still share weights.
FREE = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer", "initializer_range", "pad_token_id")

GENERATOR_ADVICE = (
    "give the rtd objective the generator_width and generator_depth of the run that made the model, or delete the model's "
    "generator folder from a copy to begin with a new generator"
)


def restore_into(
    encoder: Encoder, objective: Joint | None, loaded: LoadedModel, labels: Sequence[str] | None = None
) -> list[str]:
    """Copies the folder's weights into a network; returns the parameters of heads it had nothing for.

    Those keep the values they had ("mlm.transform.dense.weight", …). A generator comes from the folder's own; `labels` are
    those of a task: see `restore_head`. Raises UnmaskError when the two encoders differ, or two heads do.
    """
    _require_same(encoder.config, loaded.config, "set encoder.{name}={value}")
    encoder.load_state_dict(loaded.encoder)
    new = []
    for kind, part in {} if objective is None else objective.members().items():
        if head_kind(kind) in TASK_CLASSES:
            new += restore_head(part, loaded, kind, labels)
            continue
        pooler = loaded.heads.get("pooler", {}) if kind in ("nsp", "sop") else {}
        if head_state(part, kind):
            new += fill_head(part.get_submodule("head"), loaded.heads.get(kind) or pooler, kind)
        if isinstance(part, ReplacedTokenObjective):
            new += _restore_generator(encoder, part, loaded)
    return new


def _restore_generator(encoder: Encoder, part: ReplacedTokenObjective, loaded: LoadedModel) -> list[str]:
    """The generator's weights, and, with disentangled tables, what is left of the encoder's besides."""
    head = part.mlm.get_submodule("head")
    if loaded.generator_folder is None:
        new = [f"rtd.generator.{name}" for name in part.generator.state_dict()] + fill_head(head, {}, "rtd.mlm")
    else:
        generator = load_model(loaded.generator_folder)
        _require_same(part.generator.config, generator.config, GENERATOR_ADVICE, of="the generator's ")
        own = part.generator.embeddings.tokens is not None
        part.generator.load_state_dict({k: v for k, v in generator.encoder.items() if own or k not in TABLES})
        new = fill_head(head, generator.heads.get("mlm", {}), "rtd.mlm")
    encoder.load_state_dict(part.unsettle(loaded.encoder))
    return new


def restore_head(
    objective: Objective, loaded: LoadedModel, kind: str, labels: Sequence[str] | None = None
) -> list[str]:
    """Copies a task's head into its objective, with a CRF or LSTM beside it; returns the parameters the folder had nothing for.

    The head is taken over where the folder's labels are `labels`, in this order (None: whatever they are); otherwise what
    stands before its outputs, as transformers does: BERT's pooler, ModernBERT's dense layer. Raises UnmaskError for a head
    with other parts or shapes than this one.
    """
    state, own = loaded.heads.get(head_kind(kind)), head_state(objective, kind)
    if state is None or (labels is not None and tuple(labels) != loaded.labels):
        state = {k: v for k, v in loaded.beginnings.get(head_kind(kind), {}).items() if k in own}
    if unknown := [name for name in state if name not in own]:
        raise UnmaskError(
            f"{kind}.{unknown[0]} is part of the model to go on from, but not of this run's head",
            do="give the task the settings that model was trained with",
        )
    inside = objective.state_dict().keys()
    named = {f"head.{name}" if f"head.{name}" in inside else name: tensor for name, tensor in state.items()}
    return fill_head(objective, named, kind)


def fill_head(head: nn.Module, state: State, name: str) -> list[str]:
    """Copies what there is into a head, and returns what it lacks; UnmaskError for another shape."""
    own: dict[str, Tensor] = head.state_dict()
    for key, tensor in state.items():
        if key in own and own[key].shape != tensor.shape:
            raise UnmaskError(
                f"{name}.{key} is {list(own[key].shape)} in this run, but {list(tensor.shape)} in the model to go on from",
                do="give the objective the settings that model was trained with",
            )
    missing: list[str] = head.load_state_dict({k: v for k, v in state.items() if k in own}, strict=False).missing_keys
    return [f"{name}.{key}" for key in missing]


def _require_same(here: EncoderConfig, there: EncoderConfig, do: str, of: str = "") -> None:
    """UnmaskError for the first setting that differs; `do` may name it and its value there."""
    here, there = meaning(here), meaning(there)
    for name in (field.name for field in fields(EncoderConfig) if field.name not in FREE):
        if getattr(here, name) != getattr(there, name):
            raise UnmaskError(
                f"{of}{name} is {getattr(here, name)} in this run, but {getattr(there, name)} in the model to go on from",
                do=do.format(name=name, value=getattr(there, name)),
            )
