"""From the settings of a run to the objective that is trained."""

from __future__ import annotations

from collections.abc import Sequence

from unmask.config import EncoderConfig, MaskedTokens, Objectives, SentencePair
from unmask.objectives.base import Joint, Objective
from unmask.objectives.masked import MaskedTokenObjective
from unmask.objectives.pair import SentencePairObjective
from unmask.text.vocabulary import Vocabulary


def build_objective(config: EncoderConfig, goals: Sequence[Objectives], vocabulary: Vocabulary) -> Joint:
    """Each goal's objective under its kind ("mlm", "nsp"), trained together."""
    parts: dict[str, Objective] = {}
    for goal in goals:
        match goal:
            case MaskedTokens():
                parts[goal.kind] = MaskedTokenObjective(config, goal, vocabulary)
            case SentencePair():
                parts[goal.kind] = SentencePairObjective(config)
    return Joint(parts)
