"""What a network costs: the formulas against what is built, and against torch's own count of what is computed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from small_models import VARIANTS, goals_of, our_network, sequences
from torch.utils.flop_counter import FlopCounterMode

from unmask.config import Disentangled, EncoderConfig
from unmask.nn.cost import (
    attention_flops,
    block_matrices,
    count_parameters,
    encoder_flops,
    token_head_flops,
    training_bytes,
)
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead

OF_A_CPU = {  # torch counts none of its kernels for a CPU alone; [T, I] · [O, I], and [S, H, L, K] three times
    torch.ops.mkldnn._linear_pointwise: lambda x, w, *rest, **more: 2 * math.prod(x) * w[0],
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *rest, **more: 4 * math.prod(q) * k[2],
}
DENSE = [name for name in VARIANTS if name not in ("modernbert",)]


def test_a_tied_matrix_counts_once_and_modules_without_memory_count_too() -> None:
    encoder, objective = our_network(VARIANTS["bert"], goals_of("bert"))
    together = count_parameters(encoder, objective)
    assert together == sum(p.numel() for module in (encoder, objective) for p in module.parameters())
    assert count_parameters(encoder, encoder) == count_parameters(encoder)
    with torch.device("meta"):
        assert count_parameters(Encoder(VARIANTS["bert"])) == count_parameters(encoder)


def test_flops_of_one_token_have_the_value_worked_by_hand() -> None:
    e = EncoderConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    matrices = 2 * (4 * 16 + 2 * 32)  # qkv and out, up and down
    attention = 4 * 4  # scores and sums over one place
    assert encoder_flops(e, [1]) == matrices + attention
    assert block_matrices(e) == 4 * 16 + 2 * 32 and attention_flops(e, [1]) == attention
    assert token_head_flops(e, 2) == 2 * 2 * (16 + 40)
    assert token_head_flops(replace(e, head_transform=False), 2) == 2 * 2 * 40


def test_a_window_costs_what_it_sees() -> None:
    e = VARIANTS["modernbert"]
    inner = e.inner_size
    assert attention_flops(e, [64], window=4) == 4.0 * 64 * 9 * inner
    assert attention_flops(e, [5], window=4) == attention_flops(e, [5]) == 4.0 * 25 * inner


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("lengths", [[40], [16, 16, 16]])
def test_the_formula_is_what_torch_counts(name: str, lengths: list[int]) -> None:
    """Equal lengths, where nothing is spent on padding. DeBERTa's kernel scores places of neighbouring queries too."""
    config = VARIANTS[name]
    encoder, _ = our_network(config, ())
    batch = sequences(lengths, config)
    with FlopCounterMode(display=False, custom_mapping=OF_A_CPU) as counter:
        encoder(batch)
    counted = counter.get_total_flops()
    if isinstance(config.positions, Disentangled):
        assert 0.75 * counted < encoder_flops(config, lengths) < 1.03 * counted
    else:
        assert encoder_flops(config, lengths) == pytest.approx(counted)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_formula_of_the_head_is_what_torch_counts(name: str) -> None:
    config = VARIANTS[name]
    head, table = TokenHead(config), torch.randn(config.vocab_size, config.table_size)
    with FlopCounterMode(display=False, custom_mapping=OF_A_CPU) as counter:
        head(torch.randn(7, config.hidden_size), table).dense()
    assert token_head_flops(config, 7) == counter.get_total_flops()


@pytest.mark.parametrize("name", VARIANTS)
def test_memory_holds_at_least_weights_gradient_and_two_moments(name: str) -> None:
    config = VARIANTS[name]
    parameters = count_parameters(Encoder(config))
    assert training_bytes(config, parameters, 0, 0) == 16 * parameters
    assert training_bytes(config, parameters, 64, 9) > training_bytes(config, parameters, 32, 9)
