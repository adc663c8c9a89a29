"""Tokens that ask alone get the answers, and give the gradients, that they have among all others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_models import VARIANTS, our_network, sequences

from unmask.nn.attend import attend_from
from unmask.nn.encoder import Encoder
from unmask.nn.kernels.plain import attend_plainly


@pytest.mark.parametrize("lengths", [[300, 1, 280, 31], [270], [3, 256]])
@pytest.mark.parametrize("window", [0, 8])
def test_answers_and_gradients_are_those_among_all_tokens(lengths: list[int], window: int) -> None:
    torch.manual_seed(0)
    layout = sequences(lengths, VARIANTS["bert"]).layout
    total = sum(lengths)
    where = torch.randperm(total)[: total // 5].sort().values
    qkv = torch.randn(total, 3, 2, 16, requires_grad=True)
    upstream = torch.randn(len(where), 2, 16)
    mine = attend_from(qkv, layout, where, window=window)
    whole = attend_plainly(qkv, layout, window=window).index_select(0, where)
    torch.testing.assert_close(mine, whole, atol=1e-5, rtol=1e-5)
    found, wanted = (torch.autograd.grad(y, qkv, upstream)[0] for y in (mine, whole))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_the_last_layer_of_long_texts_is_the_same_where_it_is_read(name: str) -> None:
    config = replace(VARIANTS[name], max_position_embeddings=512)
    encoder, _ = our_network(config, ())
    assert isinstance(encoder, Encoder)
    batch = sequences([290, 5, 1], config)
    where = torch.tensor([0, 3, 200, 289, 291])  # none of the last sequence
    read = encoder.layers(batch, read_M=where)[-1]
    torch.testing.assert_close(read[where], encoder.layers(batch)[-1][where], atol=1e-5, rtol=1e-5)
