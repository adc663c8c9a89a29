"""Layer-wise learning rates and freezing, on real parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_models import SMALL

from unmask.errors import UnmaskError
from unmask.nn.encoder import Encoder
from unmask.tasks.layers import freeze, layer_scales


def test_each_layer_below_the_top_moves_slower_by_the_decay() -> None:
    encoder = Encoder(SMALL)
    scales = layer_scales(SMALL, encoder, 0.5)
    assert scales["encoder.blocks.2.attention.qkv.weight"] == 1
    assert scales["encoder.blocks.1.feed_forward.up.bias"] == 0.5
    assert scales["encoder.blocks.0.attention.out.weight"] == 0.25
    assert scales["encoder.embeddings.tokens.weight"] == 0.125
    assert scales.keys() == {f"encoder.{name}" for name, _ in encoder.named_parameters()}
    assert layer_scales(SMALL, encoder, 1.0) == {}


def test_a_shared_block_moves_like_its_highest_layer() -> None:
    config = replace(SMALL, num_hidden_layers=4, num_hidden_groups=2)
    scales = layer_scales(config, Encoder(config), 0.5)
    assert scales["encoder.blocks.1.attention.qkv.weight"] == 1
    assert scales["encoder.blocks.0.attention.qkv.weight"] == 0.25


def test_frozen_layers_and_all_below_them_want_no_gradient() -> None:
    encoder = Encoder(SMALL)
    freeze(encoder, 2)
    moving = {name for name, p in encoder.named_parameters() if p.requires_grad}
    assert moving == {name for name, _ in encoder.named_parameters() if name.startswith("blocks.2.")}
    freeze(Encoder(SMALL), 0)
    with pytest.raises(UnmaskError, match="has 3"):
        freeze(Encoder(SMALL), 4)
