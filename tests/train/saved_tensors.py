"""Tensors to save, and what is saved in a folder."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor


def tensors(step: int) -> dict[str, dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(step)
    return {
        "encoder": {
            "word.weight": torch.randn(7, 5, generator=draw),
            "bias": torch.randn(3, generator=draw).bfloat16(),
        },
        "objective": {"scale": torch.tensor(1.5), "empty": torch.zeros(0, 4)},
        "optimizer": {"step": torch.tensor(step), "moment": torch.randn(4, generator=draw, dtype=torch.float64)},
    }


def same(left: dict[str, dict[str, Tensor]], right: dict[str, dict[str, Tensor]]) -> bool:
    return left.keys() == right.keys() and all(
        left[group].keys() == right[group].keys()
        and all(
            left[group][name].dtype == right[group][name].dtype
            and torch.equal(left[group][name].view(-1).view(torch.uint8), right[group][name].view(-1).view(torch.uint8))
            and left[group][name].shape == right[group][name].shape
            for name in left[group]
        )
        for group in left
    )


def steps(folder: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(folder))
