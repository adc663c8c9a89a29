"""The shape of every tensor on the way through a network, measured: the network runs on torch's meta device, where tensors
have shapes and no numbers, so that one of any size takes neither memory nor time.

Legend: B sequences, S longest sequence, T tokens, L layers, H hidden_size, E width of the tables, A attention heads, K width
of a head, F intermediate_size, V vocab_size, P rows of the position table, R relative places, M scored places of a head, Q
width of SBO's places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unmask.batch import PackedBatch
from unmask.explanation.result import Stage
from unmask.explanation.steps import FUNCTIONS, Call, Network, steps_in
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead
from unmask.nn.kernels.vocabulary import Logits
from unmask.objectives.base import Joint
from unmask.objectives.boundary import SpanBoundaryObjective
from unmask.objectives.infill import InfillObjective
from unmask.objectives.replaced import ReplacedTokenObjective

META = torch.device("meta")


def shapes_of(encoder: Encoder, objective: Joint, batch: PackedBatch) -> tuple[Stage, ...]:
    """The stages of a training step's forward pass, in order; `encoder` and `objective` lie on the meta device.

    Layers are alike, so the first one stands for all.
    """
    calls, layers = _watched(encoder, objective, batch)
    stages = steps_in(calls, _networks(encoder, objective))
    name = "hidden states: embeddings and every layer"
    letters = ("L+1", "T", "H"), ("L+1", "B", "S", "H")
    every = Stage("encoder", name, *letters, (len(layers), *layers[-1].shape))
    place = 1 + max(number for number, stage in enumerate(stages) if stage.part.startswith("encoder"))
    return (*stages[:place], every, *stages[place:])


def sizes_of(encoder: Encoder, objective: Joint, batch: PackedBatch) -> dict[str, int]:
    """What the letters stand for. M is each head's own, and R as many as the sequences are long."""
    config = encoder.config
    found = {"B": batch.num_sequences, "S": batch.layout.longest, "T": len(batch.input_ids)}
    found |= {"L": config.num_hidden_layers, "V": config.vocab_size}
    if batch.decoder is not None:
        found |= {"T'": len(batch.decoder.input_ids), "S'": batch.decoder.layout.longest}
    if config.position_rows:
        found["P"] = config.position_rows
    for part in objective.members().values():
        if isinstance(part, SpanBoundaryObjective):
            found["Q"] = part.goal.position_size
    for network in _networks(encoder, objective).values():
        c = network.config
        if c.embedding_size:
            found["E"] = c.embedding_size
        own = {"H": c.hidden_size, "A": c.num_attention_heads, "K": c.key_size, "F": c.intermediate_size}
        found |= {letter + network.mark: size for letter, size in own.items()}
    return found


def _networks(encoder: Encoder, objective: Joint) -> dict[str, Network]:
    """The stacks of layers by the beginning of their paths."""
    config = encoder.config
    found = {"encoder.": Network("encoder", config, config.num_hidden_layers)}
    for kind, part in objective.members().items():
        if isinstance(part, ReplacedTokenObjective):
            own = part.generator.config
            found[f"objective.parts.{kind}.generator."] = Network("generator", own, own.num_hidden_layers, mark="_g")
        if isinstance(part, InfillObjective):
            layers = len(part.head.decoder.blocks)
            found[f"objective.parts.{kind}.head.decoder."] = Network("decoder", config, layers, prime="'")
    return found


def _watched(encoder: Encoder, objective: Joint, batch: PackedBatch) -> tuple[list[Call], list[Tensor]]:
    watch = _Watch()
    batch.layout  # noqa: B018 made on the CPU before it moves
    there = _moved(batch)
    with ExitStack() as stack:
        for root, module in (("encoder", encoder), ("objective", objective)):
            for name, part in module.named_modules():
                stack.enter_context(_named(part, f"{root}.{name}", watch))
        stack.enter_context(torch.no_grad())
        stack.enter_context(watch)
        filled, _ = objective.begin(encoder, there)
        layers = encoder.layers(filled, *objective.tables())
        objective.loss(encoder, layers, filled)
    return watch.calls, layers


def _moved(batch: PackedBatch) -> PackedBatch:
    if batch.decoder is not None:
        batch.decoder.layout  # noqa: B018 the same
    return batch.to(META)


class _Watch(TorchFunctionMode):
    """Notes the calls of torch that are steps, and the module each was made in."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.stack: list[str] = []
        self.visits: Counter[str] = Counter()
        super().__init__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in FUNCTIONS and self.stack:
            given = tuple(tuple(x.shape) for x in args if isinstance(x, Tensor))
            path = self.stack[-1]
            self.calls.append(Call(path, self.visits[path], name, given, tuple(out.shape)))
        return out


@contextmanager
def _named(module: nn.Module, path: str, watch: _Watch) -> Iterator[None]:
    """While the module runs, its path is on the watch's stack."""

    def enter(module: nn.Module, given: Any) -> None:
        watch.stack.append(path)
        watch.visits[path] += 1

    def leave(module: nn.Module, given: Any, out: Any) -> None:
        if isinstance(out, Logits) and not any(isinstance(part, TokenHead) for part in list(module.modules())[1:]):
            out.dense()  # a head's last step
        watch.stack.pop()

    handles = module.register_forward_pre_hook(enter), module.register_forward_hook(leave)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
