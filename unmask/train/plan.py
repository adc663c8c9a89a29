"""How long a run, or a phase of one, is. Minutes become steps, by measuring this machine, and every such decision is recorded,
so that a resumed run takes the same steps at the same learning rates as one that was never interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unmask.config import Minutes, Steps, Tokens


@dataclass(frozen=True)
class Leg:
    """From `step` on, the phase ends after `total_steps` of the run."""

    step: int
    total_steps: int
    reason: str = ""
    evaluations: int = 0  # of the whole phase, where its first leg had to choose fewer than were asked for
    phase: int = 0


@dataclass(frozen=True)
class Plan:
    """The legs decided so far. Progress is continuous over them: a new leg only changes how fast the rest goes by.

    Steps and tokens are the run's; `until` counts from `first_step` and `first_tokens`, where the phase began.
    """

    until: Steps | Tokens | Minutes
    legs: tuple[Leg, ...] = ()
    tokens_per_step: int = 1  # about; only estimates use it
    first_step: int = 0
    first_tokens: int = 0

    def progress(self, step: int, tokens: int) -> float:
        """Share of the phase that is done after `step` steps and `tokens` tokens of the run: 0 … 1."""
        match self.until:
            case Steps(steps=steps):
                return min(1.0, (step - self.first_step) / steps)
            case Tokens(tokens=wanted):
                return min(1.0, (tokens - self.first_tokens) / wanted)
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
        """Steps of the run when the phase is over, as far as it can be told now (for a display)."""
        match self.until:
            case Steps(steps=steps):
                return self.first_step + steps
            case Minutes():
                return self.legs[-1].total_steps
            case Tokens(tokens=wanted):
                done, read = step - self.first_step, tokens - self.first_tokens
                return self.first_step + (max(done, round(done * wanted / read)) if read else self.first_estimate())

    def first_estimate(self) -> int:
        """Steps of the phase as it looked at its start: the same number before and after any resume."""
        match self.until:
            case Minutes():
                return self.legs[0].total_steps - self.first_step
            case _:
                return known_steps(self.until, self.tokens_per_step)

    def with_leg(self, leg: Leg) -> Plan:
        """The plan with one more decision."""
        return replace(self, legs=(*self.legs, leg))


def known_steps(until: Steps | Tokens | Minutes, tokens_per_step: int) -> int:
    """About how many steps that is; 0 for minutes, which only the machine can tell."""
    match until:
        case Steps(steps=steps):
            return steps
        case Tokens(tokens=wanted):
            return max(1, wanted // tokens_per_step)
        case Minutes():
            return 0


def steps_left(seconds_left: float, seconds_per_step: float) -> int:
    """How many steps fit; at least one, so that a run always ends by a step."""
    return max(1, int(seconds_left / max(1e-9, seconds_per_step)))
