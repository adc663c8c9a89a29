"""Attention over a batch that came padded, and its export."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nn.kernels.attention_cases import KINDS, agrees_with_the_plain_twin, layout_of, random_offsets, random_qkv
from torch import Tensor, nn
from torch.export import Dim, export

from unmask.batch import Layout
from unmask.nn.attend import attend, attend_across
from unmask.nn.kernels.padded import attend_padded
from unmask.nn.kernels.plain import Offsets, attend_across_plainly, attend_plainly

HEADS, SIZE = 2, 4
LENGTHS = [1, 5, 9]


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("window", "causal"), [(0, False), (0, True), (3, False), (3, True)])
def test_padded_and_packed_batches_give_the_plain_answer(kinds: str, window: int, causal: bool) -> None:
    offsets, packed = random_offsets(kinds, max(LENGTHS), HEADS, SIZE), layout_of(LENGTHS)
    qkv = random_qkv(sum(LENGTHS), HEADS, SIZE)
    how: dict[str, Any] = {"window": window, "causal": causal, "scale": None}
    agrees_with_the_plain_twin(attend_padded, qkv, packed, offsets, dropout=0.0, **how)
    wanted = attend_plainly(qkv, packed, relative=offsets, **how)
    dense = Layout.dense(packed.valid().long())
    found = attend(packed.pad(qkv).flatten(0, 1), dense, relative=offsets, **how)
    torch.testing.assert_close(found[dense.valid().flatten()], wanted, rtol=1e-5, atol=1e-5)
    assert found.isfinite().all()


def test_across_two_padded_sides() -> None:
    targets, sources = layout_of([2, 3, 1]), layout_of(LENGTHS)
    q, kv = torch.randn(6, HEADS, SIZE), random_qkv(sum(LENGTHS), HEADS, SIZE)[:, 1:]
    dense = [Layout.dense(side.valid()) for side in (targets, sources)]
    found = attend_across(targets.pad(q).flatten(0, 1), sources.pad(kv).flatten(0, 1), *dense)
    wanted = attend_across_plainly(q, kv, targets, sources)
    torch.testing.assert_close(found[dense[0].valid().flatten()], wanted, rtol=1e-5, atol=1e-5)


class _Exported(nn.Module):
    """A function of a padded batch and its mask; the offsets are those of the batch's length."""

    def __init__(self, kinds: str, how: dict[str, Any]):
        super().__init__()
        self.kinds, self.how = kinds, how
        self.tables = random_offsets(kinds, 50, HEADS, SIZE)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        layout = Layout.dense(mask)
        relative = None
        if self.tables is not None:
            rows = torch.arange(1 - layout.longest, layout.longest).abs() % 11
            relative = Offsets(rows, self.tables.bias_HN, self.tables.keys_HNK, self.tables.queries_HNK)
        return attend(x.flatten(0, 1), layout, relative=relative, **self.how)


@pytest.mark.parametrize("kinds", ["", "bias", "c2p p2c"])
@pytest.mark.parametrize("how", [{}, {"window": 2}, {"causal": True}])
def test_one_exported_graph_serves_batches_and_lengths_it_has_not_seen(kinds: str, how: dict[str, Any]) -> None:
    module = _Exported(kinds, how).eval()
    for parameter in () if module.tables is None else vars(module.tables).values():
        if parameter is not None:
            parameter.requires_grad_(False)
    shapes = {0: Dim("batch", max=99), 1: Dim("length", max=99)}
    given = torch.randn(3, 7, 3, HEADS, SIZE), torch.ones(3, 7, dtype=torch.long)
    program = export(module, given, dynamic_shapes=(shapes, shapes)).module()
    for sequences, longest in ((2, 5), (4, 12)):
        x, mask = torch.randn(sequences, longest, 3, HEADS, SIZE), torch.ones(sequences, longest, dtype=torch.long)
        mask[0, 3:] = 0
        torch.testing.assert_close(program(x, mask), module(x, mask), rtol=1e-5, atol=1e-5)
