"""Ragged attention on a CPU, in groups and in the blocks of a sliding window: equal to the plain twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.kernels.attention_cases import agrees_with_the_plain_twin, layout_of, random_qkv
from torch import Tensor

from unmask.batch import Layout
from unmask.nn.kernels import grouped, local
from unmask.nn.kernels.grouped import attend_across_in_groups, attend_in_groups
from unmask.nn.kernels.local import Blocks, blocks, reaches
from unmask.nn.kernels.plain import attend_across_plainly, attend_plainly

HEADS, SIZE = 2, 4
HOW = {"causal": st.booleans(), "scale": st.sampled_from([None, 1.0]), "seed": st.integers(0, 99)}


def _kernel(x: Tensor, layout: Layout, *, relative: None, **how: Any) -> Tensor:
    return attend_in_groups(x, layout, **how)


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    window=st.sampled_from([0, 0, 1, 3, 20, 99]),
    ordered=st.booleans(),
    **HOW,
)
def test_groups_are_the_plain_attention(lengths: list[int], seed: int, ordered: bool, **how: Any) -> None:
    layout = layout_of(sorted(lengths) if ordered else lengths)
    agrees_with_the_plain_twin(_kernel, random_qkv(sum(lengths), HEADS, SIZE, seed), layout, None, **how)


@pytest.mark.parametrize("block", [1, 4, 16])
@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    window=st.sampled_from([1, 2, 4, 5, 11]),
    ordered=st.booleans(),
    **HOW,
)
def test_blocks_of_any_size_are_the_plain_attention(
    block: int, lengths: list[int], seed: int, ordered: bool, **how: Any
) -> None:
    """Small blocks, so that short sequences have whole ones, cut ones, and several sequences in one."""
    layout = layout_of(sorted(lengths) if ordered else lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "BLOCK", block)
        agrees_with_the_plain_twin(_kernel, random_qkv(sum(lengths), HEADS, SIZE, seed), layout, None, **how)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("window", "lengths"), [(64, [1, 255, 256, 700]), (128, [400, 1000]), (64, [300, 300, 299, 297])]
)
def test_the_windows_of_modernbert_at_its_own_block_size(window: int, lengths: list[int], causal: bool) -> None:
    assert any(reaches(group.longest, window) for group in layout_of(lengths).groups)
    qkv = random_qkv(sum(lengths), HEADS, SIZE)
    agrees_with_the_plain_twin(_kernel, qkv, layout_of(lengths), None, window=window, causal=causal, scale=None)


def test_the_work_of_a_window_grows_with_the_length_and_not_with_its_square() -> None:
    def pairs(longest: int) -> int:
        layout = layout_of([longest])
        cuts = blocks(layout, layout.groups[0], 64, False, torch.float32)
        assert sum(q.number * q.size for q, _, _ in cuts) == longest
        return sum(q.number * q.size * k.size for q, k, _ in cuts)

    assert pairs(8192) < 8.5 * pairs(1024)
    assert pairs(8192) < 8192 * 3 * 65


def test_blocks_of_one_sequence_share_one_mask() -> None:
    layout = layout_of([4096])
    largest = max(blocks(layout, layout.groups[0], 64, False, torch.float32), key=lambda cut: cut[0].number)
    assert largest[0].number > 50 and largest[2].shape == (1, 1, 64, 192)


@pytest.mark.parametrize("window", [0, 1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_is_the_slope(window: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BLOCK", 2)
    lengths = [1, 4, 11]
    qkv = random_qkv(sum(lengths), 1, 2, dtype=torch.float64).requires_grad_()
    of = lambda x: attend_in_groups(x, layout_of(lengths), window=window, causal=causal, scale=None)
    assert torch.autograd.gradcheck(of, (qkv,))


@pytest.mark.parametrize("window", [0, 8])
def test_a_group_with_padding_is_exact_and_its_gradient_too(window: int) -> None:
    lengths = [98, 99, 100, 100]
    assert [g.mask is None for g in layout_of(lengths).groups] == [False]
    for causal in (False, True):
        qkv = random_qkv(sum(lengths), HEADS, SIZE)
        agrees_with_the_plain_twin(_kernel, qkv, layout_of(lengths), None, window=window, causal=causal, scale=None)


def test_batch_mates_of_equal_length_change_no_bit() -> None:
    """A group's products run sequence by sequence, so the same sequence has the same answer beside others."""
    together = random_qkv(3 * 40, HEADS, 8)
    layout = layout_of([40, 40, 40])
    for window in (0, 8):
        out = attend_in_groups(together, layout, window=window, causal=False, scale=None)
        mixed = torch.cat([torch.randn(40, 3, HEADS, 8), together[40:80], torch.randn(40, 3, HEADS, 8)])
        assert torch.equal(attend_in_groups(mixed, layout, window=window, causal=False, scale=None)[40:80], out[40:80])


def test_half_precision_runs_in_half_precision() -> None:
    qkv, layout = random_qkv(380, HEADS, 8), layout_of([80, 300])
    for window in (0, 16):
        x = qkv.bfloat16().requires_grad_()
        found = attend_in_groups(x, layout, window=window, causal=False, scale=None)
        found.float().sum().backward()
        assert found.dtype == torch.bfloat16 and x.grad is not None and x.grad.dtype == torch.bfloat16
        assert (found.float() - attend_plainly(qkv, layout, window=window)).abs().max() < 0.05


def test_masks_are_made_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(grouped, "mask_of", lambda *a: made.append(a) or mask_of(*a))
    layout = layout_of([9, 10])
    for _ in range(3):
        attend_in_groups(random_qkv(19, HEADS, SIZE), layout, window=0, causal=False, scale=None)
    assert len(made) == len(layout.groups)


mask_of = grouped.mask_of


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=8),
    ordered=st.booleans(),
    scale=st.sampled_from([None, 1.0]),
)
def test_a_decoder_sees_its_own_source_whole_forward_and_backward(
    lengths: list[tuple[int, int]], ordered: bool, scale: float | None
) -> None:
    targets, sources = map(list, zip(*(sorted(lengths) if ordered else lengths), strict=True))
    draw = torch.Generator().manual_seed(0)
    asks = torch.randn(sum(targets), HEADS, SIZE, generator=draw)
    answers = torch.randn(sum(sources), 2, HEADS, SIZE, generator=draw)
    weights = torch.randn(asks.shape, generator=draw)
    results = []
    for attention in (attend_across_in_groups, attend_across_plainly):
        q, kv = asks.clone().requires_grad_(), answers.clone().requires_grad_()
        out = attention(q, kv, layout_of(targets), layout_of(sources), scale=scale)
        (out * weights).sum().backward()
        results.append((out, q.grad, kv.grad))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)


def test_slices_of_overlapping_blocks_add_up_where_blocks_share_tokens() -> None:
    """Blocks at 0, 2 and 4 of 5 tokens each, every one of them adding 1: what each token gets is how many see it."""
    target, keys = torch.zeros(9, 1, 1), Blocks(0, 3, 5, 2)
    grouped._add(keys, target, torch.ones(3, 1, 5, 1))
    assert target.flatten().tolist() == [1, 1, 2, 2, 3, 2, 2, 1, 1]
