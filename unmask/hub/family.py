"""What a family of published models is to us: how its configuration is spelled and what its tensors are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from unmask.config import EncoderConfig, Recurrent, Rope
from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.fields import LIMITS, Fields, refusal
from unmask.hub.names import Row

HeadRows = Callable[[EncoderConfig, int], tuple[Row, ...]]  # the number is the decoder's layers

# What the classes for a task are called behind the family's name, by the kind of our head.
TASK_CLASSES = {
    "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "answer": "ForQuestionAnswering",
}
# Parts of a head that no class has, and without which the rest is still its class's head.
BESIDE = ("positions.", "crf.")


def _nothing(shape: HeadShape, config: EncoderConfig) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class TaskClass:
    """A family's class for a task: its tensors, for a number of outputs, and how its configuration spells the head's shape.

    `write(shape, config)` may give nonsense for a shape that the class can't have, which `Family.kinds` finds out by
    reading it back.
    """

    rows: Callable[[EncoderConfig, int], tuple[Row, ...]]
    read: Callable[[Fields], HeadShape]
    write: Callable[[HeadShape, EncoderConfig], dict[str, Any]] = _nothing


@dataclass(frozen=True)
class Family:
    """One `model_type`.

    `read` and `write` map its configuration; `write(config)` may give nonsense for a config of another family, which
    `speaks` finds out by reading it back. `classes` go from the heads a class has to its name, the fullest first. Names that
    begin with one of `outside` stand beside the encoder, others get `prefix` in front in every class but the bare one.
    """

    model_type: str
    prefix: str
    outside: tuple[str, ...]
    read: Callable[[Fields], EncoderConfig]
    write: Callable[[EncoderConfig], dict[str, Any]]
    encoder: Callable[[EncoderConfig], tuple[Row, ...]]
    heads: Mapping[str, HeadRows]
    classes: Mapping[frozenset[str], str]
    tied: Mapping[str, str]  # second names of a tensor that may be stored: {second: first}
    tasks: Mapping[str, TaskClass] = field(default_factory=dict)  # kind: its class, called as TASK_CLASSES says
    prefixes: Mapping[str, str] = field(default_factory=dict)  # of classes with another prefix
    block: str = "encoder.layer.{i}."  # what block i's tensors are called
    blocks: str = "num_hidden_layers"  # our size that says how many there are
    decoder_block: str = ""  # the same for a decoder
    renamed: Mapping[str, str] = field(default_factory=dict)  # our size: its field there
    old_names: tuple[tuple[str, str], ...] = ()  # (how a name may begin in older files, how it begins now)
    buffers: frozenset[str] = frozenset()  # stored by some versions; they follow from the shapes
    token_ids: Mapping[str, str] = field(
        default_factory=dict
    )  # token fields of the configuration: {field: cls, sep, …}

    def config(self, data: Mapping[str, Any], where: str) -> EncoderConfig:
        """The EncoderConfig of a configuration; UnmaskError for what can't be computed, is unknown or out of range."""
        fields = Fields(data, where)
        try:
            config = self.read(fields)
        except ValueError as error:
            raise refusal(self._in_their_words(str(error)), where) from None
        fields.finish()
        for name, limit in LIMITS.items():
            if getattr(config, name) > limit:
                raise refusal(f"{name} is {getattr(config, name):,}, more than {limit:,}", where)
        return config

    def _in_their_words(self, text: str) -> str:
        return re.sub(r"\w+", lambda word: self.renamed.get(word[0], word[0]), text)

    def speaks(self, config: EncoderConfig) -> bool:
        """Whether this family's configuration can say all of `config` (how weights began does not matter)."""
        try:
            back = self.config(self.write(config), "")
        except UnmaskError:
            return False
        same = replace(back, initializer=config.initializer, initializer_range=config.initializer_range)
        return meaning(same) == meaning(config)

    def kinds(
        self,
        heads: Mapping[str, Sequence[str]],
        config: EncoderConfig,
        decoder_layers: int,
        shapes: Mapping[str, HeadShape] = MappingProxyType({}),
    ) -> frozenset[str]:
        """The most of these heads (kind: names of its tensors) that one class has, tensor for tensor; a task's head, if
        there is one. `shapes` are those of the tasks' heads, where they are not what the names tell.

        An enhanced mask decoder's table of places has no class, nor has a CRF; the head is the same without it.
        """

        def fits(kind: str) -> bool:
            rows = self.rows(kind, config, decoder_layers)
            needed, known = {row.ours for row in rows if not row.optional}, {row.ours for row in rows}
            own = {name for name in heads[kind] if name in known or not name.startswith(BESIDE)}
            return needed <= own <= known and self._has(kind, shapes, config)

        fitting = {kind for kind in heads if kind in (*self.heads, *self.tasks) and fits(kind)}
        return next((kinds for kinds in self.classes if kinds <= fitting), frozenset())

    def rows(self, kind: str, config: EncoderConfig, number: int) -> tuple[Row, ...]:
        """A head's rows; the number is that of the decoder's layers, or of a task's outputs."""
        return self.tasks[kind].rows(config, number) if kind in self.tasks else self.heads[kind](config, number)

    def _has(self, kind: str, shapes: Mapping[str, HeadShape], config: EncoderConfig) -> bool:
        """Whether the class computes what a task's head of this shape does; dropout changes no answer."""
        if kind not in self.tasks or kind not in shapes:
            return True
        fields = Fields({**self.write(config), **self.tasks[kind].write(shapes[kind], config)}, "")
        try:
            back = self.tasks[kind].read(fields)
        except UnmaskError:
            return False
        return replace(back, dropout=0.0, input_dropout=0.0) == replace(shapes[kind], dropout=0.0, input_dropout=0.0)

    def full(self, name: str, architecture: str) -> str:
        """A name of ours-there as a class stores it."""
        usual = "" if architecture == self.classes[frozenset()] else self.prefix
        prefix = self.prefixes.get(architecture, usual)
        return name if name.startswith(self.outside) else prefix + name

    def canonical(self, name: str) -> str:
        """A stored name without the class's prefix, and as newer files spell it."""
        name = name.removeprefix(self.prefix) if self.prefix else name
        for old, new in self.old_names:
            if name.startswith(old):
                name = new + name.removeprefix(old)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            if name.endswith(old):
                name = name.removesuffix(old) + new
        return name


def task_classes(name: str, *kinds: str) -> dict[frozenset[str], str]:
    """The classes of a family for these tasks, or for all of them; before the others, since who has one wants to use it."""
    return {frozenset({kind}): name + TASK_CLASSES[kind] for kind in kinds or TASK_CLASSES}


def meaning(config: EncoderConfig) -> EncoderConfig:
    """The configuration with its zeros spelled out, and without settings that nothing depends on: equal for equal networks."""
    if isinstance(config.layer, Recurrent):
        return config  # whose zeros can only stay
    places, local = config.positions, any(config.window_of(layer) for layer in range(config.num_hidden_layers))
    if isinstance(places, Rope) and (not local or places.local_theta == places.theta):
        places = replace(places, local_theta=0.0)
    return replace(
        config,
        positions=places,
        head_size=config.key_size,
        num_hidden_groups=config.num_blocks,
        local_attention=config.local_attention if local else 0,
        global_attn_every_n_layers=config.global_attn_every_n_layers if local else 1,
        conv_act=config.conv_act if config.conv_kernel_size else EncoderConfig.conv_act,
    )
