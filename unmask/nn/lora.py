"""Low-rank adapters (LoRA, Hu et al. 2021): a network that stays as it is, and beside each matrix a small product that learns.

Legend: R rank, I width in, O width out.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from unmask.nn.encoder import Encoder
from unmask.nn.kernels.linear import Linear, LowRank


class Adapted(Linear):
    """A linear layer whose matrix is W + scale · B·A (section 4.1). In its state `weight` is W, which does not move."""

    def __init__(self, plain: Linear, rank: int, alpha: float, generator: torch.Generator):
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.scale = plain.in_features, plain.out_features, alpha / rank
        self._parameters.update(plain._parameters)  # by hand: the name `weight` is the property's here
        down_RI = torch.empty(rank, plain.in_features)
        nn.init.uniform_(down_RI, -(plain.in_features**-0.5), plain.in_features**-0.5, generator=generator)
        self.lora_A = nn.Parameter(down_RI.to(plain.weight))
        self.lora_B = nn.Parameter(plain.weight.new_zeros(plain.out_features, rank))  # so that it begins as W alone

    @property
    def weight(self) -> LowRank:  # type: ignore[override]
        """What `linear` takes for a matrix."""
        return LowRank(self.base, self.lora_A, self.lora_B, self.scale)

    @property
    def base(self) -> Tensor:
        """W [O, I]"""
        weight = self._parameters["weight"]
        assert weight is not None
        return weight

    @torch.no_grad()
    def merged(self) -> Linear:
        """The same layer with one matrix, added up in double precision: a GPU that trains rounds products to 10 bits."""
        plain = Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        added = self.scale * (self.lora_B.double() @ self.lora_A.double())
        plain.weight = nn.Parameter((self.base.double() + added).to(self.base))
        plain.bias = self.bias
        return plain


def adapt(encoder: Encoder, rank: int, alpha: float, *, above: int, generator: torch.Generator) -> None:
    """From now on only adapters learn, one at each matrix of attention and feed-forward in the blocks from `above` on.

    A matrix that we keep as one (queries, keys and values; the two halves of a gated unit) has one adapter.
    """
    encoder.requires_grad_(False)
    for parent, name, plain in list(_linears(encoder, above)):
        setattr(parent, name, Adapted(plain, rank, alpha, generator))


def merge(encoder: Encoder) -> None:
    """Adds the adapters to their matrices and takes them away: the network that a model folder holds."""
    for parent, name, layer in list(_linears(encoder, 0)):
        if isinstance(layer, Adapted):
            setattr(parent, name, layer.merged())


def _linears(encoder: Encoder, above: int) -> Iterator[tuple[nn.Module, str, Linear]]:
    """Each with the module it is part of, and its name there."""
    for block in list(encoder.blocks)[above:]:
        for parent in block.modules():
            for name, layer in parent.named_children():
                if isinstance(layer, Linear):
                    yield parent, name, layer
