from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import Layout
from unmask.nn.attend import attend, attend_plainly

HEADS, HEAD_SIZE = 3, 8
LENGTHS = st.lists(st.integers(1, 24), min_size=1, max_size=9)


def _layout(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor([0, *lengths]).cumsum(0).int())


def _qkv(lengths: list[int], seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), 3, HEADS, HEAD_SIZE, generator=generator, dtype=dtype)


@settings(max_examples=20, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99), ordered=st.booleans())
def test_the_fast_attention_is_the_plain_one_forward_and_backward(lengths: list[int], seed: int, ordered: bool) -> None:
    lengths = sorted(lengths) if ordered else lengths  # sorted lengths fall into larger groups, with padding in them
    layout = _layout(lengths)
    fast, plain = (_qkv(lengths, seed).requires_grad_() for _ in range(2))
    one, other = attend(fast, layout), attend_plainly(plain, layout)
    weights = torch.randn(one.shape, generator=torch.Generator().manual_seed(seed + 1))
    (one * weights).sum().backward()
    (other * weights).sum().backward()
    assert one.shape == (sum(lengths), HEADS, HEAD_SIZE)
    assert torch.allclose(one, other, rtol=0, atol=2e-6)
    assert torch.allclose(fast.grad, plain.grad, rtol=0, atol=5e-6)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 24), min_size=2, max_size=9), seed=st.integers(0, 99), data=st.data())
def test_no_output_and_no_gradient_crosses_a_sequence_border(
    lengths: list[int], seed: int, data: st.DataObject
) -> None:
    changed = data.draw(st.integers(0, len(lengths) - 1))
    layout = _layout(lengths)
    inside = layout.rows == changed
    before = _qkv(lengths, seed).requires_grad_()
    after = torch.where(inside[:, None, None, None], _qkv(lengths, seed + 1000), before.detach())
    one, other = attend(before, layout), attend(after, layout)
    assert torch.equal(one[~inside], other[~inside])
    one[inside].sum().backward()
    assert not before.grad[~inside].any()
    assert before.grad[inside].any()


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_the_gradient_of_attention_is_its_slope(lengths: list[int]) -> None:
    layout = _layout(lengths)
    qkv = _qkv(lengths, dtype=torch.float64)[:, :, :1, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: attend(x, layout), (qkv,))


def test_one_token_attends_to_itself_alone() -> None:
    qkv = _qkv([1, 1, 1])
    assert torch.allclose(attend(qkv, _layout([1, 1, 1])), qkv[:, 2], rtol=0, atol=1e-6)


def test_two_tokens_by_hand() -> None:
    """q·k/√2 of the first token: 0 and √2·ln 3 / √2 = ln 3, so its weights are 1/4 and 3/4."""
    root_2, ln_3 = 2**0.5, float(torch.tensor(3.0).log())
    q, k = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [root_2 * ln_3, 0.0]])
    v = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    out = attend(torch.stack([q, k, v], 1)[:, :, None], _layout([2]))[:, 0]
    assert torch.allclose(out, torch.tensor([[1.0, 6.0], [2.0, 4.0]]), rtol=0, atol=1e-6)
