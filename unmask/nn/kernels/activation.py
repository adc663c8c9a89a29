"""Non-linearities by their names."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.config import Activation


def activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """A non-linearity; `gelu` is exact, `gelu_tanh` the approximation of the first BERT code."""
    match name:
        case "gelu":
            return F.gelu
        case "gelu_tanh":
            return lambda x: F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu
        case "silu":
            return F.silu
        case "tanh":
            return torch.tanh
