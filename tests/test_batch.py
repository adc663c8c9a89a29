"""Packed batches and their padded view say the same, forward and backward."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import our_model, sequences
from torch import nn

from unmask.batch import WASTE, Layout, PackedBatch, Targets, paired

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=8)


def layout_of(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor([0, *lengths]).cumsum(0).int())


@settings(max_examples=40, deadline=None)
@given(LENGTHS)
def test_padding_and_unpadding_give_back_every_bit_and_zeros_between(lengths: list[int]) -> None:
    layout = layout_of(lengths)
    x = torch.randn(sum(lengths), 2, 3) + 9
    grid = layout.pad(x)
    assert grid.shape == (len(lengths), max(lengths), 2, 3)
    assert torch.equal(layout.unpad(grid), x)
    assert torch.equal(grid[~layout.valid()], torch.zeros_like(grid[~layout.valid()]))
    assert layout.valid().sum(1).tolist() == lengths


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(0, 99))
def test_B111_the_gradient_through_the_padded_view_is_that_of_the_packed_path(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    layout, head = layout_of(lengths), nn.Linear(4, 5)
    packed, padded = (torch.randn(sum(lengths), 4, generator=torch.Generator().manual_seed(seed)) for _ in range(2))
    packed.requires_grad_()
    padded.requires_grad_()
    weights = torch.randn(sum(lengths), 5)
    one, other = head(packed), layout.unpad(head(layout.pad(padded)))
    assert torch.allclose(one, other, rtol=0, atol=1e-6)
    gradients = [
        torch.autograd.grad((out * weights).sum(), (x, *head.parameters()))
        for out, x in ((one, packed), (other, padded))
    ]
    for first, second in zip(*gradients, strict=True):
        assert first.any() and torch.allclose(first, second, rtol=0, atol=1e-5)


def test_B111_padded_mlm_logits_carry_the_gradient_of_a_whole_model() -> None:
    """Asked for as a padded grid and scored at the real places: every parameter learns the same."""
    batch = sequences([3, 9, 9, 20])
    gradients = []
    for through_grid in (False, True):
        encoder, objective = our_model()
        hidden = encoder(batch)
        logits = objective.parts["mlm"].head(hidden, encoder.embeddings.tokens.weight).dense()
        if through_grid:
            grid = batch.layout.pad(logits)
            assert grid.requires_grad and grid.shape == (4, 20, 97)
            logits = grid[batch.layout.valid()]
        nn.functional.cross_entropy(logits, batch.input_ids).backward()
        parameters = [*encoder.named_parameters(), *objective.parts["mlm"].named_parameters()]
        gradients.append({name: parameter.grad for name, parameter in parameters})
    for name, wanted in gradients[0].items():
        assert wanted is not None and wanted.any(), name
        assert torch.allclose(gradients[1][name], wanted, rtol=0, atol=1e-5), name


def test_a_batch_holds_at_least_one_token_in_each_sequence() -> None:
    for rows in ([], [[]], [[5], []]):
        with pytest.raises(ValueError, match="at least one"):
            PackedBatch.pack(rows)


def test_a_batch_moves_to_another_device_whole() -> None:
    """On the meta device, which every machine has: nothing the encoder or a loss reads stays behind."""
    batch = PackedBatch.pack([[7] * 79, [7] * 80], [[0] * 79, [1] * 80])  # near-equal: one group with padding
    targets = Targets(torch.tensor([1]), torch.tensor([9]))
    batch = batch.with_(
        labels={"mlm": targets}, examples=torch.arange(2), documents=torch.arange(2), read=torch.tensor([1])
    )
    moved = batch.to(torch.device("meta"))
    layout = moved.layout
    tensors = [
        moved.input_ids,
        moved.starts,
        moved.token_type_ids,
        moved.read,
        *moved.labels["mlm"],
        layout.rows,
        layout.position_ids,
    ]
    tensors += [x for g in layout.groups for x in (g.gather, g.real, g.mask) if x is not None]
    assert len(tensors) > 7 and all(x is not None and x.device.type == "meta" for x in tensors)
    assert layout.lengths == batch.layout.lengths and moved.documents is batch.documents


def test_a_batch_travels_between_processes_as_it_is() -> None:
    import pickle

    batch = PackedBatch.pack([[2, 7, 3], [2, 3]], [[0, 0, 0], [0, 1]]).with_(
        labels={"mlm": Targets(torch.tensor([1]), torch.tensor([9]))}, examples=torch.arange(2),
        documents=torch.tensor([4, 5]), word_starts=torch.tensor([True, True, False, True, True]), progress=0.25,
        read=torch.tensor([1, 3]), decoder=PackedBatch.pack([[8], [9]]),
    )  # fmt: skip
    other = pickle.loads(pickle.dumps(batch))
    for name in (field.name for field in fields(PackedBatch)):
        mine, theirs = getattr(batch, name), getattr(other, name)
        assert mine is not None, f"{name} is not tested"
        if isinstance(mine, torch.Tensor):
            assert torch.equal(mine, theirs), name
    assert other.progress == 0.25 and other.decoder.input_ids.tolist() == [8, 9]
    assert [x.tolist() for x in other.labels["mlm"]] == [[1], [9]]


def test_near_equal_lengths_go_together_with_little_padding_and_others_apart() -> None:
    groups = layout_of([1, 1, 3, 79, 80, 200]).groups
    assert [(g.first, g.tokens, g.sequences, g.longest) for g in groups] == [
        (0, 2, 2, 1), (2, 3, 1, 3), (5, 159, 2, 80), (164, 200, 1, 200),
    ]  # fmt: skip
    assert [g.mask is None for g in groups] == [True, True, False, True]
    assert groups[2].mask is not None and groups[2].mask.sum((1, 2, 3)).tolist() == [79, 80]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=30), st.booleans())
def test_a_group_with_padding_says_where_each_token_and_each_padded_place_is(sizes: list[int], ordered: bool) -> None:
    layout = layout_of(sorted(sizes) if ordered else sizes)
    first, places = 0, 0
    for group in layout.groups:
        own = list(layout.lengths[first : first + group.sequences])
        assert (group.mask is None) == (len(set(own)) == 1)
        if group.gather is not None and group.real is not None and group.mask is not None:
            grid = [[sum(own[:row]) + at if at < size else 0 for at in range(max(own))] for row, size in enumerate(own)]
            assert group.gather.unflatten(0, (len(own), -1)).tolist() == grid
            assert group.real.tolist() == [row * max(own) + at for row, size in enumerate(own) for at in range(size)]
            assert group.mask.shape == (len(own), 1, 1, max(own)) and group.mask.sum((1, 2, 3)).tolist() == own
        first, places = first + group.sequences, places + group.sequences * group.longest
    assert first == len(sizes) == layout.num_sequences
    assert layout.padding() == pytest.approx(1 - sum(sizes) / places)


def test_groups_are_made_when_first_asked_for() -> None:
    """Not every kernel wants them, nor does the process that makes batches."""
    layout = layout_of([79, 80])
    assert layout.longest == 80 and layout.padding() > 0 and "groups" not in layout.__dict__
    assert layout.groups is layout.groups


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=30), st.booleans())
def test_paired_groups_hold_every_sequence_of_both_sides_in_order(
    lengths: list[tuple[int, int]], ordered: bool
) -> None:
    targets, sources = map(list, zip(*(sorted(lengths) if ordered else lengths), strict=True))
    first, begins = 0, [0, 0]
    for pair in paired(targets, sources):
        for side, (group, sizes) in enumerate(zip(pair, (targets, sources), strict=True)):
            own = sizes[first : first + group.sequences]
            assert (group.first, group.tokens, group.longest) == (begins[side], sum(own), max(own))
            assert group.sequences * group.longest * (1 - WASTE) <= group.tokens
            begins[side] += group.tokens
        first += pair[0].sequences
    assert first == len(targets)


def test_a_dense_layout_says_what_a_packed_one_says_and_keeps_its_padding_as_tokens() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    dense, packed = Layout.dense(mask), layout_of([3, 1])
    assert dense.starts.tolist() == [0, 3, 6] and dense.position_ids.tolist() == [0, 1, 2, 0, 1, 2]
    assert dense.rows.tolist() == [0, 0, 0, 1, 1, 1] and dense.longest == 3 and dense.num_sequences == 2
    assert torch.equal(dense.valid(), packed.valid())
    x = torch.randn(6, 2)
    assert torch.equal(dense.pad(x), packed.pad(x[:4])) and torch.equal(dense.unpad(x.unflatten(0, (2, 3))), x)
    assert dense.to(torch.device("meta")).valid().device.type == "meta"


def test_what_a_layout_keeps_is_made_once_and_not_taken_to_another_device() -> None:
    layout, made = layout_of([3, 4]), []
    for _ in range(2):
        assert layout.once("key", lambda: made.append(1) or len(made)) == 1
    assert layout.to(torch.device("cpu")).once("key", lambda: 7) == 7
