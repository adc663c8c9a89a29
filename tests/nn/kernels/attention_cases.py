"""What every attention kernel is tried with, and the comparison with its plain twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unmask.batch import Layout
from unmask.nn.kernels.plain import Offsets, attend_plainly

KINDS = ["", "bias", "c2p", "p2c", "c2p p2c", "bias c2p p2c"]


def layout_of(lengths: Sequence[int]) -> Layout:
    return Layout.of(torch.tensor([0, *lengths]).cumsum(0).int())


def random_qkv(tokens: int, heads: int, size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(tokens, 3, heads, size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_offsets(
    kinds: str, longest: int, heads: int, size: int, dtype: torch.dtype = torch.float32
) -> Offsets | None:
    """Tables with fewer rows than offsets, as buckets make them."""
    if not kinds:
        return None
    draw = torch.Generator().manual_seed(7)
    rows = torch.randint(0, 11, (2 * longest - 1,), generator=draw)
    bias, keys, queries = (torch.randn(heads, 11, n, generator=draw).to(dtype) for n in (1, size, size))
    words = kinds.split()
    return Offsets(
        rows,
        bias[..., 0].requires_grad_() if "bias" in words else None,
        keys.requires_grad_() if "c2p" in words else None,
        queries.requires_grad_() if "p2c" in words else None,
    )


def tables_of(relative: Offsets | None) -> list[Tensor]:
    if relative is None:
        return []
    return [x for x in (relative.bias_HN, relative.keys_HNK, relative.queries_HNK) if x is not None]


def detached(relative: Offsets | None) -> Offsets | None:
    """The same numbers with gradients of their own."""
    if relative is None:
        return None
    copy = lambda x: None if x is None else x.detach().clone().requires_grad_()
    names = ("bias_HN", "keys_HNK", "queries_HNK")
    return replace(relative, **{name: copy(getattr(relative, name)) for name in names})


def agrees_with_the_plain_twin(
    kernel: Callable[..., Tensor], qkv: Tensor, layout: Layout, relative: Offsets | None, **how: Any
) -> None:
    """Outputs within 1e-5, gradients of qkv and of every table within 1e-4."""
    results = []
    for attention in (kernel, attend_plainly):
        x, tables = qkv.detach().clone().requires_grad_(), detached(relative)
        out = attention(x, layout, relative=tables, **how)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
        (out * weights).sum().backward()
        results.append((out, [x.grad, *(table.grad for table in tables_of(tables))]))
    (one, gradients), (other, wanted) = results
    assert one.shape == (len(qkv), *qkv.shape[2:])
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for found, expected in zip(gradients, wanted, strict=True):
        assert found is not None and expected is not None
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
