"""SBO: which targets it takes and from which tokens it predicts them, by hand and against a slow literal reading."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import VOCABULARY
from small_goals import CONFIG, model, prepared, rows_of
from small_models import randomise

from unmask.batch import PackedBatch, Targets
from unmask.config import MaskedTokens, SpanBoundary
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.boundary import SpanBoundaryObjective
from unmask.objectives.masked import MaskedTokenObjective

GOAL = SpanBoundary(position_size=6, max_targets=3)


def with_targets(lengths: list[int], where: list[int]) -> PackedBatch:
    """Sequences of these lengths in which every token is its own number, and MLM chose `where`."""
    total = sum(lengths)
    ids = iter(range(total))
    batch = PackedBatch.pack([[next(ids) for _ in range(n)] for n in lengths])
    targets = torch.tensor(where, dtype=torch.long)
    return batch.with_(labels={"mlm": Targets(targets, targets + 100)})


def taken(lengths: list[int], where: list[int]) -> list[tuple[int, int, int, int]]:
    """(token, its id, left edge, right edge) of each target that SBO takes."""
    batch = SpanBoundaryObjective(CONFIG, GOAL).prepare(with_targets(lengths, where), 0)
    sbo, edges = batch.labels["sbo"], batch.labels["sbo_edges"]
    return list(zip(*(x.tolist() for x in (*sbo, *edges)), strict=True))


def test_targets_are_predicted_from_the_tokens_outside_their_span() -> None:
    #   tokens 0 1 [2 3] 4 [5] 6 7
    assert taken([8], [2, 3, 5]) == [(2, 102, 1, 4), (3, 103, 1, 4), (5, 105, 4, 6)]


def test_spans_that_touch_an_end_are_left_out() -> None:
    assert taken([6], [0, 1, 3]) == [(3, 103, 2, 4)]
    assert taken([6], [3, 4, 5]) == []
    assert taken([4, 4], [3, 4]) == []  # neighbours in memory are strangers
    assert taken([1, 3, 1], [0, 2, 4]) == [(2, 102, 1, 3)]
    assert taken([3], []) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 2**60 - 1))
def test_edges_are_found_by_walking_outwards(lengths: list[int], bits: int) -> None:
    """Token by token: left and right until something is no target; out of the sequence means left out."""
    chosen = [at for at in range(sum(lengths)) if bits >> at & 1]
    expected, begin = [], 0
    for length in lengths:
        for at in chosen:
            if begin <= at < begin + length:
                left, right = at, at
                while left in chosen and left >= begin:
                    left -= 1
                while right in chosen and right < begin + length:
                    right += 1
                if left >= begin and right < begin + length:
                    expected.append((at, at + 100, left, right))
        begin += length
    assert taken(lengths, chosen) == expected


def test_neighbouring_spans_are_one_span() -> None:
    """SpanBERT's released code merges them: an edge is never a target itself."""
    _, objective = model("spanbert")
    batch = prepared(objective, rows_of(300))
    targets = set(batch.labels["mlm"].where.tolist())
    left, right = batch.labels["sbo_edges"]
    assert len(left) == len(targets) > 1_000  # [CLS] and [SEP] stand outside every span
    assert not targets & {*left.tolist(), *right.tolist()}
    rows = batch.layout.rows
    where = batch.labels["sbo"].where
    assert torch.equal(rows[left], rows[where]) and torch.equal(rows[right], rows[where])


def erf_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


@pytest.mark.parametrize("embedding_size", [0, 12])
@torch.no_grad()
def test_the_loss_is_the_papers(embedding_size: int) -> None:
    """SpanBERT section 3.2, span by span: h0 = [left; right; p], two layers of dense, GELU, layer norm, the tied matrix."""
    config = replace(CONFIG, embedding_size=embedding_size)
    encoder, objective = Encoder(config), SpanBoundaryObjective(config, GOAL)
    randomise(encoder, 1)
    randomise(objective, 2)
    draw = torch.Generator().manual_seed(0)
    batch = PackedBatch.pack([torch.randint(5, 64, (n,), generator=draw).tolist() for n in (12, 5, 9)])
    where = torch.tensor([2, 3, 4, 5, 6, 9, 12, 13, 18, 19])  # five long; one; at the beginning; inside the third
    batch = objective.prepare(batch.with_(labels={"mlm": Targets(where, batch.input_ids[where])}), 0)
    hidden = encoder(batch)
    spans = [(2, 6), (9, 9), (18, 19)]
    head = objective.head.state_dict()
    layer = {"weight": {}, "bias": {}, "norm": {}, "shift": {}}
    for i in (0, 1):
        layer["weight"][i], layer["bias"][i] = (head[f"transforms.{i}.dense.{x}"] for x in ("weight", "bias"))
        layer["norm"][i], layer["shift"][i] = (head[f"transforms.{i}.norm.{x}"] for x in ("weight", "bias"))
    table = encoder.state_dict()["embeddings.tokens.weight"]
    loss, count, logits = 0.0, 0, []
    for first, last in spans:
        for at in range(first, last + 1):
            place = min(at - first + 1, 3)
            h = torch.cat([hidden[first - 1], hidden[last + 1], head["positions.weight"][place - 1]])
            for i in (0, 1):
                h = erf_gelu(layer["weight"][i] @ h + layer["bias"][i])
                h = (h - h.mean()) / (h.var(correction=0) + config.layer_norm_eps).sqrt()
                h = h * layer["norm"][i] + layer["shift"][i]
            logits.append(table @ h + head["bias"])
            loss -= float(logits[-1].log_softmax(0)[batch.input_ids[at]])
            count += 1
    found = objective(encoder, batch)["sbo"]
    torch.testing.assert_close(
        objective.answers(encoder, [hidden], batch).dense(), torch.stack(logits), rtol=2e-4, atol=2e-5
    )
    assert found.count == count == 8 and objective.counts(batch) == {"sbo": 8}
    assert abs(float(found.total) - loss) < 1e-4 * loss


def test_the_table_of_places_is_as_published() -> None:
    head = SpanBoundaryObjective(CONFIG, SpanBoundary()).head
    assert head.positions.weight.shape == (20, 200)
    assert set(head.state_dict()) == {
        "positions.weight",
        "bias",
        *(f"transforms.{i}.{part}.{x}" for i in (0, 1) for part in ("dense", "norm") for x in ("weight", "bias")),
    }


def test_masks_are_those_of_mlm_alone() -> None:
    """SBO reads what MLM chose; it corrupts nothing."""
    mlm = MaskedTokenObjective(CONFIG, MaskedTokens(unit="span"), VOCABULARY)
    rows = rows_of(20)
    both = prepared(Joint({"mlm": mlm, "sbo": SpanBoundaryObjective(CONFIG, GOAL)}), rows)
    alone = prepared(Joint({"mlm": mlm}), rows)
    assert torch.equal(both.input_ids, alone.input_ids)
    assert torch.equal(both.labels["mlm"].where, alone.labels["mlm"].where)


def test_the_loss_reaches_the_encoder_through_both_edges() -> None:
    encoder, objective = Encoder(CONFIG), SpanBoundaryObjective(CONFIG, GOAL)
    batch = objective.prepare(with_targets([6], [2, 3]), 0)
    batch = batch.with_(labels={**batch.labels, "sbo": Targets(batch.labels["sbo"].where, torch.tensor([9, 9]))})
    hidden = encoder(batch).detach().requires_grad_()
    objective.loss(encoder, [hidden], batch)["sbo"].total.backward()
    assert hidden.grad is not None
    assert hidden.grad.any(1).tolist() == [False, True, False, False, True, False]
