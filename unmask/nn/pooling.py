"""From the hidden states of a text's tokens to its one vector: sentence-transformers' ways, under its names.

Legend: T tokens of a batch, B texts, D hidden_size, M modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from unmask.errors import UnmaskError

Mode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Pooling:
    """Which tokens make the vector, and how; several modes are put side by side.

    Special tokens count like others. The first `skip` tokens of each text do not, a prompt that should only steer
    the others; they take part again where nothing else would be left.
    """

    modes: tuple[Mode, ...] = ("mean",)
    skip: int = 0

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in MODES:
                raise UnmaskError(f"unknown pooling {mode!r}", where="pooling", do=f"give one of {', '.join(MODES)}")
        if not self.modes:
            raise UnmaskError("no pooling is named", where="pooling", do=f"give one of {', '.join(MODES)}")

    @classmethod
    def of(cls, names: str | Sequence[str]) -> Pooling:
        """From the name of a mode, or several: "mean", ("cls", "mean"); UnmaskError for one that there is not."""
        return cls((names,) if isinstance(names, str) else tuple(names))  # type: ignore[arg-type]  # checked above


def pool(hidden_TD: Tensor, lengths_B: Tensor, pooling: Pooling) -> Tensor:
    """[B, M·D] in fp32; texts lie end to end, and none may be empty.

    mean, mean_sqrt_len_tokens: the sum over a text's tokens by their number or its root. weightedmean: token i of a
    text weighs i, counted from 1 (Muennighoff 2022, section 3). max: the largest of each number. cls, lasttoken: the
    state of the first or the last token.
    """
    ends_B = lengths_B.cumsum(0)
    first_B = ends_B - lengths_B
    begin_B = torch.where(lengths_B > pooling.skip, first_B + pooling.skip, first_B)
    vectors = [_one(mode, hidden_TD.float(), first_B, begin_B, ends_B) for mode in pooling.modes]
    return torch.cat(vectors, 1) if len(vectors) > 1 else vectors[0]


def _one(mode: Mode, hidden_TD: Tensor, first_B: Tensor, begin_B: Tensor, ends_B: Tensor) -> Tensor:
    match mode:
        case "cls":
            return hidden_TD[begin_B]
        case "lasttoken":
            return hidden_TD[ends_B - 1]
    rows_T, places_T = _counted(first_B, begin_B, ends_B)
    seen_TD = hidden_TD if len(rows_T) == len(hidden_TD) else hidden_TD[places_T]
    if mode == "max":
        lowest = hidden_TD.new_full((len(ends_B), hidden_TD.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, rows_T[:, None].expand_as(seen_TD), seen_TD, "amax")
    empty_BD = hidden_TD.new_zeros(len(ends_B), hidden_TD.shape[1])
    if mode == "weightedmean":
        weights_T = (places_T - first_B[rows_T] + 1).float()
        total_B = torch.zeros_like(empty_BD[:, 0]).index_add(0, rows_T, weights_T)
        return empty_BD.index_add(0, rows_T, seen_TD * weights_T[:, None]) / total_B[:, None]
    count_B = (ends_B - begin_B).float()
    return empty_BD.index_add(0, rows_T, seen_TD) / (count_B if mode == "mean" else count_B.sqrt())[:, None]


def _counted(first_B: Tensor, begin_B: Tensor, ends_B: Tensor) -> tuple[Tensor, Tensor]:
    """The text and the place of each token that takes part."""
    sizes_B = ends_B - begin_B
    rows_T = torch.repeat_interleave(torch.arange(len(sizes_B), device=sizes_B.device), sizes_B)
    before_B = sizes_B.cumsum(0) - sizes_B
    return rows_T, torch.arange(len(rows_T), device=sizes_B.device) + (begin_B - before_B)[rows_T]
