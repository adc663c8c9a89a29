"""In the last layer only tokens whose states are looked at ask: losses and gradients are those of the whole layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contract_cases import CASES, USUAL, model, text

from unmask.nn.encoder import MULTIPLE
from unmask.objectives.base import combine


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_the_whole_layer(name: str) -> None:
    encoder, objective = model(name, deviation=0.2)
    batch = objective.prepare(text([30, 5, 1, 17, 44], 0, USUAL, pairs=True).batch(), 0)
    found = []
    for one in (batch, replace(batch, read=None)):
        losses = objective(encoder, one)
        wanted = [p for p in (*encoder.parameters(), *objective.parameters()) if p.requires_grad]
        loss = combine(losses, objective.counts(one))
        found.append([loss.detach(), *torch.autograd.grad(loss, wanted, allow_unused=True)])
    for mine, whole in zip(*found, strict=True):
        assert (mine is None) == (whole is None)
        if mine is not None and whole is not None:
            torch.testing.assert_close(mine, whole, atol=1e-5, rtol=1e-4)


ALL = {"enhanced", "rtd", "causal", "infill"}  # goals that look at every token


@pytest.mark.parametrize("name", CASES)
def test_goals_that_look_at_few_tokens_say_so(name: str) -> None:
    _, objective = model(name)
    batch = objective.prepare(text([30, 5, 1, 17, 44] * 3, 0, USUAL, pairs=True).batch(), 0)
    assert (batch.read is None) == any(goal in name for goal in ALL)
    if batch.read is not None:
        assert (batch.read.diff() > 0).all() and len(batch.read) < len(batch.input_ids)
        assert len(batch.read) % MULTIPLE == 0, "so that memory of one step fits the next"
