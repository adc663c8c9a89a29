"""The kernels for GPUs, as far as a CPU can judge them: what they ask of torch, and FlexAttention's plain evaluation."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from nn.kernels.attention_cases import KINDS, layout_of, random_offsets, random_qkv
from torch import Tensor
from torch.nn.attention import varlen
from torch.nn.attention.flex_attention import flex_attention

from unmask.batch import Layout
from unmask.nn.kernels import flex
from unmask.nn.kernels.flex import attend_flexibly
from unmask.nn.kernels.plain import attend_across_plainly, attend_plainly
from unmask.nn.kernels.varlen import attend_across_varlen, attend_varlen

LENGTHS = [1, 7, 30, 12]
HEADS, SIZE = 2, 8


def _stand_in(asked: list[dict[str, Any]]) -> Any:
    """torch's ragged attention by its documentation: (W, 0) is a causal window, -1 no border."""
    signature = inspect.signature(varlen.varlen_attn)

    def attend(*args: Any, **kwargs: Any) -> Tensor:
        given = signature.bind(*args, **kwargs).arguments
        asked.append(given)
        assert given["cu_seq_q"].dtype == given["cu_seq_k"].dtype == torch.int32
        left, right = given["window_size"]
        parts = []
        q_starts, k_starts = given["cu_seq_q"].tolist(), given["cu_seq_k"].tolist()
        for a, b, c, d in zip(q_starts, q_starts[1:], k_starts, k_starts[1:], strict=False):
            assert b - a <= given["max_q"] and d - c <= given["max_k"]
            q, k, v = given["query"][a:b], given["key"][c:d], given["value"][c:d]
            ahead = torch.arange(d - c) - torch.arange(b - a)[:, None]
            seen = ((ahead <= right) | (right < 0)) & ((-ahead <= left) | (left < 0))
            factor = q.shape[-1] ** -0.5 if given["scale"] is None else given["scale"]
            scores = torch.einsum("qhk,shk->hqs", q, k) * factor
            parts.append(torch.einsum("hqs,shk->qhk", scores.masked_fill(~seen, -torch.inf).softmax(-1), v))
        return torch.cat(parts)

    return attend


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 3])
def test_ragged_flash_attention_is_asked_for_what_the_plain_twin_does(
    window: int, causal: bool, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(varlen, "varlen_attn", _stand_in(asked))
    qkv, layout = random_qkv(sum(LENGTHS), HEADS, SIZE), layout_of(LENGTHS)
    how: dict[str, Any] = {"window": window, "causal": causal, "scale": scale}
    found = attend_varlen(qkv, layout, **how)
    torch.testing.assert_close(found, attend_plainly(qkv, layout, **how), rtol=1e-5, atol=1e-5)
    assert len(asked) == 1 and asked[0]["max_q"] == 30


def test_ragged_flash_attention_across_two_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", _stand_in([]))
    kv, q = random_qkv(sum(LENGTHS), HEADS, SIZE)[:, 1:], torch.randn(12, HEADS, SIZE)
    sides: tuple[Layout, Layout] = layout_of([3, 1, 6, 2]), layout_of(LENGTHS)
    found = attend_across_varlen(q, kv, *sides, scale=None)
    torch.testing.assert_close(found, attend_across_plainly(q, kv, *sides), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("window", "causal"), [(0, False), (0, True), (3, False), (3, True)])
@torch.no_grad()
def test_flex_attention_changes_scores_as_the_plain_twin_does(
    kinds: str, window: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flex, "_kernel", lambda: flex_attention)
    layout, offsets = layout_of(LENGTHS), random_offsets(kinds, max(LENGTHS), HEADS, SIZE)
    qkv = random_qkv(sum(LENGTHS), HEADS, SIZE)
    how: dict[str, Any] = {"window": window, "causal": causal, "scale": None, "relative": offsets}
    found = attend_flexibly(qkv, layout, **how)
    torch.testing.assert_close(found, attend_plainly(qkv, layout, **how), rtol=1e-5, atol=1e-5)
