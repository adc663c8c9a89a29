"""Layers from the bottom up: which stay as they are, which get adapters, and how fast each may move."""

from __future__ import annotations

import re

import torch

from unmask.config import EncoderConfig, Recurrent
from unmask.errors import UnmaskError
from unmask.nn.encoder import Encoder
from unmask.nn.lora import adapt

_BLOCK = re.compile(r"^blocks\.(\d+)\.")
_ABOVE = ("norm.", "mix.")  # parts of an encoder above all blocks


def layer_scales(config: EncoderConfig, encoder: Encoder, decay: float) -> dict[str, float]:
    """What the learning rate of each parameter is multiplied by: `decay` once for each layer above it (Howard and Ruder
    2018, section 3.2); the embeddings lie below the lowest layer, heads have 1. Empty when nothing decays.

    A block that several layers share moves like the highest of them.
    """
    if decay == 1:
        return {}
    highest = {config.block_of(layer): layer for layer in range(config.num_hidden_layers)}
    found = {}
    for name, _ in encoder.named_parameters():
        block = _BLOCK.match(name)
        above = config.num_hidden_layers - 1 - highest[int(block[1])] if block else config.num_hidden_layers
        found[f"encoder.{name}"] = 1.0 if name.startswith(_ABOVE) else decay**above
    return found


def freeze(encoder: Encoder, layers: int) -> None:
    """The lowest `layers` blocks stay as they are, and with the first of them all that lies below."""
    if not layers:
        return
    if layers > encoder.config.num_blocks:
        raise UnmaskError(
            f"frozen_layers is {layers}, but the model has {encoder.config.num_blocks} with weights of their own",
            do="freeze fewer layers",
        )
    for name, parameter in encoder.named_parameters():
        block = _BLOCK.match(name)
        if not name.startswith(_ABOVE) and (block is None or int(block[1]) < layers):
            parameter.requires_grad_(False)


def add_adapters(encoder: Encoder, rank: int, alpha: float, frozen_layers: int, generator: torch.Generator) -> None:
    """Only adapters of this rank learn, in the layers that are not frozen; none where the rank is 0."""
    if not rank:
        return
    if isinstance(encoder.config.layer, Recurrent):
        raise UnmaskError("lora_rank needs a network of attention: LSTMs have no adapters", do="set lora_rank=0")
    if frozen_layers == encoder.config.num_blocks:
        raise UnmaskError("frozen_layers leaves no layer for adapters", do="freeze fewer layers, or set lora_rank=0")
    if rank > encoder.config.hidden_size:
        raise UnmaskError(
            f"lora_rank is {rank}, but the model's matrices have a rank of {encoder.config.hidden_size} at most",
            do="choose a small rank: 8 is usual",
        )
    adapt(encoder, rank, alpha, above=frozen_layers, generator=generator)
