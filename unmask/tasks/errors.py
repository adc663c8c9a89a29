"""How wrong an answer is: what error analysis sorts by."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

from unmask.labelled.records import QuestionExample, RankedExample, TaggedExample, TextExample
from unmask.measure.squad import match
from unmask.tasks.answer import Answered
from unmask.tasks.classify import Classified
from unmask.tasks.jobs import language_of
from unmask.tasks.rank import RankedTexts
from unmask.tasks.tag import Tagged


@singledispatch
def cost(prediction: Any, example: Any) -> float:
    """0 for a right answer, the more the worse."""
    raise AssertionError(f"no way to tell how wrong a {type(prediction).__name__} is")


@cost.register
def _(prediction: Classified, example: TextExample) -> float:
    """Nats the truth would have cost; for a number its distance."""
    truth = example.label
    if isinstance(truth, float | int):
        return abs(float(prediction.label) - truth)  # type: ignore[arg-type]
    if isinstance(truth, str):
        return 0.0 if prediction.label == truth else -math.log(max(prediction.scores[truth], 1e-300))
    named = set(truth or ())
    if set(prediction.label) == named:  # type: ignore[arg-type]
        return 0.0
    return -sum(math.log(max(s if name in named else 1 - s, 1e-300)) for name, s in prediction.scores.items())


@cost.register
def _(prediction: Tagged, example: TaggedExample) -> float:
    """How sure it is of the tags that are wrong, in nats."""
    rows = zip(prediction.tags, example.tags or (), prediction.confidence, strict=True)
    return sum(-math.log(max(1 - sure, 1e-12)) for said, truth, sure in rows if said != truth)


@cost.register
def _(prediction: Answered, example: QuestionExample) -> float:
    """What is missing of an F1 of 1."""
    truths = [answer.text for answer in example.answers or ()]
    return 1 - match(prediction.text, truths, impossible=not truths, language=language_of([example])).f1


@cost.register
def _(prediction: RankedTexts, example: RankedExample) -> float:
    """How many wrong texts stand before the first right one; none where no text is right."""
    right = (at for at, place in enumerate(prediction.places) if place < len(example.positives))
    return float(min(right, default=0))
