"""RoPE in place equals its definition, and its gradient turns back."""

import torch

from unmask.nn.kernels.rotary import turn, turn_plainly


def _angles(tokens: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.randn(tokens, 1, half)
    return angles.cos(), angles.sin()


def test_values_and_gradients_are_those_of_the_definition():
    torch.manual_seed(0)
    x, upstream = torch.randn(7, 3 * 2 * 8, requires_grad=True), torch.randn(7, 3 * 2 * 8)
    angles = _angles(7, 4)
    ours, plain = turn(x * 1, 2, *angles), turn_plainly(x, 2, *angles)
    torch.testing.assert_close(ours, plain, atol=1e-6, rtol=1e-6)
    mine, other = (torch.autograd.grad(y, x, upstream)[0] for y in (ours, plain))
    torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-6)


def test_a_gradient_that_others_hold_is_not_overwritten():
    x, upstream = torch.randn(3, 12, requires_grad=True), torch.randn(3, 12)
    kept = upstream.clone()
    turn(x * 1, 1, *_angles(3, 2)).backward(upstream)
    assert torch.equal(upstream, kept)


def test_values_are_not_turned():
    x = torch.randn(5, 3 * 2 * 4)
    values = x[:, 16:].clone()
    assert torch.equal(turn(x, 2, *_angles(5, 2))[:, 16:], values)
