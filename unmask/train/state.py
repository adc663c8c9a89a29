"""Where a run is: all that a checkpoint holds besides weights and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
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
    sums: dict[str, list[Any]] = field(default_factory=dict)  # losses since the last record: [total, count]
    padding: list[float] = field(default_factory=lambda: [0.0, 0])  # since the last record: [sum of shares, batches]
    began: Border = Border()
    best: float | None = None  # of the evaluations so far in this phase, the lower the better
    worse: int = 0  # evaluations since that one

    def note(self, aim: float) -> None:
        """Takes in an evaluation."""
        better = self.best is None or aim < self.best
        self.best, self.worse = (aim, 0) if better else (self.best, self.worse + 1)

    def add(self, sums: Mapping[str, tuple[Tensor, int]]) -> None:
        """Adds the losses of a step; the totals stay on their device until somebody asks for `losses`."""
        for name, (total, count) in sums.items():
            before = self.sums.get(name, [0.0, 0])
            self.sums[name] = [before[0] + total, before[1] + count]

    def losses(self) -> dict[str, list[float]]:
        """Total and count of each loss since the last record, as numbers; on a GPU this waits for it."""
        return {name: [float(total), count] for name, (total, count) in self.sums.items()}

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it, for `of`."""
        return asdict(replace(self, sums=self.losses()))

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> State:
        """From what `plain` gave; other keys are left alone."""
        return cls(
            saved["step"],
            saved["tokens"],
            saved["seconds"],
            Cursor(**saved["cursor"]),
            dict(saved["sums"]),
            saved["padding"],
            Border(**saved["began"]),
            saved.get("best"),
            saved.get("worse", 0),
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
