from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config import AdamW, Cosine, Linear, Minutes, Steps, Tokens, WarmupStableDecay
from unmask.train.optimise import build_optimizer, learning_rate_factor
from unmask.train.plan import Leg, Plan


def test_the_linear_schedule_has_the_values_worked_by_hand() -> None:
    schedule = Linear(warmup=0.1, final=0.0)
    assert [round(learning_rate_factor(schedule, p), 6) for p in (0.0, 0.05, 0.1, 0.55, 1.0)] == [
        0.0,
        0.5,
        1.0,
        0.5,
        0.0,
    ]


def test_the_cosine_schedule_has_the_values_worked_by_hand() -> None:
    schedule = Cosine(warmup=0.0, final=0.1)
    assert [round(learning_rate_factor(schedule, p), 6) for p in (0.0, 0.5, 1.0)] == [1.0, 0.55, 0.1]


def test_the_wsd_schedule_has_the_values_worked_by_hand() -> None:
    schedule = WarmupStableDecay(warmup=0.1, decay=0.2, final=0.0)
    found = [learning_rate_factor(schedule, p) for p in (0.05, 0.1, 0.5, 0.8, 0.85, 1.0)]
    assert found == pytest.approx([0.5, 1.0, 1.0, 1.0, 1 - math.sqrt(0.25), 0.0])


@given(
    st.sampled_from([Linear(), Cosine(), WarmupStableDecay(), Linear(warmup=1.0), Cosine(final=0.3)]), st.floats(0, 1)
)
def test_the_factor_stays_between_0_and_1(schedule: Linear | Cosine | WarmupStableDecay, progress: float) -> None:
    assert 0.0 <= learning_rate_factor(schedule, progress) <= 1.0


def test_the_learning_rate_reaches_its_end_whatever_the_accumulation() -> None:
    """Elsewhere the scheduler counts micro-batches and never ends its decay."""
    plan = Plan(Steps(steps=40))
    assert learning_rate_factor(Linear(), plan.progress(40, 0)) == 0.0


@given(st.integers(1, 500), st.lists(st.tuples(st.integers(1, 100), st.integers(1, 500)), max_size=5))
def test_progress_is_continuous_and_rises_to_1_over_any_plan(first: int, changes: list[tuple[int, int]]) -> None:
    plan, step = Plan(Minutes(minutes=1), (Leg(0, first),)), 0
    for after, rest in changes:
        step += after
        if step >= plan.total_steps(step, 0):
            break
        before = plan.progress(step, 0)
        plan = plan.with_leg(Leg(step, step + rest))
        assert plan.progress(step, 0) == pytest.approx(before)
    total = plan.total_steps(0, 0)
    values = [plan.progress(s, 0) for s in range(total + 2)]
    assert values[0] == 0.0 and values[total] == values[total + 1] == 1.0
    assert all(a < b or b == 1.0 for a, b in zip(values, values[1:], strict=False))


def test_a_run_over_tokens_ends_by_tokens() -> None:
    plan = Plan(Tokens(tokens=1000), tokens_per_step=100)
    assert plan.progress(3, 500) == 0.5 and plan.progress(9, 1001) == 1.0
    assert plan.total_steps(5, 500) == 10 and plan.first_estimate() == 10


@pytest.mark.parametrize("until", [Steps(steps=10), Tokens(tokens=1000), Minutes(minutes=1)])
def test_a_phase_counts_from_where_it_began(until: Any) -> None:
    """Progress, totals and estimates of a phase that begins after 7 steps and 700 tokens."""
    plan = Plan(until, (Leg(7, 17),), tokens_per_step=100, first_step=7, first_tokens=700)
    assert plan.progress(7, 700) == 0.0 and plan.progress(12, 1200) == 0.5 and plan.progress(17, 1700) == 1.0
    assert plan.total_steps(7, 700) == plan.total_steps(12, 1200) == 17 and plan.first_estimate() == 10


def test_norms_and_biases_are_not_decayed() -> None:
    import torch

    parameters = {"weight": torch.nn.Parameter(torch.ones(2, 2)), "bias": torch.nn.Parameter(torch.ones(2))}
    groups = build_optimizer(AdamW(weight_decay=0.1), parameters).param_groups
    assert [(len(g["params"]), g["weight_decay"]) for g in groups] == [(1, 0.1), (1, 0.0)]
    assert groups[0]["params"][0].dim() == 2
