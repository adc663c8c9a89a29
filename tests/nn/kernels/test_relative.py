"""Scores that know offsets, without a gather: equal to the plain twin however the work is cut up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.kernels.attention_cases import (
    KINDS,
    agrees_with_the_plain_twin,
    detached,
    layout_of,
    random_offsets,
    random_qkv,
    tables_of,
)

from unmask.nn.kernels import relative as kernel
from unmask.nn.kernels.plain import Offsets, attend_plainly
from unmask.nn.kernels.relative import attend_by_offsets

HEADS, SIZE = 2, 4


@pytest.fixture(params=[(64, 2**20, 2**18), (4, 1, 1), (4, 500, 300), (8, 200, 10**6)])
def cut_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, and so finely that short sequences have many blocks, slabs and chunks with remainders."""
    for name, value in zip(("BLOCK", "SCORES", "SHARED"), request.param, strict=True):
        monkeypatch.setattr(kernel, name, value)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.usefixtures("cut_up")
@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 26), min_size=1, max_size=7),
    window=st.sampled_from([0, 0, 1, 3, 30]),
    causal=st.booleans(),
    scale=st.sampled_from([None, 1.0]),
    seed=st.integers(0, 99),
)
def test_it_is_the_plain_attention_forward_and_backward(kinds: str, lengths: list[int], seed: int, **how: Any) -> None:
    layout = layout_of(sorted(lengths) if seed % 2 else lengths)
    offsets = random_offsets(kinds, max(lengths), HEADS, SIZE)
    qkv = random_qkv(sum(lengths), HEADS, SIZE, seed)
    agrees_with_the_plain_twin(attend_by_offsets, qkv, layout, offsets, dropout=0.0, **how)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.usefixtures("cut_up")
def test_padding_in_a_group_changes_nothing(kinds: str) -> None:
    lengths = [98, 99, 100, 100]
    layout = layout_of(lengths)
    assert [g.mask is None for g in layout.groups] == [False]
    offsets, qkv = random_offsets(kinds, 100, HEADS, SIZE), random_qkv(sum(lengths), HEADS, SIZE)
    for window, causal in ((0, False), (0, True), (1, False)):
        how: dict[str, Any] = {"window": window, "causal": causal, "scale": None, "dropout": 0.0}
        agrees_with_the_plain_twin(attend_by_offsets, qkv, layout, offsets, **how)


def test_lengths_beyond_a_block_and_beyond_the_scores_held_at_a_time() -> None:
    lengths = [1, 65, 130, 700]
    offsets, qkv = random_offsets("c2p p2c bias", 700, HEADS, SIZE), random_qkv(sum(lengths), HEADS, SIZE)
    agrees_with_the_plain_twin(
        attend_by_offsets, qkv, layout_of(lengths), offsets, window=0, causal=False, scale=None, dropout=0.0
    )


@pytest.mark.parametrize("kinds", KINDS[1:])
@pytest.mark.usefixtures("cut_up")
def test_the_gradient_is_the_slope(kinds: str) -> None:
    lengths = [1, 3, 3, 9]
    qkv = random_qkv(sum(lengths), 1, 2, dtype=torch.float64).requires_grad_()
    offsets = random_offsets(kinds, 9, 1, 2, torch.float64)
    assert offsets is not None
    names = [n for n in ("bias_HN", "keys_HNK", "queries_HNK") if getattr(offsets, n) is not None]

    def of(x: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
        given = Offsets(offsets.rows, **dict(zip(names, tables, strict=True)))
        return attend_by_offsets(x, layout_of(lengths), window=0, causal=False, scale=None, relative=given, dropout=0.0)

    assert torch.autograd.gradcheck(of, (qkv, *tables_of(offsets)))


def test_half_precision_is_near_and_has_gradients_of_its_own_kind() -> None:
    lengths = [5, 20, 20]
    offsets, qkv = random_offsets("c2p p2c", 20, HEADS, 8), random_qkv(45, HEADS, 8)
    wanted = attend_plainly(qkv, layout_of(lengths), relative=offsets)
    x = qkv.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_by_offsets(
            x, layout_of(lengths), window=0, causal=False, scale=None, relative=offsets, dropout=0.0
        )
    found.float().sum().backward()
    assert found.dtype == torch.bfloat16 and (found.float() - wanted).abs().max() < 0.1
    assert all(table.grad is not None and table.grad.dtype == torch.float32 for table in tables_of(offsets))


def test_without_gradients_nothing_is_kept_and_the_answer_is_the_same() -> None:
    offsets, qkv = random_offsets("c2p p2c", 9, HEADS, SIZE), random_qkv(12, HEADS, SIZE)
    how: dict[str, Any] = {"window": 0, "causal": False, "scale": None, "dropout": 0.0}
    with torch.no_grad():
        one = attend_by_offsets(qkv, layout_of([3, 9]), relative=offsets, **how)
    other = attend_by_offsets(qkv, layout_of([3, 9]), relative=offsets, **how)
    assert torch.equal(one, other) and other.requires_grad and not one.requires_grad


def test_dropout_leaves_the_mean_and_its_gradient_is_that_of_the_same_mask() -> None:
    """Values at 1: each output is the sum of the weights that stay, which the gradient for the values must repeat."""
    qkv = random_qkv(8, HEADS, SIZE)
    qkv[:, 2] = 1.0
    qkv.requires_grad_()
    how: dict[str, Any] = {"window": 0, "causal": False, "scale": None, "relative": None, "dropout": 0.25}
    torch.manual_seed(0)
    outs = [attend_by_offsets(qkv, layout_of([8]), **how) for _ in range(400)]
    assert torch.stack([x.detach() for x in outs]).mean().sub(1).abs() < 0.02
    assert not torch.equal(outs[0], outs[1])
    outs[0].sum().backward()
    assert qkv.grad is not None
    torch.testing.assert_close(qkv.grad[:, 2].sum(), outs[0].detach().sum(), rtol=1e-5, atol=1e-5)


def test_the_slope_under_dropout_with_its_mask_held() -> None:
    qkv = random_qkv(7, 1, 2, dtype=torch.float64).requires_grad_()
    offsets = detached(random_offsets("c2p p2c bias", 4, 1, 2, torch.float64))

    def of(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return attend_by_offsets(
            x, layout_of([3, 4]), window=0, causal=False, scale=None, relative=offsets, dropout=0.3
        )

    assert torch.autograd.gradcheck(of, (qkv,))
