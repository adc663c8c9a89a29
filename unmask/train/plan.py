"""How long a run is. Minutes become steps, by measuring this machine, and every such decision is recorded, so that a resumed
run takes the same steps at the same learning rates as one that was never interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unmask.config import Minutes, Steps, Tokens


@dataclass(frozen=True)
class Leg:
    """From `step` on, the run ends after `total_steps`."""

    step: int
    total_steps: int
    reason: str = ""
    evaluations: int = 0  # of the whole run, where the first leg had to choose fewer than were asked for


@dataclass(frozen=True)
class Plan:
    """The legs decided so far. Progress is continuous over them: a new leg only changes how fast the rest goes by."""

    until: Steps | Tokens | Minutes
    legs: tuple[Leg, ...] = ()
    tokens_per_step: int = 1  # about; only estimates use it

    def progress(self, step: int, tokens: int) -> float:
        """Share of the run that is done after `step` steps and `tokens` tokens: 0 … 1."""
        match self.until:
            case Steps(steps=steps):
                return min(1.0, step / steps)
            case Tokens(tokens=wanted):
                return min(1.0, tokens / wanted)
            case Minutes():
                return self._over_legs(step)

    def _over_legs(self, step: int) -> float:
        done = 0.0
        ends = [leg.step for leg in self.legs[1:]] + [self.legs[-1].total_steps]
        for leg, end in zip(self.legs, ends, strict=True):
            here = min(step, end) - leg.step
            done += (1 - done) * max(0, here) / max(1, leg.total_steps - leg.step)
        return 1.0 if step >= self.legs[-1].total_steps else min(done, 1.0)

    def total_steps(self, step: int, tokens: int) -> int:
        """Steps of the whole run, as far as it can be told now (for a display)."""
        match self.until:
            case Steps(steps=steps):
                return steps
            case Minutes():
                return self.legs[-1].total_steps
            case Tokens(tokens=wanted):
                return max(step, round(step * wanted / tokens)) if tokens else self.first_estimate()

    def first_estimate(self) -> int:
        """Steps of the whole run as it looked at the start: the same number before and after any resume."""
        match self.until:
            case Steps(steps=steps):
                return steps
            case Minutes():
                return self.legs[0].total_steps
            case Tokens(tokens=wanted):
                return max(1, wanted // self.tokens_per_step)

    def with_leg(self, leg: Leg) -> Plan:
        """The plan with one more decision."""
        return replace(self, legs=(*self.legs, leg))


def steps_left(seconds_left: float, seconds_per_step: float) -> int:
    """How many steps fit; at least one, so that a run always ends by a step."""
    return max(1, int(seconds_left / max(1e-9, seconds_per_step)))
