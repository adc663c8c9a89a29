"""Where a run is: all that a checkpoint holds besides weights and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unmask.loader import Cursor


@dataclass(frozen=True)
class Border:
    """Where the phase that is being trained began; the run's own start for the first."""

    phase: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass
class State:
    """Everything that a step changes and that is no tensor. Data order, masks and learning rate are functions of it."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cursor: Cursor = field(default_factory=Cursor)
    sums: dict[str, list[float]] = field(default_factory=dict)  # losses since the last record: [total, count]
    padding: list[float] = field(default_factory=lambda: [0.0, 0])  # since the last record: [sum of shares, batches]
    began: Border = Border()

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> State:
        """From the plain data of `dataclasses.asdict`; other keys are left alone."""
        return cls(
            saved["step"],
            saved["tokens"],
            saved["seconds"],
            Cursor(**saved["cursor"]),
            dict(saved["sums"]),
            saved["padding"],
            Border(**saved["began"]),
        )

    def next_phase(self) -> State:
        """At the start of the phase after this one: the data goes on with an epoch, and so with an order, not begun yet."""
        begun = (self.cursor.pool, self.cursor.batch) != (0, 0)
        here = Border(self.began.phase + 1, self.step, self.tokens, self.seconds)
        return State(self.step, self.tokens, self.seconds, Cursor(self.cursor.epoch + begun), began=here)


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def set_random_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Puts back what `random_state` gave; a run that moves to a GPU begins that generator anew."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
