"""From the settings of a run to the objective that is trained."""

from __future__ import annotations

from collections.abc import Sequence

from unmask.config import (
    BidirectionalWords,
    EncoderConfig,
    Infill,
    MaskedTokens,
    NextTokens,
    Objectives,
    ReplacedTokens,
    SentenceOrder,
    SentencePair,
    SpanBoundary,
)
from unmask.objectives.base import Joint, Objective
from unmask.objectives.bilm import BidirectionalWordObjective
from unmask.objectives.boundary import SpanBoundaryObjective
from unmask.objectives.infill import InfillObjective
from unmask.objectives.masked import MaskedTokenObjective
from unmask.objectives.next import NextTokenObjective
from unmask.objectives.pair import SentencePairObjective
from unmask.objectives.replaced import ReplacedTokenObjective
from unmask.text.vocabulary import Vocabulary


def build_objective(config: EncoderConfig, goals: Sequence[Objectives], vocabulary: Vocabulary) -> Joint:
    """Each goal's objective under its kind ("mlm", "nsp"), trained together.

    Masking comes before what reads its targets, the span boundaries.
    """
    ordered = sorted(goals, key=lambda goal: isinstance(goal, SpanBoundary))
    return Joint({goal.kind: _build(config, goal, vocabulary) for goal in ordered})


def _build(config: EncoderConfig, goal: Objectives, vocabulary: Vocabulary) -> Objective:
    match goal:
        case MaskedTokens():
            return MaskedTokenObjective(config, goal, vocabulary)
        case SpanBoundary():
            return SpanBoundaryObjective(config, goal)
        case SentencePair() | SentenceOrder():
            return SentencePairObjective(config, goal.kind)
        case ReplacedTokens():
            return ReplacedTokenObjective(config, goal, vocabulary)
        case NextTokens():
            return NextTokenObjective(config)
        case Infill():
            return InfillObjective(config, goal, vocabulary)
        case BidirectionalWords():
            return BidirectionalWordObjective(config, goal, vocabulary)
