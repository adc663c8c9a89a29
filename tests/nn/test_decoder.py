"""A decoder looks back on its own side and at its own source, and at nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_models import VARIANTS, randomise

from unmask.batch import Layout
from unmask.config import EncoderConfig
from unmask.nn.decoder import Decoder

TARGETS, SOURCES = [5, 1, 9], [7, 12, 3]
POST_NORM = replace(
    VARIANTS["bert"], type_vocab_size=0, num_attention_heads=4, hidden_dropout_prob=0.0
)  # nobody published it, and the parts allow it


def _layout(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor([0, *lengths]).cumsum(0).int())


def _parts(config: EncoderConfig) -> tuple[Decoder, torch.Tensor, torch.Tensor]:
    decoder = Decoder(config, 2)
    randomise(decoder, 1)
    draw = torch.Generator().manual_seed(0)
    sides = (torch.randn(sum(lengths), config.hidden_size, generator=draw) for lengths in (TARGETS, SOURCES))
    return (decoder.eval(), *sides)


@pytest.mark.parametrize("config", [VARIANTS["t5"], POST_NORM], ids=["t5", "post-norm"])
def test_a_target_token_depends_on_what_stands_before_it_and_on_its_whole_source(config: EncoderConfig) -> None:
    decoder, x, source = _parts(config)
    x, source = x.requires_grad_(), source.requires_grad_()
    out = decoder(x, _layout(TARGETS), source, _layout(SOURCES))
    assert out.shape == x.shape
    out[5 + 1 + 4].square().sum().backward()  # the fifth token of the last sequence
    seen, asked = (grad.abs().sum(1) > 0 for grad in (x.grad, source.grad))
    assert seen.tolist() == [False] * 6 + [True] * 5 + [False] * 4
    assert asked.tolist() == [False] * 19 + [True] * 3


@pytest.mark.parametrize("config", [VARIANTS["t5"], POST_NORM], ids=["t5", "post-norm"])
@torch.no_grad()
def test_packed_with_neighbours_equals_alone(config: EncoderConfig) -> None:
    decoder, x, source = _parts(config)
    together = decoder(x, _layout(TARGETS), source, _layout(SOURCES))
    sides = zip(x.split(TARGETS), source.split(SOURCES), strict=True)
    for found, (one, its) in zip(together.split(TARGETS), sides, strict=True):
        torch.testing.assert_close(
            found, decoder(one, _layout([len(one)]), its, _layout([len(its)])), atol=1e-5, rtol=1e-4
        )


def test_the_gradient_reaches_every_parameter() -> None:
    decoder, x, source = _parts(VARIANTS["t5"])
    decoder(x, _layout(TARGETS), source, _layout(SOURCES)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in decoder.parameters())
