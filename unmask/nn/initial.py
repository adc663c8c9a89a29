"""How new weights start."""

from __future__ import annotations

import torch
from torch import nn


def initialise(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """BERT's start: matrices and embeddings from a normal distribution cut at two deviations, biases 0, norms 1."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
