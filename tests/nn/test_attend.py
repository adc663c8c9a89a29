from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import Layout
from unmask.nn.attend import attend, attend_across
from unmask.nn.kernels.plain import Offsets, attend_plainly

HEADS, HEAD_SIZE = 3, 8
LENGTHS = st.lists(st.integers(1, 24), min_size=1, max_size=9)
HOW = st.fixed_dictionaries(
    {
        "window": st.sampled_from([0, 1, 2, 5, 23, 24, 99]),
        "causal": st.booleans(),
        "scale": st.sampled_from([None, 1.0, 0.2]),
        "relative": st.sampled_from(["", "", "bias", "c2p", "p2c", "c2p p2c"]),
    }
)


def _layout(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor([0, *lengths]).cumsum(0).int())


def _qkv(lengths: list[int], seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), 3, HEADS, HEAD_SIZE, generator=generator, dtype=dtype)


def _offsets(kinds: str, longest: int = 24, heads: int = HEADS, size: int = HEAD_SIZE) -> Offsets | None:
    """Tables with fewer rows than offsets, as buckets make them, each kind of them random."""
    if not kinds:
        return None
    draw = torch.Generator().manual_seed(7)
    rows = torch.randint(0, 11, (2 * longest - 1,), generator=draw)
    numbers, keys, queries = (torch.randn(heads, 11, width, generator=draw) for width in (1, size, size))
    return Offsets(
        rows,
        numbers[..., 0] if "bias" in kinds else None,
        keys if "c2p" in kinds else None,
        queries if "p2c" in kinds else None,
    )


def _options(how: dict[str, Any], lengths: list[int]) -> dict[str, Any]:
    return {**how, "relative": _offsets(how["relative"], max(lengths))}


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99), ordered=st.booleans(), how=HOW)
def test_the_fast_attention_is_the_plain_one_forward_and_backward(
    lengths: list[int], seed: int, ordered: bool, how: dict[str, Any]
) -> None:
    lengths = sorted(lengths) if ordered else lengths  # sorted lengths fall into larger groups, with padding in them
    layout = _layout(lengths)
    fast, plain = (_qkv(lengths, seed).requires_grad_() for _ in range(2))
    one, other = attend(fast, layout, **_options(how, lengths)), attend_plainly(plain, layout, **_options(how, lengths))
    weights = torch.randn(one.shape, generator=torch.Generator().manual_seed(seed + 1))
    (one * weights).sum().backward()
    (other * weights).sum().backward()
    assert one.shape == (sum(lengths), HEADS, HEAD_SIZE)
    assert bool(fast.grad.isfinite().all())
    assert torch.allclose(one, other, rtol=1e-5, atol=5e-6)
    assert torch.allclose(fast.grad, plain.grad, rtol=1e-4, atol=2e-5)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 24), min_size=2, max_size=9), seed=st.integers(0, 99), how=HOW, data=st.data())
def test_no_output_and_no_gradient_crosses_a_sequence_border(
    lengths: list[int], seed: int, how: dict[str, Any], data: st.DataObject
) -> None:
    changed = data.draw(st.integers(0, len(lengths) - 1))
    layout = _layout(lengths)
    inside = layout.rows == changed
    before = _qkv(lengths, seed).requires_grad_()
    after = torch.where(inside[:, None, None, None], _qkv(lengths, seed + 1000), before.detach()).requires_grad_()
    one, other = attend(before, layout, **_options(how, lengths)), attend(after, layout, **_options(how, lengths))
    assert torch.equal(one[~inside], other[~inside])
    one[inside].sum().backward()
    assert not before.grad[~inside].any()
    assert before.grad[inside].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 4, 19, 20])
