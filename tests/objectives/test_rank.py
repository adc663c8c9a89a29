"""Cross-encoder losses against values worked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_retrieval import CONFIG, ToyTexts, example, topic_examples

from unmask.batch import PackedBatch
from unmask.config import Ranking
from unmask.config.tasks import HeadShape
from unmask.epochs import pack
from unmask.labelled.records import RankedExample
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.base import Joint, combine
from unmask.objectives.rank import RankObjective
from unmask.tasks.rank import decode, score, sequences

LISTWISE, POINTWISE = Ranking(loss="listwise"), Ranking(loss="pointwise")


def batch_of(examples: Sequence[RankedExample], task: Ranking = POINTWISE) -> PackedBatch:
    made, _ = sequences(examples, ToyTexts(), task)  # type: ignore[arg-type]
    return pack(made, np.arange(len(made)))


class Fixed(RankObjective):
    """Whose scores are given, in the order of the sequences."""

    def __init__(self, task: Ranking, scores: Sequence[float]):
        super().__init__(CONFIG, task, HeadShape())
        self.fixed = torch.tensor(scores)

    def _scores(self, layers: Sequence[Tensor], batch: PackedBatch) -> Tensor:
        return self.fixed[batch.examples]


def loss_of(task: Ranking, scores: Sequence[float], examples: Sequence[RankedExample]) -> tuple[float, int, Any]:
    objective = Fixed(task, scores).eval()
    batch = batch_of(examples, task)
    found = objective.loss(Encoder(CONFIG), [], batch)["rank"]
    assert objective.counts(batch) == {"rank": found.count}
    return float(found.total), found.count, int(found.correct)


def test_a_listwise_loss_is_made_of_raw_scores() -> None:
    """sentence-transformers#3518: a sigmoid first would make 9, 8.9 and -5 nearly equal."""
    found = loss_of(LISTWISE, [9.0, 8.9, -5.0], [example("q1", ["d1"], ["d2", "d3"])])
    assert found == (pytest.approx(math.log(1 + math.exp(-0.1) + math.exp(-14)), abs=1e-4), 1, 1)
    assert found[0] == pytest.approx(0.6444, abs=1e-4)


def test_listwise_by_hand_with_several_answers_and_queries_of_several_sizes() -> None:
    examples = [example("q1 a b", ["d1", "d2"], ["d3"]), example("q2", ["d4 one two"], ["d5"])]
    first = -0.5 * (1.0 + 2.0) + math.log(math.exp(1) + math.exp(2) + math.exp(3))
    second = math.log(1 + math.exp(-2.0))
    found = loss_of(LISTWISE, [1.0, 2.0, 3.0, 0.5, -1.5], examples)
    assert found == (pytest.approx(first + second, rel=1e-5), 2, 1)


def test_pointwise_by_hand_with_graded_values() -> None:
    examples = [example("q1", ["d1"], ["d2"], (0.75, 0.0)), example("q2", ["d4"], [], (1.0,))]
    wanted = (
        0.75 * math.log(1 + math.exp(-2)) + 0.25 * math.log(1 + math.exp(2)) + math.log(2) + math.log(1 + math.exp(30))
    )
    assert loss_of(POINTWISE, [2.0, 0.0, -30.0], examples) == (pytest.approx(wanted, rel=1e-5), 3, 2)


def network(task: Ranking, shape: HeadShape = HeadShape()) -> tuple[Encoder, RankObjective]:  # noqa: B008
    encoder, objective = Encoder(CONFIG), RankObjective(CONFIG, task, shape)
    for part in (encoder, objective):
        initialise(part, replace(CONFIG, initializer_range=0.3), torch.Generator().manual_seed(0))
    return encoder, objective


@pytest.mark.parametrize("loss", ["listwise", "pointwise"])
def test_micro_batches_give_the_gradient_of_the_whole_batch(loss: Literal["listwise", "pointwise"]) -> None:
    """A query stays whole in any batch."""
    examples = topic_examples(6, negatives=2) + [example("q1", ["d1", "d2"], ["d3"])]
    encoder, objective = network(Ranking(loss=loss))
    found = []
    for parts in ([examples], [examples[:2], examples[2:3], examples[3:]]):
        encoder.zero_grad()
        batches = [batch_of(part, objective.task) for part in parts]
        count = sum(objective.counts(batch)["rank"] for batch in batches)
        whole = Joint({"rank": objective})
        for batch in batches:
            combine(whole(encoder, whole.with_reads(batch)), {"rank": count}).backward()
        found.append(torch.cat([p.grad.flatten() for p in encoder.parameters() if p.grad is not None]))
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 1e-6


@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
def test_scores_do_not_depend_on_the_batch(pooling: Any) -> None:
    encoder, objective = network(POINTWISE, HeadShape(pooling=pooling))
    encoder.eval()
    objective.eval()
    made, _ = sequences(topic_examples(8, negatives=2), ToyTexts(), POINTWISE)  # type: ignore[arg-type]
    with torch.inference_mode():
        batch = pack(made, np.arange(len(made)))
        together = objective.predict(encoder, batch)["score"]
        for place, number in enumerate(batch.examples.tolist()):
            alone = objective.predict(encoder, pack(made, np.array([number])))["score"]
            assert abs(float(alone - together[place])) < 1e-5


@pytest.mark.parametrize("loss", ["listwise", "pointwise"])
def test_a_tiny_model_learns_toy_ranking(loss: Literal["listwise", "pointwise"]) -> None:
    task, config = Ranking(loss=loss), replace(CONFIG, initializer_range=0.2)
    encoder, objective = Encoder(config), RankObjective(config, task, HeadShape())
    for part in (encoder, objective):
        initialise(part, config, torch.Generator().manual_seed(0))
    made, _ = sequences(topic_examples(512, topics=4, fillers=1), ToyTexts(), task)  # type: ignore[arg-type]
    parameters = [*encoder.parameters(), *objective.parameters()]
    optimizer = torch.optim.AdamW(parameters, 3e-3)
    for step in range(60):
        first = 64 * (step % 16)
        batch = pack(made, np.arange(first, first + 64))
        loss_ = combine(objective(encoder, batch), objective.counts(batch))
        optimizer.zero_grad()
        loss_.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    dev = topic_examples(32, seed=1, negatives=3, topics=4, fillers=1)
    held_out, _ = sequences(dev, ToyTexts(), task)  # type: ignore[arg-type]
    batch, scores = pack(held_out, np.arange(len(held_out))), np.zeros(len(held_out), np.float32)
    with torch.inference_mode():
        scores[batch.examples] = objective.eval().predict(encoder.eval(), batch)["score"].numpy()
    assert score(decode(scores, dev), dev)["mrr@10"] > 0.85
