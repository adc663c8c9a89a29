"""The phases of a run, each as settings of its own: what goes on is the network and its optimizer, what may change is the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unmask import settings
from unmask.config import MaskedTokens, Minutes, Phase, ReplacedTokens, RunConfig, Steps, Tokens
from unmask.errors import UnmaskError

# What one run has once, and the only settings of an encoder that have a meaning for weights trained under others.
FIXED = ("corpus", "start_from", "embeddings_from", "seed", "machine", "until", "phases")
MOVABLE = ("positions", "max_position_embeddings", "local_attention", "global_attn_every_n_layers")


def phases_of(run: RunConfig) -> tuple[RunConfig, ...]:
    """The settings of each phase, the first being the run's own; each later one changes those of the phase before.

    Raises UnmaskError naming the phase and the setting for what can't change between phases, and for a mask rate that
    depends on a length nobody knows beforehand.
    """
    parts = [replace(run, phases=())]
    for number, phase in enumerate(run.phases, 2):
        parts.append(_after(parts[-1], phase, f"phase {number}"))
    for number, part in enumerate(parts, 1):
        _require_known_length(part, f"phase {number}" if run.phases else "until")
    return tuple(parts)


def require_same_shapes(run: RunConfig, shapes: Sequence[dict[str, tuple[int, ...]]]) -> None:
    """UnmaskError for the first phase whose tensors (name: shape) are not those of the first."""
    for number, (phase, here) in enumerate(zip(run.phases, shapes[1:], strict=True), 2):
        differing = [name for name in {**shapes[0], **here} if shapes[0].get(name) != here.get(name)]
        if differing:
            raise UnmaskError(
                f"phase {number} would change the weights' shape ({differing[0]}), but they go on from phase to phase",
                where=f"phase {number}: {', '.join(phase.changes)}",
                do="leave out the change that needs other weights; only a network without a table of absolute places can "
                "read more of them",
            )


def batches_of(run: RunConfig) -> int:
    """How many batches the phase with these settings takes, about; 0 where only the machine can tell."""
    match run.until:
        case Steps(steps=steps):
            return steps * run.batch.accumulate
        case Tokens(tokens=tokens):
            return max(1, round(tokens / run.batch.tokens))
        case Minutes():
            return 0


def _after(before: RunConfig, phase: Phase, where: str) -> RunConfig:
    for change in phase.changes:
        _require_movable(change, where)
    asked = f"{where}: {', '.join(phase.changes)}"
    try:
        new = replace(settings.override(RunConfig, before, phase.changes), until=phase.until)
    except UnmaskError as error:
        raise UnmaskError(error.what, where=asked, do=error.do) from None
    if new.optimizer.kind != before.optimizer.kind:  # a field that only another one has chooses that one
        raise UnmaskError(
            f"optimizer.kind can't change between the phases of a run, from {before.optimizer.kind} to {new.optimizer.kind}",
            where=asked,
            do="leave it out",
        )
    return new


def _require_movable(change: str, where: str) -> None:
    name = change.partition("=")[0].strip()
    head, _, rest = name.partition(".")
    if head not in FIXED and (head != "encoder" or rest.partition(".")[0] in MOVABLE):
        return
    advice = f"of the encoder only {', '.join(MOVABLE)} can" if head == "encoder" else "leave it out"
    if head == "until":
        advice = "give the phase its own `until` instead"
    raise UnmaskError(f"{name} can't change between the phases of a run", where=f"{where}: {change}", do=advice)


def _require_known_length(run: RunConfig, where: str) -> None:
    goals = [goal.masking if isinstance(goal, ReplacedTokens) else goal for goal in run.objectives]
    if isinstance(run.until, Minutes) and any(isinstance(g, MaskedTokens) and g.final_mask_rate for g in goals):
        raise UnmaskError(
            "a final_mask_rate needs to know how long the run is, which minutes do not say beforehand",
            where=where,
            do="count the run in steps or tokens, or leave the mask rate as it is",
        )
