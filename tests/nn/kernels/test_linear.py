"""Matrix products equal torch's own, forward and backward, in every shape that occurs."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.config import Activation
from unmask.nn.kernels.activation import activation
from unmask.nn.kernels.linear import Linear, activated, linear, pack, product


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 70), st.integers(1, 70), st.booleans())
def test_values_and_gradients_are_those_of_torch(rows, wide_in, wide_out, with_bias):
    torch.manual_seed(0)
    x, w = torch.randn(*rows, wide_in, requires_grad=True), torch.randn(wide_out, wide_in, requires_grad=True)
    b = torch.randn(wide_out, requires_grad=True) if with_bias else None
    ours, theirs = linear(x, w, b), F.linear(x, w, b)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    inputs, upstream = [x, w] + ([b] if with_bias else []), torch.randn_like(ours)
    for mine, other in zip(
        torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(theirs, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_tensors_that_are_views_of_others_are_read_right():
    x, w = torch.randn(11, 30)[:, 5:21], torch.randn(16, 9).t()
    torch.testing.assert_close(product(x, w), x @ w.t(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(product(x.t(), torch.randn(11, 4).t()[:3].contiguous()).shape, torch.Size([16, 3]))


def test_no_rows_give_no_rows():
    layer = Linear(4, 3)
    out = layer(torch.zeros(0, 4))
    out.sum().backward()
    assert out.shape == (0, 3) and not layer.weight.grad.any()


def test_gradients_are_made_only_where_they_are_wanted():
    x, w = torch.randn(5, 4), torch.randn(3, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(linear(x, w).sum(), [w])
    torch.testing.assert_close(grad, x.sum(0).expand(3, 4))
    with torch.no_grad():
        assert linear(x, w).grad_fn is None


def test_autocast_still_chooses_the_precision():
    x, layer = torch.randn(8, 16), Linear(16, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu", "silu", "tanh"])
@pytest.mark.parametrize("graded", [True, False])
def test_a_fused_activation_is_the_plain_one(name: Activation, graded: bool):
    x, w, b = torch.randn(50, 32) * 3, torch.randn(20, 32), torch.randn(20)
    with torch.set_grad_enabled(graded):
        torch.testing.assert_close(activated(x, w, b, name), activation(name)(F.linear(x, w, b)), atol=1e-5, rtol=1e-5)


def test_a_packed_matrix_gives_the_same_numbers_bit_for_bit():
    torch.manual_seed(0)
    layer, x = Linear(48, 80), torch.randn(70, 48)
    plain, fused = layer(x), activated(x, layer.weight, layer.bias, "gelu")
    with torch.no_grad():
        pack(torch.nn.Sequential(layer), rows=64)
        assert layer.weight.packed.matrix.layout == torch._mkldnn
        assert torch.equal(layer(x), plain)
        torch.testing.assert_close(activated(x, layer.weight, layer.bias, "gelu"), fused, atol=1e-6, rtol=1e-5)
    out = layer(x)
    assert torch.equal(out, plain) and out.requires_grad


def test_a_matrix_that_changes_after_packing_is_read_as_it_is_now():
    layer, other, x = Linear(48, 80), Linear(48, 80), torch.randn(70, 48)
    pack(layer, rows=64)
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer(x), other(x))
    pack(layer, rows=64)
    layer.weight.data = torch.zeros(80, 48)
    assert torch.equal(layer(x), other.bias.expand(70, 80))
