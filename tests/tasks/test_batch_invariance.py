"""An answer of any task, by a network of any family, depends on its record alone; and an evaluation looks at records once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from all_tasks import FAMILIES, TASKS, Model, model_of, records
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.config import Contrast
from unmask.epochs import token_budget
from unmask.measure.heldout import evaluate
from unmask.tasks import outputs
from unmask.tasks.answer import Answered
from unmask.tasks.classify import Classified
from unmask.tasks.rank import RankedTexts
from unmask.tasks.tag import Tagged

COUNT = 8  # of `records`


def said(model: Model, examples: Sequence[Any], tokens: int) -> list[tuple[object, Sequence[float]]]:
    """Of each record what a person reads, and the numbers beside it, from batches of so many tokens."""
    features = model.features(examples)
    with mock.patch.object(outputs, "TOKENS", tokens):
        found = model.job.outputs(model.encoder, model.member, features)
    if isinstance(model.job.task, Contrast):  # query and answer; which negatives follow depends on the other records
        first = np.searchsorted(features.sequences.example_N, np.arange(len(examples)))
        return [((), found["vectors"][at : at + 2].ravel().tolist()) for at in first]
    return [parts(one) for one in model.job.decide(found, model.member, features).predictions]


def parts(one: Any) -> tuple[object, Sequence[float]]:
    match one:
        case Classified(label=float(number)):
            return (), [number]
        case Classified():
            return one.label, list(one.scores.values())
        case Tagged():
            return (one.tags, [(e.label, e.begin, e.end) for e in one.spans]), one.confidence
        case Answered():
            return (one.text, one.begin, one.end), [one.score, one.no_answer_score, *(s.score for s in one.n_best)]
        case RankedTexts():
            return one.texts, one.scores
    raise AssertionError(one)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", TASKS)
def test_an_answer_depends_on_its_record_alone(task: str, family: str) -> None:
    """sentence-transformers#2312, #1839, #3197. Not on batch mates, their number, their order, nor what pads them."""
    model, examples = model_of(task, family), records(task)
    whole = said(model, examples, 4096)
    if (task, family) != ("vector, first", "gpt2"):  # whose first state has seen nothing of the text
        assert len({str(one) for one in whole}) > COUNT // 2, "the answers differ, so that a wrong one shows"

    @settings(max_examples=2, deadline=None, derandomize=True, database=None)
    @given(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=COUNT), st.sampled_from([1, 70, 4096]))
    def check(order: list[int], tokens: int) -> None:
        for at, (words, numbers) in zip(order, said(model, [examples[at] for at in order], tokens), strict=True):
            assert words == whole[at][0]
            np.testing.assert_allclose(numbers, whole[at][1], atol=1e-5, rtol=1e-5)

    check()


@pytest.mark.parametrize("tokens", [70, 4096])
@pytest.mark.parametrize("task", TASKS)
def test_losses_and_scores_come_of_one_pass_and_are_those_of_two(task: str, tokens: int) -> None:
    model = model_of(task, "bert")
    features, seen = model.features(records(task)), []
    with mock.patch.object(outputs, "TOKENS", tokens):
        batches = token_budget(features.sequences, tokens, whole_units=True)
        losses = evaluate(model.encoder, model.objective, [model.objective.prepare(b, 0) for b in batches])
        apart = model.job.answer(model.encoder, model.member, features)
        hook = model.encoder.embeddings.register_forward_hook(lambda *call: seen.append(len(call[2])))
        together, figures = model.job.judge(model.encoder, model.objective, features)
        hook.remove()
    assert sum(seen) == len(features.sequences.ids_T)
    assert figures == losses and np.isfinite(figures["loss"])
    assert together.metrics == pytest.approx(apart.metrics, rel=1e-5, abs=1e-5, nan_ok=True)
    assert [parts(one)[0] for one in together.predictions] == [parts(one)[0] for one in apart.predictions]


def test_predicting_is_told_of_before_the_first_batch_is_done() -> None:
    model, told = model_of("one label", "bert"), list[float]()
    features = model.features(records("one label"))
    model.job.answer(model.encoder, model.member, features, progress=lambda what, done, total: told.append(done))
    assert told[0] == 0 and told[-1] == len(features.sequences)
