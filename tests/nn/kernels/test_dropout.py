"""Cheap dropout does what `F.dropout` does: its rate, its scale, its gradient and its determinism."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from unmask.nn.kernels.dropout import LANES, Dropout, drop, dropout, keep

N = 1 << 20
SIGMAS = 5.0  # one false alarm in two million, and the seed is fixed


def mask(p: float, n: int = N, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return keep((n,), p)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.25, 0.5, 0.9])
def test_the_rate_is_met_in_every_lane(p: float) -> None:
    # a draw with one bit too few (int64 `random_` without bounds) shows in its last lane alone
    lanes = mask(p).view(-1, LANES).float()
    deviation = math.sqrt(p * (1 - p) / len(lanes))
    assert (lanes.mean(0) - (1 - p)).abs().max() < SIGMAS * deviation


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 8, 256])
def test_neighbours_are_dropped_independently(distance: int) -> None:
    p = 0.1
    dropped = (~mask(p)).float() - p
    correlation = (dropped[:-distance] * dropped[distance:]).mean() / (p * (1 - p))
    assert abs(correlation) < SIGMAS / math.sqrt(N - distance)


def test_lanes_of_one_draw_are_independent() -> None:
    p = 0.5
    lanes = mask(p).view(-1, LANES).float() - p
    correlation = lanes.T @ lanes / len(lanes) / (p * (1 - p)) - torch.eye(LANES)
    assert correlation.abs().max() < SIGMAS * math.sqrt(2 / len(lanes))


@pytest.mark.parametrize("p", [0.1, 1 / 3, 0.9])
def test_the_mean_is_preserved(p: float) -> None:
    torch.manual_seed(1)
    y = dropout(torch.ones(N), p)
    assert abs(y.mean() - 1) < SIGMAS * math.sqrt(p / (1 - p) / N)
    assert torch.allclose(y[y != 0], torch.tensor(1 / (1 - p)), rtol=1e-4)  # the lane's rate, not p, gives the scale


def test_the_mean_is_exact_for_the_rate_that_a_lane_can_meet() -> None:
    p = 1000.4 / 65536
    scale = dropout(torch.ones(1000), p).max()
    assert scale == torch.tensor(65536 / (65536 - 1000))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=4), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_any_shape_and_type_keeps_or_zeros_each_element(shape: list[int], dtype: torch.dtype) -> None:
    x = torch.randn(shape).to(dtype) + 10
    y = dropout(x, 0.3)
    assert y.shape == x.shape and y.dtype == dtype
    kept = y != 0
    assert torch.allclose(y[kept].float(), x[kept].float() / 0.7, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4)


def test_strides_do_not_matter() -> None:
    x = torch.randn(6, 8, 10)
    for view in (x.transpose(0, 2), x[:, ::2], x[:, :, :1].expand(6, 8, 10)):
        torch.manual_seed(3)
        strided = dropout(view, 0.4)
        torch.manual_seed(3)
        assert torch.equal(strided, dropout(view.contiguous(), 0.4))


def test_the_gradient_is_that_of_the_same_mask_multiplied() -> None:
    x = torch.randn(37, 19, requires_grad=True)
    gradient = torch.randn(19, 37).T  # not contiguous
    torch.manual_seed(5)
    dropout(x, 0.25).backward(gradient)
    torch.manual_seed(5)
    twin = x.detach().clone().requires_grad_()
    (twin * keep(x.shape, 0.25) / 0.75).backward(gradient)
    assert twin.grad is not None and torch.allclose(x.grad, twin.grad, atol=1e-6)


def test_a_numerical_gradient_agrees_and_so_does_its_own_gradient() -> None:
    kept = keep((5, 7), 0.4)
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)

    def masked(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(8)
        return dropout(x, 0.4) ** 2

    assert torch.autograd.gradcheck(masked, x) and torch.autograd.gradgradcheck(masked, x)
    assert torch.autograd.gradcheck(lambda x: drop(x, kept, 0.4), x)


def test_the_input_is_left_as_it_is() -> None:
    x = torch.ones(100)
    dropout(x, 0.5)
    assert (x == 1).all()


def test_one_byte_an_element_is_saved_for_the_backward() -> None:
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        dropout(torch.randn(64, requires_grad=True), 0.1)
    assert [t.nbytes for t in saved] == [64]


def test_a_seed_gives_the_same_mask_for_any_number_of_threads() -> None:
    x = torch.ones(1 << 16)
    threads = torch.get_num_threads()
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first, second = dropout(x, 0.1), dropout(x, 0.1)
    assert not torch.equal(first, second)
    try:
        torch.set_num_threads(2)
        torch.set_rng_state(state)
        assert torch.equal(dropout(x, 0.1), first) and torch.equal(dropout(x, 0.1), second)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.0, False), (0.5, False), (1.0, False)])
def test_nothing_is_copied_or_drawn_where_nothing_is_dropped(p: float, training: bool) -> None:
    x, state = torch.randn(8), torch.get_rng_state()
    assert dropout(x, p, training) is x
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("p", [1.0, 1 - 1e-9, 1e-9])
def test_the_ends_of_the_range_work(p: float) -> None:
    y = dropout(torch.ones(64), p)
    assert y.isfinite().all() and (y == 0).all() == (p > 0.5)


def test_the_module_stands_in_for_nn_dropout() -> None:
    module = Dropout(0.3)
    assert repr(module) == repr(nn.Dropout(0.3)) and isinstance(module, nn.Dropout)
    x = torch.ones(1000)
    assert 0 < (module(x) == 0).sum() < 1000
    assert module.eval()(x) is x
    with pytest.raises(ValueError, match="between 0 and 1"):
        Dropout(1.5)


def test_an_exported_or_compiled_graph_holds_the_plain_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    x = torch.ones(100)
    torch.manual_seed(2)
    ours = dropout(x, 0.5)
    torch.manual_seed(2)
    assert torch.equal(ours, F.dropout(x, 0.5))


def test_a_module_in_training_can_be_exported() -> None:
    exported = torch.export.export(nn.Sequential(nn.Linear(4, 4), Dropout(0.5)), (torch.ones(2, 4),))
    assert any("dropout" in str(node.target) for node in exported.graph.nodes)
