"""The gated unit equals its definition, forward and backward."""

import pytest
import torch

from unmask.config import Activation
from unmask.nn.kernels.activation import activation
from unmask.nn.kernels.gated import gated, gated_plainly


@pytest.mark.parametrize("name", ["gelu", "silu", "relu", "gelu_tanh"])
@pytest.mark.parametrize("rows", [1, 17])
def test_values_and_gradients_are_those_of_the_definition(name: Activation, rows: int):
    torch.manual_seed(0)
    x, upstream = torch.randn(rows, 24, requires_grad=True), torch.randn(rows, 12)
    ours, plain = gated(x, name, activation(name)), gated_plainly(x, activation(name))
    torch.testing.assert_close(ours, plain, atol=1e-6, rtol=1e-6)
    mine, other = (torch.autograd.grad(y, x, upstream)[0] for y in (ours, plain))
    torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_the_gradient_is_the_slope(name: Activation):
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: gated(x, name, activation(name)), x)
