"""One state out of those of all layers, weighed by what a task needs (ELMo: Peters et al. 2018, section 3.2, equation 1).

Legend: T tokens, L layers, D hidden_size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LayerMix(nn.Module):
    """γ · Σ softmax(w)_l · h_l over the embedded tokens and the L layers: L + 1 weights and one scale.

    It begins as the mean of all layers and stands still until a task lets it learn: pre-training does not look at it.
    """

    def __init__(self, states: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def learn(self) -> None:
        """From now on the mix is trained with the rest."""
        self.requires_grad_(True)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """[T, D]"""
        shares = (self.scale * self.weights.softmax(0)).to(states[0].dtype)
        out = shares[0] * states[0]
        for share, state in zip(shares[1:], states[1:], strict=True):
            out = out + share * state
        return out
