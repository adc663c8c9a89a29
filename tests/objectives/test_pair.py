"""NSP and SOP: one question about two kinds of negatives, each under its own name."""

from __future__ import annotations

from itertools import islice
from typing import Literal

import pytest
import torch
from made_up import VOCABULARY, MadeUpSource, random_documents
from small_goals import CONFIG, model, prepared, rows_of

from unmask.batch import PackedBatch, Targets
from unmask.config import Pairs
from unmask.loader import Batches, Cursor
from unmask.nn.encoder import Encoder
from unmask.objectives.pair import DOES_NOT, FOLLOWS, SentencePairObjective

Name = Literal["nsp", "sop"]
NAMES: tuple[Name, ...] = ("nsp", "sop")


@pytest.mark.parametrize("name", NAMES)
def test_B023_turning_a_pair_label_moves_the_loss_the_right_way(name: Name) -> None:
    encoder, objective = Encoder(CONFIG), SentencePairObjective(CONFIG, name)
    with torch.no_grad():
        objective.head.out.weight.zero_()
        objective.head.out.bias.copy_(torch.tensor([3.0, 0.0]))  # this head says "B follows A"
    batch = PackedBatch.pack([[2, 7, 8, 3]])
    for label, sure in ((FOLLOWS, True), (DOES_NOT, False)):
        pair = Targets(torch.tensor([0]), torch.tensor([label]))
        found = objective(encoder, batch.with_(labels={"pair": pair}))
        assert (float(found[name].total.detach()) < 0.1) is sure


@pytest.mark.parametrize("name", NAMES)
def test_only_labelled_sequences_are_scored_and_only_their_first_token_is_read(name: Name) -> None:
    encoder, objective = Encoder(CONFIG), SentencePairObjective(CONFIG, name)
    pair = Targets(torch.tensor([0, 2]), torch.tensor([0, 1]))
    batch = PackedBatch.pack([[2, 7, 3], [2, 8, 9, 3], [2, 5, 3]]).with_(labels={"pair": pair})
    hidden = encoder(batch).detach().requires_grad_()
    found = objective.loss(encoder, [hidden], batch)[name]
    found.total.backward()
    assert found.count == 2 and objective.counts(batch) == {name: 2}
    assert hidden.grad is not None and hidden.grad.any(1).nonzero().flatten().tolist() == [0, 7]
    logits = objective.head(hidden[[0, 7]])
    expected = -logits.log_softmax(-1)[[0, 1], [0, 1]].sum()
    torch.testing.assert_close(found.total, expected)


@pytest.mark.parametrize(("name", "negatives"), [("nsp", "random"), ("sop", "swapped")])
def test_the_loaders_pairs_are_what_is_scored(name: Name, negatives: Literal["random", "swapped"]) -> None:
    objective = SentencePairObjective(CONFIG, name)
    source = MadeUpSource(random_documents(100))
    batches = Batches(source, Pairs(max_length=64, negatives=negatives), VOCABULARY, objective.prepare, 3, 512)
    labels = []
    for batch, _ in islice(batches.since(Cursor()), 20):
        labels += batch.labels["pair"].value.tolist()
        assert objective(Encoder(CONFIG), batch)[name].count == objective.counts(batch)[name] > 0
    assert 0.3 < sum(labels) / len(labels) < 0.7


def test_learns_to_tell_swapped_from_ordered() -> None:
    """A comes before B in the ids, or after it: a few steps suffice."""
    encoder, joint = model("albert", std=0.1)
    sop = joint.members()["sop"]
    optimizer = torch.optim.AdamW([*encoder.parameters(), *sop.parameters()], 4e-3)
    rows, last = rows_of(16, low=6, high=7), []
    for _ in range(60):
        batch = prepared(joint, rows)
        ids = batch.input_ids.view(16, 8).clone()
        ids[:, 1:7] = torch.where(torch.arange(16)[:, None] % 2 == 0, 10, 40)  # what the labels alternate with
        found = sop(encoder, batch.with_(input_ids=ids.flatten()))["sop"]
        optimizer.zero_grad()
        (found.total / found.count).backward()
        optimizer.step()
        last.append(float(found.total.detach()) / found.count)
    assert sum(last[-5:]) / 5 < 0.2