def test_a_token_sees_its_window_and_with_causal_nothing_behind_it(window: int, causal: bool) -> None:
    """The gradient to everything else is exactly 0; the window counts on each side, and its end is inside."""
    lengths = [20, 7, 20]
    layout = _layout(lengths)
    for at in (0, 3, 10, 19):
        qkv = _qkv(lengths).requires_grad_()
        attend(qkv, layout, window=window, causal=causal)[27 + at].square().sum().backward()
        moved = qkv.grad[:, 2].abs().sum((1, 2)) > 0
        place = torch.arange(20)
        sees = (place - at).abs() <= (window or 99)
        wanted = sees & (place <= at) if causal else sees
        assert torch.equal(moved[27:], wanted) and not moved[:27].any()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=6), st.sampled_from([None, 1.0])
)
def test_across_two_sides_each_sequence_sees_its_own_source_whole(
    lengths: list[tuple[int, int]], scale: float | None
) -> None:
    targets, sources = map(list, zip(*lengths, strict=True))
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(sum(targets), HEADS, HEAD_SIZE, generator=draw)
    kv = torch.randn(sum(sources), 2, HEADS, HEAD_SIZE, generator=draw)
    out = attend_across(q, kv, _layout(targets), _layout(sources), scale=scale)
    parts = zip(q.split(targets), kv.split(sources), strict=True)
    factor = HEAD_SIZE**-0.5 if scale is None else scale
    for found, (asks, answers) in zip(out.split(targets), parts, strict=True):
        weights = (torch.einsum("qhk,shk->hqs", asks, answers[:, 0]) * factor).softmax(-1)
        wanted = torch.einsum("hqs,shk->qhk", weights, answers[:, 1])
        assert torch.allclose(found, wanted, rtol=1e-5, atol=5e-6)


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), how=HOW)
def test_the_gradient_of_attention_is_its_slope(lengths: list[int], how: dict[str, Any]) -> None:
    layout = _layout(lengths)
    qkv = _qkv(lengths, dtype=torch.float64)[:, :, :, :2].clone().requires_grad_()
    options = {**how, "relative": None}
    assert torch.autograd.gradcheck(lambda x: attend(x, layout, **options), (qkv,))


def test_one_token_attends_to_itself_alone() -> None:
    qkv = _qkv([1, 1, 1])
    for options in ({}, {"causal": True}, {"window": 3}):
        assert torch.allclose(attend(qkv, _layout([1, 1, 1]), **options), qkv[:, 2], rtol=0, atol=1e-6)


def test_two_tokens_by_hand() -> None:
    """q·k/√2 of the first token: 0 and √2·ln 3 / √2 = ln 3, so its weights are 1/4 and 3/4."""
    root_2, ln_3 = 2**0.5, float(torch.tensor(3.0).log())
    q, k = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [root_2 * ln_3, 0.0]])
    v = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    qkv = torch.stack([q, k, v], 1)[:, :, None]
    for options, wanted in (
        ({}, [[1.0, 6.0], [2.0, 4.0]]),
        ({"causal": True}, [[4.0, 0.0], [2.0, 4.0]]),
        ({"scale": 0.0}, [[2.0, 4.0], [2.0, 4.0]]),
        ({"relative": Offsets(torch.arange(3), torch.tensor([[-ln_3, 0.0, ln_3]]))}, [[2.0, 4.0], [3.0, 2.0]]),
    ):
        out = attend(qkv, _layout([2]), **options)[:, 0]
        assert torch.allclose(out, torch.tensor(wanted), rtol=0, atol=1e-6)


def test_B108_no_argument_can_turn_the_isolation_off() -> None:
    """Elsewhere a mask of ones does. Here borders are part of the layout, and no mask is an argument."""
    assert list(inspect.signature(attend).parameters) == [
        "qkv_T3HK", "layout", "window", "causal", "scale", "relative", "dropout",
    ]  # fmt: skip


def test_dropout_keeps_the_mean_and_draws_anew() -> None:
    torch.manual_seed(0)
    qkv, layout = _qkv([8]), _layout([8])
    draws = torch.stack([attend(qkv, layout, dropout=0.3) for _ in range(3000)])
    assert not torch.equal(draws[0], draws[1])
    assert torch.allclose(draws.mean(0), attend(qkv, layout), rtol=0, atol=0.08)
