"""Model folders that are damaged, of another family, or made to do harm: a sentence, never a traceback, never their code."""

from __future__ import annotations

import json
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import foreign
import pytest
import torch
from safetensors.torch import save_file

from unmask.errors import UnmaskError
from unmask.hub.files import load_model


class Payload:
    """Unpickling it writes the marker."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "ran")


@pytest.mark.parametrize("model_type", ["distilbert", "xlnet", "robberta", "bert-generation", "", 7])
def test_a_family_we_do_not_have_is_refused_by_its_name(tmp_path: Path, model_type: object) -> None:
    config = {**foreign.CONFIG, "model_type": model_type}
    with pytest.raises(UnmaskError, match=f"type {json.dumps(model_type)}; unmask reads bert, roberta, ") as caught:
        load_model(foreign.write(tmp_path / "model", foreign.tensors(), config))
    assert ("did you mean roberta?" in caught.value.do) == (model_type == "robberta")


@pytest.mark.parametrize("model_type", ["roberta", "albert", "electra", "xlm-roberta", "camembert"])
def test_tensors_of_another_family_than_the_config_says_are_named(tmp_path: Path, model_type: str) -> None:
    config = {**foreign.CONFIG, "model_type": model_type}
    with pytest.raises(UnmaskError, match="the encoder is not whole") as caught:
        load_model(foreign.write(tmp_path / "model", foreign.tensors(), config))
    assert 'a model of type "bert": correct model_type' in caught.value.do


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl", "model.ckpt"])
def test_a_pickle_is_never_run_and_the_error_says_how_to_convert(tmp_path: Path, name: str) -> None:
    folder = foreign.write(tmp_path / "model", None)
    (folder / name).write_bytes(pickle.dumps({"weight": Payload(tmp_path / "marker")}))
    with pytest.raises(UnmaskError) as caught:
        load_model(folder)
    assert name in caught.value.what
    assert "from transformers import BertForPreTraining" in caught.value.do
    assert "save_pretrained('converted')" in caught.value.do
    assert not (tmp_path / "marker").exists()
    pickle.loads((folder / name).read_bytes())
    assert (tmp_path / "marker").exists(), "the payload of this test must work"


def test_the_converting_recipe_works(tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(foreign.tensors(), saved / "pytorch_model.bin")
    (saved / "model.safetensors").unlink()
    with pytest.raises(UnmaskError) as caught:
        load_model(saved)
    assert "\n" not in caught.value.do, "it is told on one line"
    exec(caught.value.do.split('python -c "', 1)[1].removesuffix('"'), {})
    loaded = load_model(tmp_path / "converted")
    assert not loaded.missing and not loaded.unexpected and loaded.tokenizer_folder


def test_a_pickle_under_the_name_of_safetensors_is_damage(tmp_path: Path) -> None:
    folder = foreign.write(tmp_path / "model", None)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Payload(tmp_path / "marker")))
    with pytest.raises(UnmaskError, match="no whole safetensors file"):
        load_model(folder)
    assert not (tmp_path / "marker").exists()


def test_remote_code_is_ignored(tmp_path: Path) -> None:
    evil = {
        "auto_map": {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"},
        "_attn_implementation_internal": "someone/kernels",
    }
    folder = foreign.write(tmp_path / "model", foreign.tensors(), {**foreign.CONFIG, **evil})
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w').close()\n")
    loaded = load_model(folder)
    assert not hasattr(loaded.config, "auto_map")
    assert "evil" not in sys.modules and not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/passwd",
        "a/../../outside.safetensors",
        "..",
        "",
        "C:\\x.safetensors",
        "\x00",
        3,
        None,
    ]
    + ["link.safetensors", "pytorch_model.bin", "~/x.safetensors"],
)
def test_B135_an_index_that_points_outside_its_folder_is_refused(tmp_path: Path, name: object) -> None:
    state = foreign.tensors()
    save_file(state, tmp_path / "outside.safetensors")
    folder = foreign.write(tmp_path / "model", None)
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    index = {"weight_map": dict.fromkeys(state, name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UnmaskError):
        load_model(folder)


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}', "{", "", "[" * 100_000])
def test_an_index_that_is_none_is_refused(tmp_path: Path, index: str) -> None:
    folder = foreign.write(tmp_path / "model", None)
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UnmaskError):
        load_model(folder)


def test_an_index_must_agree_with_its_files(tmp_path: Path) -> None:
    folder = foreign.shard(tmp_path / "model", foreign.tensors())
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["bert.pooler.dense.bias"] = index["weight_map"]["bert.pooler.dense.weight"]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    moved = "bert.pooler.dense.bias' is in model-"
    with pytest.raises(UnmaskError, match=moved):
        load_model(folder)
    (folder / "model-00001-of-00003.safetensors").unlink()
    with pytest.raises(UnmaskError, match=r"model-00001-of-00003.safetensors is missing"):
        load_model(folder)


def test_every_truncation_and_any_altered_header_is_an_error_or_a_whole_model(tmp_path: Path) -> None:
    folder = foreign.write(tmp_path / "model", foreign.tensors())
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    draw = random.Random(0)
    for length in [0, 1, 7, 8, 9, 100, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(10))]:
        path.write_bytes(whole[:length])
        with pytest.raises(UnmaskError):
            load_model(folder)
    header = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(60):
        altered = bytearray(whole)
        altered[draw.randrange(header)] ^= 1 << draw.randrange(8)
        path.write_bytes(altered)
        try:
            load_model(folder)
        except UnmaskError:
            continue


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path, value: float) -> None:
    state = foreign.tensors()
    state["bert.encoder.layer.1.output.dense.bias"][3] = value
    with pytest.raises(UnmaskError, match=r"bert.encoder.layer.1.output.dense.bias holds NaN or infinity"):
        load_model(foreign.write(tmp_path / "model", state))


def test_quantised_weights_are_refused_by_name(tmp_path: Path) -> None:
    state = foreign.tensors()
    state["bert.pooler.dense.weight"] = state["bert.pooler.dense.weight"].to(torch.int8)
    with pytest.raises(UnmaskError, match=r"bert.pooler.dense.weight holds I8 numbers"):
        load_model(foreign.write(tmp_path / "model", state))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 10**12),
        ("num_hidden_layers", 10**9),
        ("hidden_size", 10**7),
        ("intermediate_size", 2**40),
        ("max_position_embeddings", 10**15),
        ("type_vocab_size", 10**9),
        ("num_attention_heads", 10**9),
        ("num_hidden_layers", 10**300),
    ],
)
def test_a_config_bomb_is_refused_before_anything_of_its_size_is_made(tmp_path: Path, field: str, value: int) -> None:
    with pytest.raises(UnmaskError, match=f"{field} must be a whole number from [01] to"):
        load_model(foreign.write(tmp_path / "model", foreign.tensors(), {**foreign.CONFIG, field: value}))


def test_the_largest_sizes_allowed_still_meet_the_file_before_any_memory(tmp_path: Path) -> None:
    config = {**foreign.CONFIG, "vocab_size": 1 << 24, "hidden_size": 1 << 16, "num_hidden_layers": 1 << 10}
    with pytest.raises(UnmaskError, match="this file fits|but config.json asks for"):
        load_model(foreign.write(tmp_path / "model", foreign.tensors(), config))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"bert"', "{" * 50_000, "\xff\xfe", "9" * 5000])
def test_a_config_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    folder = foreign.write(tmp_path / "model", foreign.tensors())
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UnmaskError):
        load_model(folder)


def test_what_is_not_a_model_folder_says_what_is_missing(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / "absent", "no such folder"), (tmp_path, "config.json is missing")):
        with pytest.raises(UnmaskError, match=words):
            load_model(folder)
    with pytest.raises(UnmaskError, match="no model.safetensors here"):
        load_model(foreign.write(tmp_path / "model", None))
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="no such folder"):
        load_model(tmp_path / "file")
