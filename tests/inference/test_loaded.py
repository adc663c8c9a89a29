"""`unmask.load(folder).encode(texts)`: the vectors, their order, and what it says to what it can't do."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import unmask
from unmask.batch import PackedBatch
from unmask.errors import DamagedError, UnmaskError
from unmask.hub.files import build_encoder, load_model
from unmask.inference import loaded as module
from unmask.inference.loaded import Loaded, TruncationWarning, load
from unmask.text.tokenizer import Tokenizer

TEXTS = ["the cat sat", "", "mats .", "the cat sat on the mat", "fig the", "a", "the cat sat on the mat . a b c"]


def test_the_mean_over_all_tokens_as_it_is_where_the_folder_says_nothing(small: Path) -> None:
    vectors = unmask.load(small).encode(TEXTS)
    encoder, tokenizer = build_encoder(load_model(small)), Tokenizer.load(small)
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = [tokenizer.cls_token_id, *tokenizer.encode([text])[0].ids.tolist(), tokenizer.sep_token_id]
        with torch.no_grad():
            wanted = encoder(PackedBatch.pack([ids])).mean(0)
        assert np.abs(vector - wanted.numpy()).max() < 1e-5
    assert vectors.dtype == np.float32 and vectors.shape == (len(TEXTS), 48)


@pytest.mark.parametrize("batch_tokens", [1, 7, 30, 10_000])
def test_order_and_batch_mates_change_nothing(loaded: Loaded, batch_tokens: int) -> None:
    together = loaded.encode(TEXTS * 3, batch_tokens=batch_tokens)
    alone = np.concatenate([loaded.encode([text]) for text in TEXTS])
    backwards = loaded.encode(TEXTS[::-1], batch_tokens=batch_tokens)
    assert np.abs(together - np.concatenate([alone] * 3)).max() < 1e-5
    assert np.abs(backwards[::-1] - alone).max() < 1e-5


def test_a_layer_is_the_hidden_state_of_that_number(small: Path, loaded: Loaded) -> None:
    ids = [2, 5, 6, 7, 3]  # [CLS] the cat sat [SEP]
    with torch.no_grad():
        states = build_encoder(load_model(small)).layers(PackedBatch.pack([ids]))
    for layer in (0, 1, 2, 3, -1, -2, -4):
        found = loaded.encode(["the cat sat"], layer=layer, pooling="lasttoken")[0]
        assert np.abs(found - states[layer][-1].numpy()).max() < 1e-5
    with pytest.raises(UnmaskError, match="there is no layer 4"):
        loaded.encode(["a"], layer=4)


def test_streaming_gives_the_vectors_of_the_list_in_blocks(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_TEXTS", 5)
    told: list[tuple[float, float | None]] = []
    texts = TEXTS * 3
    blocks = list(loaded.stream(iter(texts), total=21, progress=lambda what, done, total: told.append((done, total))))
    assert [len(block.vectors_ND) for block in blocks] == [5, 5, 5, 5, 1]
    assert np.abs(np.concatenate([block.vectors_ND for block in blocks]) - loaded.encode(texts)).max() < 1e-5
    assert sum(block.tokens for block in blocks) == 3 * sum((5, 2, 5, 8, 4, 3, 12))
    assert told[0] == (0, 21) and told[-1] == (21, 21) and all(total == 21 for _, total in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_stream_of_any_length_needs_the_same_memory(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_TEXTS", 256)

    def texts(count: int) -> Iterator[str]:
        return (f"word{i % 60} the cat {i}" for i in range(count))

    def peak(count: int) -> int:
        tracemalloc.start()
        for _ in loaded.stream(texts(count)):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(256)
    assert peak(10_000) < 1.2 * peak(1000)


def test_what_is_cut_is_told_with_its_number(loaded: Loaded) -> None:
    long = "the cat " * 40
    with pytest.warns(TruncationWarning, match="2 of 3 texts have more than 32 tokens and were cut"):
        vectors = loaded.encode([long, "the", long + "mat"])
    assert np.array_equal(vectors[0], vectors[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [block.truncated for block in loaded.stream([long, "the"])] == [1]


@pytest.mark.parametrize("normalize", [False, True])
def test_no_text_gives_no_vector(loaded: Loaded, normalize: bool) -> None:
    for pooling in ("mean", ("cls", "max", "mean")):
        none, one = (loaded.encode(texts, pooling=pooling, normalize=normalize) for texts in ([], ["a"]))
        assert none.shape == (0, one.shape[1]) and none.dtype == one.dtype == np.float32
    assert list(loaded.stream([])) == []


def test_a_graph_gives_none_of_that_width_too(small: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pytest.importorskip("unmask.inference.onnx_backend", exc_type=ImportError)
    monkeypatch.setattr(graph.OnnxBackend, "load", lambda folder, threads: loaded.backend)
    assert load(small, backend="onnx").encode([]).shape == (0, 48)


@pytest.mark.parametrize("texts", ["the cat", b"the cat", iter(["the"]), 7])
def test_what_is_no_list_is_refused(loaded: Loaded, texts: object) -> None:
    with pytest.raises(UnmaskError, match="not a list"):
        loaded.encode(texts)  # type: ignore[arg-type]


def test_what_is_no_string_is_named_by_its_place(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnmaskError, match="text 1, counted from 0, is a NoneType, not a string"):
        loaded.encode(["the", None])  # type: ignore[list-item]
    monkeypatch.setattr(module, "WINDOW_TEXTS", 2)
    with pytest.raises(UnmaskError, match="text 4, counted from 0, is a int"):
        list(loaded.stream(["a", "b", "c", "d", 5]))  # type: ignore[list-item]


def test_weights_that_are_nan_are_refused_when_loading_and_answers_when_given(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "model")
    (tmp_path / "model" / "manifest.json").unlink()
    weights = tmp_path / "model" / "model.safetensors"
    tensors = load_file(weights)
    name = next(n for n in tensors if n.endswith("word_embeddings.weight"))
    save_file({**tensors, name: tensors[name] * torch.nan}, weights, metadata={"format": "pt"})
    with pytest.raises(DamagedError, match="NaN"):
        load(tmp_path / "model")
    last = next(n for n in tensors if n.endswith("layer.2.output.LayerNorm.weight"))
    save_file({**tensors, last: torch.full_like(tensors[last], 3e38)}, weights, metadata={"format": "pt"})
    with pytest.raises(UnmaskError, match="text 0, counted from 0, with NaN or infinity"):
        load(tmp_path / "model").encode(["the cat"])


def test_a_folder_without_a_tokenizer_or_with_a_larger_one_is_refused(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "model")
    for path in (tmp_path / "model").glob("*"):
        if "token" in path.name or path.name in ("vocab.txt", "manifest.json"):
            path.unlink()
    with pytest.raises(UnmaskError, match="the folder has no tokenizer"):
        load(tmp_path / "model")
    pieces = [Tokenizer.load(small).token(i) for i in range(97)] + ["more"]
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(pieces) + "\n")
    with pytest.raises(UnmaskError, match="the tokenizer has 98 ids, but the model only 97 rows"):
        load(tmp_path / "model")


def test_prompts_and_length_and_pooling_are_the_folder_s_own(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(small, folder)
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir()
    prompts = {"prompts": {"query": "the cat ", "passage": "mat "}, "default_prompt_name": "query"}
    for name, value in (
        ("modules.json", modules),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True, "include_prompt": True}),
        ("config_sentence_transformers.json", prompts),
        ("sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False}),
    ):
        (folder / name).write_text(json.dumps(value))
    model, plain = load(folder), load(small)
    assert (model.max_length, model.prompt_named("passage")) == (9, "mat ")
    wanted = plain.encode(["the cat sat", "the cat mat"], pooling="cls", normalize=True)
    assert np.abs(model.encode(["sat", "mat"]) - wanted).max() < 1e-5
    assert np.allclose(np.linalg.norm(wanted, axis=1), 1, atol=1e-6)
    bare = plain.encode(["sat"], pooling="mean")
    assert np.abs(model.encode(["sat"], prompt="", pooling="mean", normalize=False) - bare).max() < 1e-5
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean", "include_prompt": False}))
    inside = plain.backend.encoder  # type: ignore[attr-defined]
    with torch.no_grad():
        states = inside(PackedBatch.pack([[2, 5, 6, 7, 3]]))[3:].mean(0).numpy()
    assert np.abs(load(folder).encode(["sat"], normalize=False)[0] - states).max() < 1e-5
    with pytest.raises(UnmaskError, match="no prompt 'document'"):
        model.prompt_named("document")


def test_bf16_is_near_fp32_or_refused_in_words(small: Path, monkeypatch: pytest.MonkeyPatch, loaded: Loaded) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    half, full = load(small, precision="bf16").encode(TEXTS, normalize=True), loaded.encode(TEXTS, normalize=True)
    assert (half * full).sum(1).min() > 0.999 and half.dtype == np.float32
    assert not np.array_equal(half, full)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    with pytest.raises(UnmaskError, match="no bf16 products"):
        load(small, precision="bf16")
    with pytest.raises(UnmaskError, match="unknown precision 'int4'"):
        load(small, precision="int4")  # type: ignore[arg-type]
    with pytest.raises(UnmaskError, match="unknown backend 'tf'"):
        load(small, backend="tf")  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["gpu", "tpu", ""])
def test_an_unknown_device_is_not_the_cpu(small: Path, device: str) -> None:
    with pytest.raises(UnmaskError, match=f"unknown device '{device}'"):
        load(small, device=device)  # type: ignore[arg-type]


def test_a_graph_is_not_said_to_be_on_cuda(small: Path) -> None:
    with pytest.raises(UnmaskError, match="on the CPU only"):
        load(small, device="cuda", backend="onnx")
