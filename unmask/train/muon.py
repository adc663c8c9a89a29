"""Muon: momentum made orthogonal for the matrices inside the blocks, AdamW for everything else.

Jordan et al. 2024 ("Muon: an optimizer for hidden layers in neural networks"), with Liu et al. 2025's scale ("Muon is scalable
for LLM training", section 2.2), which makes an update as large as AdamW's so that one learning rate serves both. torch.optim.Muon
is the specification; here all matrices of one shape go through the iteration together, and in fp32 where bf16 is emulated.

Legend: N matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unmask.train.machine import has_bf16

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration (Jordan et al. 2024)
ITERATIONS = 5
SMALLEST = 1e-7  # a gradient shorter than this is not made longer
SIZE = 0.2  # of an update's entries on the average: AdamW's are between 0.2 and 0.4 (Liu et al. 2025)


class Muon(torch.optim.Optimizer):
    """One optimizer to the outside: its first group are the matrices, the others are AdamW's.

    `parts` says for each matrix how many it holds, one above the other: queries, keys and values are three.
    """

    def __init__(
        self,
        matrices: Mapping[torch.nn.Parameter, int],
        others: Sequence[dict[str, Any]],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        betas: tuple[float, float],
        epsilon: float,
    ) -> None:
        first = {
            "params": list(matrices),
            "lr": learning_rate,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "scale": 1.0,
        }
        super().__init__([first], {})
        self.parts = dict(matrices)
        self.adamw = torch.optim.AdamW(others, lr=learning_rate, betas=betas, eps=epsilon, fused=True)
        self.adamw.state = self.state
        self.param_groups += self.adamw.param_groups

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        assert closure is None, "the gradient is computed before"
        group = self.param_groups[0]
        matrices = [p for p in group["params"] if p.grad is not None]
        if matrices:
            self._update(matrices, group)
        self.adamw.step()

    def _update(self, matrices: list[torch.nn.Parameter], group: dict[str, Any]) -> None:
        gradients = [p.grad for p in matrices if p.grad is not None]
        buffers = [self._buffer(p) for p in matrices]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, buffers, group["momentum"])  # Nesterov's look ahead
        torch._foreach_mul_(list[Tensor](matrices), 1 - group["lr"] * group["weight_decay"])
        by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for p, update in zip(matrices, updates, strict=True):
            rows = len(p) // self.parts[p]
            by_shape.setdefault((rows, p.shape[1]), []).append((p, update))
        for (rows, columns), pairs in by_shape.items():
            places, directions = zip(*pairs, strict=True)
            turned = orthogonal(torch.cat(directions).view(-1, rows, columns)).view(-1, columns)
            rate = group["lr"] * SIZE * math.sqrt(max(rows, columns))
            torch._foreach_add_(list(places), list(turned.split([len(p) for p in places])), alpha=-rate)

    def _buffer(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def orthogonal(x_NRC: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Each matrix with its singular values brought near 1 (between about 0.7 and 1.2) by a Newton–Schulz iteration.

    In bf16, as published, where the hardware has it, else in fp32; comes back in the type it came in.
    """
    dtype = dtype or (torch.bfloat16 if has_bf16(x_NRC.device) else torch.float32)
    a, b, c = COEFFICIENTS
    wide = x_NRC.shape[1] <= x_NRC.shape[2]
    x = (x_NRC if wide else x_NRC.transpose(1, 2)).to(dtype)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST)
    for _ in range(ITERATIONS):
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.transpose(1, 2)).to(x_NRC.dtype).contiguous()
