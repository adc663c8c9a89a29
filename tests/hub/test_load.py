"""Anything of the BERT family loads, or a sentence says by name what does not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import foreign
import pytest
import torch
from small_models import SMALL, our_model

from unmask.errors import DamagedError, UnmaskError
from unmask.hub.files import LoadedModel, load_model, save_model
from unmask.hub.restore import restore_into

MATRIX = "bert.embeddings.word_embeddings.weight"
DECODER, DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
SCORE = ["cls.seq_relationship.weight", "cls.seq_relationship.bias"]


def _same(loaded: LoadedModel, heads: tuple[str, ...] = ("mlm", "nsp")) -> None:
    encoder, objective = our_model()
    assert all(torch.equal(loaded.encoder[name], tensor) for name, tensor in encoder.state_dict().items())
    assert set(loaded.heads) == set(heads)
    for kind in heads:
        head = objective.parts["nsp" if kind == "pooler" else kind].head.state_dict()
        assert all(torch.equal(tensor, head[name]) for name, tensor in loaded.heads[kind].items())


def test_every_bert_layout_loads_whatever_its_prefix(tmp_path: Path) -> None:
    state = foreign.tensors()
    bare = {name.removeprefix("bert."): tensor for name, tensor in state.items()}
    for folder, tensors in (("prefixed", state), ("bare", bare)):
        loaded = load_model(foreign.write(tmp_path / folder, tensors))
        _same(loaded)
        assert not loaded.missing and not loaded.unexpected


@pytest.mark.parametrize(("heads", "missing"), [(("mlm",), 4), (("nsp",), 5), ((), 9)])
def test_missing_heads_are_listed_and_never_made_up(tmp_path: Path, heads: tuple[str, ...], missing: int) -> None:
    loaded = load_model(foreign.write(tmp_path / "model", foreign.tensors(heads)))
    _same(loaded, heads)
    assert len(loaded.missing) == missing and not loaded.unexpected
    encoder, objective = our_model()
    before = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    new = restore_into(encoder, objective, loaded)
    assert {name.split(".")[0] for name in new} == {"mlm", "nsp"} - set(heads)
    assert len(new) == missing
    assert all(torch.equal(before[name], tensor) for name, tensor in objective.state_dict().items())


def test_a_pooler_alone_starts_the_pair_head(tmp_path: Path) -> None:
    state = {name: tensor for name, tensor in foreign.tensors(("nsp",)).items() if name not in SCORE}
    loaded = load_model(foreign.write(tmp_path / "model", state))
    _same(loaded, ("pooler",))
    assert loaded.missing[-2:] == SCORE
    encoder, objective = our_model()
    pooler = objective.parts["nsp"].head.dense.weight
    wanted = pooler.detach().clone()
    pooler.data.zero_()
    assert restore_into(encoder, objective, loaded)[-2:] == ["nsp.out.weight", "nsp.out.bias"]
    assert torch.equal(pooler, wanted)


def test_old_spellings_and_buffers_are_understood(tmp_path: Path) -> None:
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in foreign.tensors().items()
    }
    assert "bert.embeddings.LayerNorm.gamma" in state
    state["bert.embeddings.position_ids"] = torch.arange(32)[None]
    config = {name: value for name, value in foreign.CONFIG.items() if name not in ("model_type", "dtype")}
    loaded = load_model(foreign.write(tmp_path / "model", state, config))
    _same(loaded)
    assert not loaded.missing and not loaded.unexpected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_fp32(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {name: tensor.to(dtype) for name, tensor in foreign.tensors().items()}
    loaded = load_model(foreign.write(tmp_path / "model", state))
    tensor = loaded.encoder["embeddings.tokens.weight"]
    assert tensor.dtype == torch.float32 and torch.equal(tensor, state[MATRIX].float())


def test_several_files_with_an_index_load_like_one(tmp_path: Path) -> None:
    loaded = load_model(foreign.shard(tmp_path / "model", foreign.tensors()))
    _same(loaded)
    assert not loaded.missing and not loaded.unexpected


def test_tensors_of_other_tasks_are_reported_by_name(tmp_path: Path) -> None:
    state = foreign.tensors() | {"classifier.weight": torch.ones(3, 48), "classifier.bias": torch.ones(3)}
    assert load_model(foreign.write(tmp_path / "model", state)).unexpected == ["classifier.bias", "classifier.weight"]


def test_B122_the_output_bias_under_either_name_is_the_stored_one(tmp_path: Path) -> None:
    state = foreign.tensors()
    other = {**state, DECODER_BIAS: state["cls.predictions.bias"].clone()}
    del other["cls.predictions.bias"]
    for folder, tensors in (("usual", state), ("other", other)):
        loaded = load_model(foreign.write(tmp_path / folder, tensors))
        _same(loaded)
        assert not loaded.missing and not loaded.unexpected
        assert restore_into(*our_model(), loaded) == []


def test_B124_B125_the_tied_matrix_is_found_under_either_name(tmp_path: Path) -> None:
    state = foreign.tensors()
    only_decoder = {**state, DECODER: state[MATRIX].clone()}
    del only_decoder[MATRIX]
    both = {**state, DECODER: state[MATRIX].clone()}
    for folder, tensors in (("decoder", only_decoder), ("both", both)):
        loaded = load_model(foreign.write(tmp_path / folder, tensors))
        _same(loaded)
        assert not loaded.missing and not loaded.unexpected


def test_B124_without_either_name_of_the_tied_matrix_it_is_an_error(tmp_path: Path) -> None:
    state = foreign.tensors()
    del state[MATRIX]
    with pytest.raises(UnmaskError, match="the encoder is not whole: the file lacks embeddings.word_embeddings.weight"):
        load_model(foreign.write(tmp_path / "model", state))


@pytest.mark.parametrize(("name", "first"), [(DECODER, MATRIX), (DECODER_BIAS, "cls.predictions.bias")])
def test_B125_two_names_that_disagree_are_never_chosen_from_silently(tmp_path: Path, name: str, first: str) -> None:
    state = foreign.tensors()
    state[name] = state[first] + 1
    loaded = load_model(foreign.write(tmp_path / "tied", state))
    _same(loaded)  # the configuration ties them: the first decides, as in transformers
    assert loaded.unexpected == [name]


UNTIED = {**foreign.CONFIG, "tie_word_embeddings": False}


def test_B125_an_output_matrix_that_is_not_tied_stays_itself(tmp_path: Path) -> None:
    """And its own bias counts, as in transformers, where the other one is then there for nothing."""
    state = foreign.tensors()
    state |= {DECODER: state[MATRIX] + 1, DECODER_BIAS: state["cls.predictions.bias"] + 1}
    loaded = load_model(foreign.write(tmp_path / "model", state, UNTIED))
    assert torch.equal(loaded.heads["mlm"]["matrix.weight"], state[DECODER])
    assert torch.equal(loaded.heads["mlm"]["bias"], state[DECODER_BIAS])
    assert torch.equal(loaded.encoder["embeddings.tokens.weight"], state[MATRIX])
    assert loaded.unexpected == ["cls.predictions.bias"]


def test_B125_an_output_matrix_that_is_not_tied_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=f"MLM head is not whole: the file lacks {DECODER}"):
        load_model(foreign.write(tmp_path / "model", foreign.tensors(), UNTIED))


@pytest.mark.parametrize(
    ("field", "told", "tensor"),
    [
        ("hidden_size", 24, "bert.embeddings.LayerNorm.bias"),
        ("vocab_size", 120, "bert.embeddings.word_embeddings.weight"),
        ("max_position_embeddings", 64, "bert.embeddings.position_embeddings.weight"),
        ("type_vocab_size", 1, "bert.embeddings.token_type_embeddings.weight"),
        ("intermediate_size", 96, "bert.encoder.layer.0.intermediate.dense.bias"),
        ("num_hidden_layers", 2, "bert.encoder.layer.2.attention.output.LayerNorm.bias"),
        ("num_hidden_layers", 5, "encoder.layer.3.attention.self.query.weight"),
    ],
)
def test_B116_a_config_of_another_size_names_the_first_tensor_and_the_value_that_fits(
    tmp_path: Path, field: str, told: int, tensor: str
) -> None:
    config = {**foreign.CONFIG, field: told}
    right = getattr(SMALL, field)
    with pytest.raises(UnmaskError) as caught:
        load_model(foreign.write(tmp_path / "model", foreign.tensors(), config))
    assert tensor in caught.value.what
    assert f'config.json with "{field}": {right}' in caught.value.do
    shape = list(foreign.tensors()[tensor].shape) if tensor.startswith("bert.") else f"{right} layers"
    assert str(shape) in caught.value.what


def test_B116_large_weights_beside_the_base_config_get_the_whole_config_that_fits(tmp_path: Path) -> None:
    state = {
        MATRIX: torch.zeros(50, 1024),
        "bert.embeddings.position_embeddings.weight": torch.zeros(512, 1024),
        "bert.encoder.layer.23.intermediate.dense.weight": torch.zeros(1, 1024),
        "bert.encoder.layer.0.intermediate.dense.bias": torch.zeros(4096),
    }
    with pytest.raises(UnmaskError) as caught:
        load_model(foreign.write(tmp_path / "model", state, {"model_type": "bert", "vocab_size": 50}))
    assert "[512, 1024] in the file, but config.json asks for [512, 768]" in caught.value.what
    for value in ('"hidden_size": 1024', '"num_hidden_layers": 24', '"num_attention_heads": 16'):
        assert value in caught.value.do


@pytest.mark.parametrize("gone", list(foreign.tensors(())))
def test_a_missing_encoder_tensor_is_an_error_by_name(tmp_path: Path, gone: str) -> None:
    state = foreign.tensors()
    del state[gone]
    with pytest.raises(UnmaskError, match=f"the file lacks {gone.removeprefix('bert.')}"):
        load_model(foreign.write(tmp_path / "model", state))


@pytest.mark.parametrize("gone", [n for n in foreign.tensors() if n.startswith(("cls.", "bert.pooler"))])
def test_a_head_that_is_there_in_part_is_an_error_by_name(tmp_path: Path, gone: str) -> None:
    state = foreign.tensors()
    del state[gone]
    with pytest.raises(UnmaskError, match=f"head is not whole: the file lacks {gone.removeprefix('bert.')}"):
        load_model(foreign.write(tmp_path / "model", state))


def test_two_models_in_one_file_are_refused(tmp_path: Path) -> None:
    state = foreign.tensors()
    state["embeddings.LayerNorm.weight"] = torch.ones(48)
    with pytest.raises(UnmaskError, match="two names for one tensor"):
        load_model(foreign.write(tmp_path / "model", state))


@pytest.mark.parametrize("field", ["vocab_size", "hidden_act", "num_attention_heads", "layer_norm_eps"])
def test_weights_go_only_into_an_encoder_that_computes_the_same(saved: Path, field: str) -> None:
    other = {"vocab_size": 120, "hidden_act": "relu", "num_attention_heads": 2, "layer_norm_eps": 1e-5}[field]
    encoder, objective = our_model(dataclasses.replace(SMALL, **{field: other}))
    with pytest.raises(UnmaskError, match=f"{field} is {other} in this run, but {getattr(SMALL, field)}"):
        restore_into(encoder, objective, load_model(saved))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_one_flipped_bit_in_a_folder_of_ours_is_named(saved: Path, file: str) -> None:
    content = bytearray((saved / file).read_bytes())
    where = content.index(b"0.02") + 3 if file == "config.json" else len(content) - 7
    content[where] ^= 1
    (saved / file).write_bytes(content)
    with pytest.raises(DamagedError, match=f"{file} is not the file that was written"):
        load_model(saved)
    (saved / "manifest.json").unlink()
    load_model(saved)


def test_a_loaded_folder_knows_its_tokenizer(saved: Path, tmp_path: Path) -> None:
    assert load_model(saved).tokenizer_folder == saved
    save_model(tmp_path / "bare", *our_model(), tokenizer_folder=None, about={})
    assert load_model(tmp_path / "bare").tokenizer_folder is None


@pytest.mark.parametrize("file", ["vocab.json", "spm.model", "spiece.model", "sentencepiece.bpe.model"])
def test_a_published_folder_without_tokenizer_json_has_a_tokenizer_all_the_same(file: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", *our_model(), tokenizer_folder=None, about={})
    (tmp_path / "model" / file).touch()
    assert load_model(tmp_path / "model").tokenizer_folder == tmp_path / "model"


def test_a_manifest_of_another_tool_is_no_concern_of_ours(tmp_path: Path) -> None:
    folder = foreign.write(tmp_path / "model", foreign.tensors())
    (folder / "manifest.json").write_text(json.dumps({"anything": 1}))
    _same(load_model(folder))
