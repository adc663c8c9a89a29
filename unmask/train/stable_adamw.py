"""StableAdamW: AdamW whose step shrinks where a gradient outgrew what the second moment has seen of it.

Wortsman et al. 2023 ("Stable and low-precision training", algorithm 2). For each tensor, with bias-corrected moments m and u,

    RMS = √ mean(g² / max(u, ε²)),    η = rate / max(1, RMS),    θ ← θ − η·decay·θ − η·m / (√u + ε)

All arithmetic is torch's `_foreach` operations over lists of tensors: one call for a whole network, and nothing waits for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class StableAdamW(torch.optim.Optimizer):
    """`step` counts on the CPU; the other state is named and shaped as AdamW's."""

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        learning_rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
    ) -> None:
        defaults = {"lr": learning_rate, "beta1": beta1, "beta2": beta2, "eps": epsilon, "weight_decay": 0.0}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        assert closure is None, "the gradient is computed before"
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        states = [self._state(p) for p in parameters]
        firsts, seconds, counts = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_add_(counts, 1)
        step, unbiased = float(counts[0]), 1 - group["beta1"] ** float(counts[0])
        torch._foreach_lerp_(firsts, gradients, 1 - group["beta1"])
        torch._foreach_mul_(seconds, group["beta2"])
        torch._foreach_addcmul_(seconds, gradients, gradients, 1 - group["beta2"])
        roots, correction = torch._foreach_sqrt(seconds), math.sqrt(1 - group["beta2"] ** step)
        rates = _rates(gradients, list(roots), correction, group)
        torch._foreach_add_(roots, correction * group["eps"])
        torch._foreach_div_(roots, rates)
        if group["weight_decay"]:
            torch._foreach_mul_(rates, -group["weight_decay"])
            torch._foreach_add_(rates, 1)
            torch._foreach_mul_(parameters, rates)
        torch._foreach_addcdiv_(parameters, firsts, roots, value=-correction / unbiased)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def _rates(gradients: list[Tensor], roots: list[Tensor], correction: float, group: dict[str, Any]) -> list[Tensor]:
    """The learning rate of each tensor, from its gradient and √u = `roots` / `correction`."""
    ratios = torch._foreach_clamp_min(roots, correction * group["eps"])
    torch._foreach_reciprocal_(ratios)
    torch._foreach_mul_(ratios, gradients)
    rates = torch._foreach_norm(ratios)
    torch._foreach_mul_(rates, [correction / math.sqrt(g.numel()) for g in gradients])
    torch._foreach_clamp_min_(rates, 1.0)
    torch._foreach_reciprocal_(rates)
    torch._foreach_mul_(rates, group["lr"])
    return list(rates)
