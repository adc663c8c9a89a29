"""A model as tensors under our names, between the network and a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.hub.family import TASK_CLASSES
from unmask.hub.task_heads import TaskSettings, head_kind
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TaskHead
from unmask.objectives.base import Joint, Objective
from unmask.objectives.replaced import ReplacedTokenObjective

State = dict[str, Tensor]

TABLES = ("embeddings.tokens.weight", "embeddings.positions.weight", "embeddings.segments.weight")


@dataclass(frozen=True)
class Weights:
    """An encoder, its heads by the kind of their objective, and the generator that trained it."""

    config: EncoderConfig
    encoder: State
    heads: Mapping[str, State] = field(default_factory=dict)
    generator: Weights | None = None
    model_type: str = ""  # the family it came from, and goes back to where that can say it
    task: TaskSettings = TaskSettings()  # what the outputs of a task's head are
    shapes: Mapping[str, HeadShape] = field(default_factory=dict)  # of tasks' heads; else what their tensors tell

    @property
    def decoder_layers(self) -> int:
        """Layers of the decoder of an encoder–decoder; 0 without one."""
        blocks = [name.split(".")[2] for name in self.heads.get("infill", {}) if name.startswith("decoder.blocks.")]
        return len(set(blocks))


def gather(encoder: Encoder, objective: Joint | None, config: EncoderConfig | None = None) -> Weights:
    """The tensors of a network as it is used: shared and disentangled tables written out.

    `config` is stored instead of the encoder's own, whose dropout is that of the run.
    """
    config = config or encoder.config
    state = dict(encoder.state_dict())
    if objective is None:
        return Weights(config, state)
    members = objective.members()
    heads = {head_kind(kind): head_state(part, kind) for kind, part in members.items()}
    shapes = {
        head_kind(kind): m.shape for kind, part in members.items() for m in part.children() if isinstance(m, TaskHead)
    }
    replaced = members.get("rtd")
    generator = _generator(replaced, state, config) if isinstance(replaced, ReplacedTokenObjective) else None
    return Weights(config, objective.settle(state), heads, generator, shapes=shapes)


def head_state(part: Objective, kind: str) -> State:
    """What a folder keeps of an objective: its part `head`; of a task all there is, what stands beside the head too."""
    if head_kind(kind) in TASK_CLASSES:
        return {name.removeprefix("head."): tensor for name, tensor in part.state_dict().items()}
    head = dict(part.named_children()).get("head")
    return {} if head is None else dict(head.state_dict())


def _generator(objective: ReplacedTokenObjective, encoder: State, config: EncoderConfig) -> Weights:
    """The generator as a model of its own; where its tables are the encoder's, it takes them along."""
    state = dict(objective.generator.state_dict())
    borrowed = {name: encoder[name] for name in TABLES if name in encoder and name not in state}
    own = replace(
        objective.generator.config,
        hidden_dropout_prob=config.hidden_dropout_prob,
        attention_probs_dropout_prob=config.attention_probs_dropout_prob,
    )
    return Weights(own, {**borrowed, **state}, {"mlm": dict(objective.mlm.get_submodule("head").state_dict())})
