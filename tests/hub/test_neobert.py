"""NeoBERT, which transformers has no class for, against a literal reading of its paper and of the folders it came in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import foreign
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from small_models import VARIANTS, alone, our_network, sequences
from theirs import our_outputs
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import MaskedTokens
from unmask.errors import UnmaskError
from unmask.hub.files import load_model, save_model, save_weights

V, D, HEADS, LAYERS, WIDTH, EPS = 97, 48, 4, 3, 64, 1e-5
SETTINGS = {
    "architectures": ["NeoBERTLMHead"],
    "auto_map": {"AutoModel": "model.NeoBERT"},
    "classifier_init_range": 0.02,
    "decoder_init_range": 0.02,
    "dim_head": 12,
    "embedding_init_range": 0.02,
    "hidden_size": D,
    "intermediate_size": 96,  # two thirds of it: 64
    "kwargs": {"trust_remote_code": True},
    "max_length": 64,
    "model_type": "neobert",
    "norm_eps": EPS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "pad_token_id": 0,
    "torch_dtype": "float32",
    "vocab_size": V,
}


def tensors() -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"model.encoder.weight": (V, D), "model.layer_norm.weight": (D,)}
    for i in range(LAYERS):
        layer = f"model.transformer_encoder.{i}."
        shapes |= {layer + "qkv.weight": (3 * D, D), layer + "wo.weight": (D, D)}
        shapes |= {layer + "ffn.w12.weight": (2 * WIDTH, D), layer + "ffn.w3.weight": (D, WIDTH)}
        shapes |= {layer + "attention_norm.weight": (D,), layer + "ffn_norm.weight": (D,)}
    shapes |= {"decoder.weight": (V, D), "decoder.bias": (V,)}
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=draw) * 0.2 for name, shape in shapes.items()}


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def turned(x_LK: Tensor) -> Tensor:
    """Neighbouring numbers are one complex number, turned by place × 10000^(-2i/K)."""
    length, size = x_LK.shape
    steps = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(length)[:, None] * steps
    numbers = torch.view_as_complex(x_LK.reshape(length, size // 2, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(numbers).reshape(length, size)


def literal(state: dict[str, Tensor], ids: list[int]) -> dict[str, Tensor]:
    """One sequence, head by head: each head's rows of qkv are its query, its key and its value."""
    x = state["model.encoder.weight"][ids]
    out = {"layer 0": x}
    for i in range(LAYERS):
        part = {n.split(".", 3)[3]: t for n, t in state.items() if n.startswith(f"model.transformer_encoder.{i}.")}
        rows = rms(x, part["attention_norm.weight"]) @ part["qkv.weight"].T
        heads = []
        for head in rows.split(3 * D // HEADS, 1):
            q, k, v = head.chunk(3, 1)
            heads.append((turned(q) @ turned(k).T / (D // HEADS) ** 0.5).softmax(1) @ v)
        x = x + torch.cat(heads, 1) @ part["wo.weight"].T
        gate, up = (rms(x, part["ffn_norm.weight"]) @ part["ffn.w12.weight"].T).chunk(2, 1)
        x = x + (F.silu(gate) * up) @ part["ffn.w3.weight"].T
        out[f"layer {i + 1}"] = x
    out[f"layer {LAYERS}"] = rms(x, state["model.layer_norm.weight"])
    return out | {"mlm": out[f"layer {LAYERS}"] @ state["decoder.weight"].T + state["decoder.bias"]}


@pytest.mark.parametrize("lengths", [[1], [64], [7, 1, 20, 41]])
def test_every_layer_and_every_logit_equals_the_literal_model(tmp_path: Path, lengths: list[int]) -> None:
    state = tensors()
    loaded = load_model(foreign.write(tmp_path / "model", state, SETTINGS))
    assert set(loaded.heads) == {"mlm"} and not loaded.missing and not loaded.unexpected
    batch = sequences(lengths, VARIANTS["neobert"])
    ours = our_outputs(loaded, batch)
    for row, one in enumerate(alone(batch)):
        start, end = int(batch.starts[row]), int(batch.starts[row + 1])
        for name, wanted in literal(state, one.input_ids.tolist()).items():
            torch.testing.assert_close(ours[name][start:end], wanted, atol=2e-5, rtol=2e-4)


def test_its_folder_comes_back_bit_for_bit_under_the_same_names(tmp_path: Path) -> None:
    state = tensors()
    loaded = load_model(foreign.write(tmp_path / "model", state, SETTINGS))
    save_weights(tmp_path / "again", loaded.weights(), tokenizer_folder=None, about={})
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in state.items())
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    kept = {name for name in SETTINGS if written.get(name) == SETTINGS[name]}
    assert SETTINGS.keys() - kept == {"auto_map", "classifier_init_range", "dim_head", "kwargs", "torch_dtype"}


def test_a_network_of_ours_goes_out_as_one(tmp_path: Path) -> None:
    encoder, objective = our_network(
        replace(VARIANTS["neobert"], intermediate_size=64, hidden_dropout_prob=0.0), [MaskedTokens()]
    )
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "neobert"
    batch = PackedBatch.pack([[5, 6, 7, 8]])
    with torch.no_grad():
        wanted = objective.parts["mlm"].head(encoder(batch), encoder.token_table()).dense()
    torch.testing.assert_close(our_outputs(load_model(tmp_path / "model"), batch)["mlm"], wanted, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("field", "value"), [("hidden_act", "gelu"), ("dim_head", 16), ("rope", False), ("ngpt", True)]
)
def test_what_we_cannot_honour_is_refused_by_name(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(UnmaskError, match=field):
        load_model(foreign.write(tmp_path / "model", tensors(), {**SETTINGS, field: value}))
