"""Low-rank adapters: nothing at first, exact gradients, and one matrix again in the end, in every family."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from small_models import SMALL, VARIANTS, randomise, sequences
from torch import Tensor, nn

from unmask.config import EncoderConfig
from unmask.nn.encoder import Encoder
from unmask.nn.kernels.linear import Linear, linear, pack
from unmask.nn.lora import Adapted, adapt, merge
from unmask.train import compiled

RANK, ALPHA = 3, 6.0


def plain_encoder(config: EncoderConfig) -> Encoder:
    encoder = Encoder(config)
    randomise(encoder)
    return encoder.eval()


def adapted_encoder(config: EncoderConfig, *, above: int = 0, begun: bool = True) -> Encoder:
    """With `begun`, B too has numbers."""
    encoder, draw = plain_encoder(config), torch.Generator().manual_seed(5)
    adapt(encoder, RANK, ALPHA, above=above, generator=draw)
    for layer in encoder.modules():
        if begun and isinstance(layer, Adapted):
            nn.init.normal_(layer.lora_B, 0.0, 0.2, generator=draw)
    return encoder


def require_close(one: Tensor, other: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def loss(hidden_TD: Tensor) -> Tensor:
    return (hidden_TD * torch.linspace(-1, 1, hidden_TD.numel()).view_as(hidden_TD)).sum()


@pytest.mark.parametrize("name", VARIANTS)
def test_adapters_change_nothing_before_they_have_learned(name: str) -> None:
    batch = sequences([3, 12, 1, 7], VARIANTS[name])
    adapted = adapted_encoder(VARIANTS[name], begun=False)
    assert torch.equal(adapted(batch), plain_encoder(VARIANTS[name])(batch))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_matrix_of_the_blocks_and_nothing_else_learns(name: str) -> None:
    encoder = adapted_encoder(VARIANTS[name])
    loss(encoder(sequences([3, 12, 1, 7], VARIANTS[name]))).backward()
    moved = {key for key, p in encoder.named_parameters() if p.grad is not None and bool(p.grad.any())}
    matrices = {key for key, part in plain_encoder(VARIANTS[name]).blocks.named_modules() if isinstance(part, Linear)}
    assert moved == {f"blocks.{key}.{which}" for key in matrices for which in ("lora_A", "lora_B")}
    assert moved == {key for key, p in encoder.named_parameters() if p.requires_grad}


def test_layers_below_the_first_adapted_one_have_none() -> None:
    encoder = adapted_encoder(SMALL, above=2)
    assert {key.split(".")[1] for key, p in encoder.named_parameters() if p.requires_grad} == {"2"}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_merged_network_answers_as_before_and_has_its_old_names(name: str) -> None:
    batch, encoder = sequences([3, 12, 1, 7], VARIANTS[name]), adapted_encoder(VARIANTS[name])
    first_M = batch.starts[:-1].long()
    with torch.no_grad():
        before, few = encoder(batch), encoder.layers(batch, read_M=first_M)[-1][first_M]
        assert not torch.allclose(before, plain_encoder(VARIANTS[name])(batch), atol=0.01)
        merge(encoder)
        require_close(encoder(batch), before)
        require_close(encoder.layers(batch, read_M=first_M)[-1][first_M], few)
        pack(encoder, 64)
        require_close(encoder(batch), before)
    assert list(encoder.state_dict()) == list(plain_encoder(VARIANTS[name]).state_dict())


@pytest.mark.parametrize("rows", [slice(None), slice(None, 5), slice(5, None)], ids=["all", "first", "last"])
def test_gradients_are_those_of_two_small_products_beside_the_matrix(rows: slice) -> None:
    draw = torch.Generator().manual_seed(1)
    layer = Adapted(Linear(16, 12), RANK, ALPHA, draw)
    nn.init.normal_(layer.lora_B, generator=draw)
    x = torch.randn(9, 16, generator=draw, requires_grad=True)
    ours = linear(x, layer.weight[rows], layer.bias[rows])
    theirs = (
        F.linear(x, layer.base[rows], layer.bias[rows]) + ALPHA / RANK * (x @ layer.lora_A.T) @ layer.lora_B[rows].T
    )
    require_close(ours, theirs)
    wanted = (x, layer.lora_A, layer.lora_B)
    for one, other in zip(
        torch.autograd.grad(loss(ours), wanted), torch.autograd.grad(loss(theirs), wanted), strict=True
    ):
        require_close(one, other)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_network_s_gradients_are_those_of_the_written_out_matrices(name: str) -> None:
    batch, encoder = sequences([3, 12, 1, 7], VARIANTS[name]), adapted_encoder(VARIANTS[name]).double()
    loss(encoder(batch)).backward()
    low = {key: part for key, part in encoder.named_modules() if isinstance(part, Adapted)}
    wanted = [p for part in low.values() for p in (part.lora_A, part.lora_B)]
    written = {f"{key}.weight": part.base + part.scale * part.lora_B @ part.lora_A for key, part in low.items()}
    whole = torch.func.functional_call(plain_encoder(VARIANTS[name]).double(), written, (batch,))
    for p, gradient in zip(wanted, torch.autograd.grad(loss(whole), wanted), strict=True):
        assert p.grad is not None
        require_close(p.grad, gradient)


def test_a_merged_matrix_is_rounded_once() -> None:
    draw = torch.Generator().manual_seed(2)
    layer = Adapted(Linear(64, 48), RANK, ALPHA, draw)
    nn.init.normal_(layer.lora_B, generator=draw)
    exact = layer.base.double() + ALPHA / RANK * layer.lora_B.double() @ layer.lora_A.double()
    assert torch.equal(layer.merged().weight, exact.float())


def test_adapters_begin_as_the_generator_says() -> None:
    one, same = (adapted_encoder(SMALL).state_dict() for _ in range(2))
    assert one.keys() == same.keys() and all(torch.equal(one[key], same[key]) for key in one)
    down = one["blocks.0.feed_forward.down.lora_A"]
    assert down.shape == (RANK, SMALL.intermediate_size) and down.abs().max() <= SMALL.intermediate_size**-0.5


def test_half_precision_rounds_the_network_not_the_adapters() -> None:
    batch, encoder = sequences([3, 12, 7]), adapted_encoder(SMALL)
    exact = encoder(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = encoder(batch)
    loss(rounded).backward()
    assert (rounded - exact).abs().mean() < 0.05 * exact.abs().mean()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in encoder.parameters() if p.requires_grad)


@pytest.mark.slow  # importing torch's compiler takes seconds
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_compiled_training_sees_the_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    torch.compiler.reset()
    batch, encoder = sequences([30, 20]), adapted_encoder(SMALL).train()
    fast = copy.deepcopy(encoder)
    compiled.compile_networks(fast, tokens=64)
    for network in (encoder, fast):
        loss(network.layers(batch)[-1]).backward()
    torch.compiler.reset()
    for (key, p), other in zip(encoder.named_parameters(), fast.parameters(), strict=True):
        assert (p.grad is None) == (other.grad is None), key
        if p.grad is not None and other.grad is not None:
            require_close(other.grad, p.grad, 1e-4)
