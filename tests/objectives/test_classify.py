"""One answer for a whole sequence: losses by hand, and no influence of batch mates."""

from __future__ import annotations

import pytest
import torch
from small_models import SMALL

from unmask.batch import PackedBatch, Targets
from unmask.config import Classification, Regression
from unmask.config.tasks import HeadShape
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.classify import ClassifyObjective

ROWS = [[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 11, 12, 3]]
FIRST, MEAN = HeadShape(pooling="first", act="tanh", normed=False), HeadShape(pooling="mean", act="gelu", normed=True)


def labelled(value: torch.Tensor) -> PackedBatch:
    batch = PackedBatch.pack(ROWS)
    return batch.with_(labels={"label": Targets(batch.starts[:-1].long(), value)})


def made(task: Classification | Regression, shape: HeadShape = FIRST, weights: list[float] | None = None):  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    return Encoder(SMALL).eval(), ClassifyObjective(SMALL, task, shape, weights).eval()


@pytest.mark.parametrize("shape", [FIRST, MEAN], ids=["first", "mean"])
def test_the_loss_of_one_label_is_a_weighted_cross_entropy(shape: HeadShape) -> None:
    weights = [0.5, 2.0, 1.0]
    encoder, objective = made(Classification(labels=("a", "b", "c")), shape, weights)
    batch = labelled(torch.tensor([0, 2, 1]))
    logits = objective.predict(encoder, batch)["logits"]
    found = objective(encoder, batch)["classify"]
    expected = sum(-weights[c] * logits[row].log_softmax(-1)[c] for row, c in enumerate([0, 2, 1]))
    torch.testing.assert_close(found.total, expected)
    assert found.count == 3 == objective.counts(batch)["classify"]
    assert int(found.correct) == int((logits.argmax(-1) == torch.tensor([0, 2, 1])).sum())


def test_several_labels_are_a_yes_or_no_each_and_none_is_allowed() -> None:
    encoder, objective = made(Classification(labels=("a", "b"), multi_label=True))
    value = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    batch = labelled(value)
    logits = objective.predict(encoder, batch)["logits"]
    found = objective(encoder, batch)["classify"]
    p = logits.sigmoid()
    torch.testing.assert_close(found.total, -(value * p.log() + (1 - value) * (1 - p).log()).sum())
    assert found.count == 6


def test_a_number_is_learned_by_squared_error() -> None:
    encoder, objective = made(Regression())
    batch = labelled(torch.tensor([0.5, -1.0, 4.0]))
    said = objective.predict(encoder, batch)["logits"].squeeze(-1)
    found = objective(encoder, batch)["regress"]
    torch.testing.assert_close(found.total, ((said - torch.tensor([0.5, -1.0, 4.0])) ** 2).sum())


@pytest.mark.parametrize("shape", [FIRST, MEAN], ids=["first", "mean"])
def test_an_answer_does_not_depend_on_batch_mates_nor_on_reading_few_tokens(shape: HeadShape) -> None:
    encoder, objective = made(Classification(labels=("a", "b", "c")), shape)
    together = objective.predict(encoder, PackedBatch.pack(ROWS))["logits"]
    for row, ids in enumerate(ROWS):
        alone = objective.predict(encoder, PackedBatch.pack([ids]))["logits"][0]
        torch.testing.assert_close(together[row], alone, atol=1e-5, rtol=1e-5)
    whole = objective.head(encoder(PackedBatch.pack(ROWS)), PackedBatch.pack(ROWS))
    torch.testing.assert_close(together, whole, atol=1e-5, rtol=1e-5)


def test_training_through_few_read_tokens_gives_the_whole_gradient() -> None:
    encoder, objective = made(Classification(labels=("a", "b", "c")))
    batch = labelled(torch.tensor([0, 2, 1]))
    gradients = []
    for prepared in (batch, Joint({"classify": objective}).with_reads(batch)):
        encoder.zero_grad()
        objective(encoder, prepared)["classify"].total.backward()
        gradients.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
