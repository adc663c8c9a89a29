"""How new weights begin: the published deviations, from the seed alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from small_models import VARIANTS, goals_of, vocabulary_of

from unmask.config import EncoderConfig, ReplacedTokens
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.build import build_objective

WIDE = dict(hidden_size=128, intermediate_size=256, vocab_size=500)
CUT = 0.8796  # deviation of a normal distribution cut at two deviations


def _new(name: str, seed: int = 0, **changes: object) -> tuple[EncoderConfig, dict[str, torch.Tensor]]:
    config = replace(VARIANTS[name], **{**WIDE, **changes})
    encoder, objective = Encoder(config), build_objective(config, goals_of(name), vocabulary_of(config))
    draw = torch.Generator().manual_seed(seed)
    for module in (encoder, objective):
        initialise(module, config, draw)
    return config, {**encoder.state_dict(), **objective.state_dict()}


@pytest.mark.parametrize("name", VARIANTS)
def test_norms_begin_at_1_and_biases_at_0(name: str) -> None:
    _, state = _new(name)
    for key, tensor in state.items():
        if key.endswith("bias"):
            assert not tensor.any(), key
        elif "norm" in key:
            assert bool((tensor == 1).all()), key
        else:
            assert tensor.any(), key


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "deberta-v3"])
def test_matrices_and_tables_begin_with_one_deviation(name: str) -> None:
    config, state = _new(name, initializer_range=0.05)
    for key, tensor in state.items():
        if key.endswith("weight") and tensor.ndim >= 2 and tensor.numel() > 3000:
            assert tensor.std() == pytest.approx(0.05 * CUT, rel=0.1), key
            assert tensor.abs().max() <= 0.1


@pytest.mark.parametrize("name", ["modernbert", "gpt2"])
def test_what_writes_into_the_residual_stream_begins_smaller(name: str) -> None:
    config, state = _new(name)
    small = 0.02 / math.sqrt(2 * config.num_hidden_layers)
    for key, tensor in state.items():
        if key.startswith("blocks.") and key.endswith("weight") and tensor.ndim == 2:
            writes = key.endswith(("attention.out.weight", "feed_forward.down.weight"))
            assert tensor.std() == pytest.approx((small if writes else 0.02) * CUT, rel=0.05), key


def test_a_shallower_generator_begins_by_its_own_depth() -> None:
    config = replace(VARIANTS["modernbert"], **WIDE, num_hidden_layers=8)
    goal = ReplacedTokens(sharing="none", generator_width=1.0, generator_depth=0.25)
    objective = build_objective(config, (goal,), vocabulary_of(config))
    initialise(objective, config, torch.Generator().manual_seed(0))
    down = objective.state_dict()["parts.rtd.generator.blocks.1.feed_forward.down.weight"]
    assert float(down.std()) == pytest.approx(CUT * config.initializer_range / 2, rel=0.03)


def test_t5_begins_with_the_deviations_of_its_own_code() -> None:
    config, state = _new("t5")
    d, inner = config.hidden_size, config.inner_size
    wanted = {
        "embeddings.tokens.weight": 1.0,
        "blocks.1.attention.out.weight": inner**-0.5,
        "blocks.1.feed_forward.up.weight": d**-0.5,
        "blocks.1.feed_forward.down.weight": config.intermediate_size**-0.5,
    }
    for key, deviation in wanted.items():
        assert state[key].std() == pytest.approx(deviation * CUT, rel=0.05), key
    for qkv in (key for key in state if key.endswith("attention.qkv.weight")):
        q, k, v = state[qkv].chunk(3)
        assert q.std() == pytest.approx((d * config.key_size) ** -0.5 * CUT, rel=0.05), (
            "scores are not scaled, so queries are"
        )
        assert k.std() == pytest.approx(d**-0.5 * CUT, rel=0.05) and v.std() == pytest.approx(d**-0.5 * CUT, rel=0.05)
    cross = next(key for key in state if key.endswith("cross.query.weight"))
    assert state[cross].std() == pytest.approx((d * config.key_size) ** -0.5 * CUT, rel=0.05)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name: str) -> None:
    torch.manual_seed(1)
    one = _new(name)[1]
    torch.manual_seed(2)
    same, other = _new(name)[1], _new(name, seed=5)[1]
    assert all(torch.equal(tensor, same[key]) for key, tensor in one.items())
    tables = [key for key in one if key.endswith("weight") and one[key].ndim >= 2]
    assert not any(torch.equal(one[key], other[key]) for key in tables)
