"""Faults of exports and imports that were found in the tools people use, each as a test of ours."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import foreign
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from small_models import VARIANTS, goals_of, our_network, sequences
from theirs import MODELS, batch_for, built, opened, our_outputs, require_equal, their_outputs

from unmask.batch import PackedBatch
from unmask.config import Rope
from unmask.errors import UnmaskError
from unmask.hub.configs import read_config
from unmask.hub.files import build_encoder, load_model, save_model
from unmask.hub.weights import gather
from unmask.nn.encoder import Encoder

MODERN = VARIANTS["modernbert"]


# --- sentinels in an exported theta ------------------------------------------------------------------------------------
@pytest.mark.parametrize("local", [0.0, 10_000.0, 160_000.0])
def test_no_sentinel_survives_in_an_exported_theta(tmp_path: Path, local: float) -> None:
    """Elsewhere -1 for "the same as the other" went out, and its powers are NaN."""
    config = replace(MODERN, positions=Rope(theta=160_000.0, local_theta=local))
    encoder, objective = our_network(config, goals_of("modernbert"))
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    thetas = [part["rope_theta"] for part in written["rope_parameters"].values()]
    assert thetas == [160_000.0, local or 160_000.0]
    assert "-1" not in (tmp_path / "model" / "config.json").read_text()
    model = opened(hf.ModernBertForMaskedLM, tmp_path / "model")
    batch = batch_for(model, [9, 40], ("mlm",))
    theirs = their_outputs(model, ("mlm",), batch)
    with torch.no_grad():
        trained = objective.parts["mlm"].logits(encoder, encoder.layers(batch), batch, torch.arange(49))
    torch.testing.assert_close(theirs["mlm"], trained, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("theta", [-1, -1.0, 0, "10000", None, True, math.inf, math.nan, 1e300])
@pytest.mark.parametrize("kind", ["full_attention", "sliding_attention"])
def test_a_theta_that_is_none_is_refused_by_name(kind: str, theta: object) -> None:
    rope = {k: {"rope_type": "default", "rope_theta": 1e4} for k in ("full_attention", "sliding_attention")}
    rope[kind]["rope_theta"] = theta
    with pytest.raises(UnmaskError, match=rf"rope_parameters.{kind}.rope_theta must be a number above 0"):
        read_config({"model_type": "modernbert", "rope_parameters": rope})
    old = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}[kind]
    if theta is not None:
        with pytest.raises(UnmaskError, match=f"{old} must be a number above 0"):
            read_config({"model_type": "modernbert", old: theta})


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 10_000.0},
        {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}},
        {"full_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        {"sliding_attention": 3},
        [1e4],
    ],
)
def test_other_ways_to_turn_are_refused_by_name(rope: object) -> None:
    with pytest.raises(UnmaskError, match="rope_parameters"):
        read_config({"model_type": "modernbert", "rope_parameters": rope})


def test_the_thetas_of_older_files_are_those_of_newer_ones() -> None:
    old = {"global_rope_theta": 80_000.0, "local_rope_theta": 20_000.0, "global_attn_every_n_layers": 2}
    new = hf.ModernBertConfig(**old).to_dict()
    assert read_config({"model_type": "modernbert", **old}) == read_config(json.loads(json.dumps(new)))


def test_a_pattern_and_a_list_of_layers_that_disagree_are_refused() -> None:
    written = hf.ModernBertConfig(num_hidden_layers=4).to_dict()
    with pytest.raises(UnmaskError, match="layer_types must .* as global_attn_every_n_layers 2 says"):
        read_config({**written, "global_attn_every_n_layers": 2})
    with pytest.raises(UnmaskError, match="layer_types"):
        read_config({**written, "layer_types": ["sliding_attention", "full_attention"] * 2})


# --- RoBERTa's places --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pad_token_id", [0, 1, 3])
def test_places_of_a_packed_roberta_start_behind_the_padding_id_in_each_document(pad_token_id: int) -> None:
    """At 2 with RoBERTa's own padding id 1. A flattened batch elsewhere counts from 0, or on through its neighbours."""
    config = replace(VARIANTS["roberta"], pad_token_id=pad_token_id)
    encoder = Encoder(config)
    rows = []
    encoder.embeddings.positions.weight.data = torch.arange(float(config.position_rows))[:, None].expand(-1, 48).clone()
    encoder.embeddings.tokens.weight.data.zero_()
    encoder.embeddings.segments.weight.data.zero_()
    encoder.embeddings.norm.register_forward_hook(lambda _, given, __: rows.append(given[0][:, 0]))
    encoder(PackedBatch.pack([[5, 6, 7], [5], [5] * 64]))
    first = pad_token_id + 1
    assert rows[0].tolist() == [first, first + 1, first + 2, first, *range(first, first + 64)]
    assert config.position_rows == 64 + first


def test_the_roberta_table_has_514_rows_for_512_places() -> None:
    published = {"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
    config = read_config(published)[1]
    assert config.max_position_embeddings == 512 and config.position_rows == 514
    encoder = Encoder(replace(config, vocab_size=9, hidden_size=4, num_attention_heads=1, intermediate_size=4))
    encoder(PackedBatch.pack([[5] * 512]))
    with pytest.raises(ValueError, match="513 tokens, but this model has 512 positions"):
        encoder(PackedBatch.pack([[5] * 513]))


def test_a_padding_token_inside_the_text_is_told_apart_from_padding(tmp_path: Path) -> None:
    """transformers gives it no place of its own; ours never pads, so it counts as a token. Nobody's text holds one."""
    built("roberta").save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    batch = PackedBatch.pack([[5, 6, 7, 8]])
    require_equal(our_outputs(loaded, batch), their_outputs(built("roberta"), ("mlm",), batch))


# --- dropout -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "electra", "deberta-v3", "modernbert", "gpt2", "t5"])
def test_a_folder_holds_the_published_dropout_and_not_that_of_the_run(name: str, tmp_path: Path) -> None:
    """Pre-training runs with none; what is fine-tuned later should not."""
    published = replace(VARIANTS[name], hidden_dropout_prob=0.125, attention_probs_dropout_prob=0.125)
    encoder, objective = our_network(VARIANTS[name], goals_of(name))
    weights = gather(encoder, objective, published)
    assert weights.config == published and encoder.config.hidden_dropout_prob == 0.0
    from unmask.hub.files import save_weights

    save_weights(tmp_path / "model", weights, tokenizer_folder=None, about={})
    assert load_model(tmp_path / "model").config == published
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    rates = {key: value for key, value in written.items() if "drop" in key}
    assert rates and set(rates.values()) == {0.125}


def test_modernberts_two_dropouts_are_stored_apart(tmp_path: Path) -> None:
    """transformers takes attention_dropout behind attention too, where ours takes the hidden one: they agree where both
    are alike, and where both are 0, as the published models are."""
    config = replace(MODERN, hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.125)
    encoder, _ = our_network(config, [])
    save_model(tmp_path / "model", encoder, None, tokenizer_folder=None, about={})
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    rates = (written["mlp_dropout"], written["embedding_dropout"], written["attention_dropout"])
    assert rates == (0.25, 0.25, 0.125)


def test_a_loaded_model_in_training_without_dropout_is_the_trained_one(tmp_path: Path) -> None:
    encoder, objective = our_network(MODERN, goals_of("modernbert"))
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    model = opened(hf.ModernBertForMaskedLM, tmp_path / "model").train()
    batch = batch_for(model, [9, 40], ("mlm",))
    require_equal(our_outputs(load_model(tmp_path / "model"), batch), their_outputs(model, ("mlm",), batch))


# --- not finite, half precision ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", VARIANTS)
def test_B129_no_family_writes_a_tensor_that_is_not_finite(name: str, tmp_path: Path) -> None:
    encoder, objective = our_network(VARIANTS[name], goals_of(name))
    parameters = [*encoder.parameters(), *objective.parameters()]
    for parameter in (parameters[0], parameters[len(parameters) // 2], parameters[-1]):
        kept = parameter.data.clone()
        parameter.data.view(-1)[-1] = math.inf
        with pytest.raises(UnmaskError, match="NaN or infinity, so the model is not written"):
            save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
        parameter.data = kept
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_B129_a_bf16_model_of_any_family_is_exported_as_fp32_and_answers_alike(name: str, tmp_path: Path) -> None:
    encoder, objective = our_network(VARIANTS[name], goals_of(name))
    save_model(tmp_path / "model", encoder.bfloat16(), objective.bfloat16(), tokenizer_folder=None, about={})
    for file in tmp_path.glob("model/*.safetensors"):
        assert {tensor.dtype for tensor in load_file(file).values()} <= {torch.float32}
    batch = sequences([9, 40], VARIANTS[name])
    with torch.no_grad():
        assert torch.equal(build_encoder(load_model(tmp_path / "model"))(batch), encoder.float()(batch))


# --- sizes that do not fit -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "field", "told"),
    [
        ("roberta", "max_position_embeddings", 80), ("roberta", "vocab_size", 120), ("roberta", "num_hidden_layers", 5),
        ("albert-2-groups", "num_hidden_groups", 1), ("albert-2-groups", "num_hidden_groups", 3),
        ("albert-2-groups", "embedding_size", 24), ("albert-2-groups", "intermediate_size", 96),
        ("electra", "embedding_size", 32), ("electra", "num_hidden_layers", 2), ("electra", "type_vocab_size", 3),
        ("deberta", "num_hidden_layers", 2), ("deberta-v2", "conv_kernel_size", 5), ("deberta-v3", "vocab_size", 120),
        ("modernbert", "intermediate_size", 96), ("modernbert", "vocab_size", 120),
        ("gpt2", "n_layer", 2), ("gpt2", "n_layer", 5), ("gpt2", "n_positions", 80), ("gpt2", "n_embd", 96),
        ("gpt2-other-sizes", "n_inner", 96),
        ("t5", "num_layers", 2), ("t5", "num_layers", 5), ("t5", "d_ff", 96), ("t5", "d_kv", 12), ("t5", "d_model", 96),
        ("t5", "num_heads", 2), ("t5", "relative_attention_num_buckets", 16), ("deberta-short-range", "max_relative_positions", 30),
        ("deberta-v3", "position_buckets", 16), ("t5-gated", "d_ff", 96),
    ],
)  # fmt: skip
def test_B116_the_advice_names_the_familys_own_field_and_the_value_that_fits(
    name: str, field: str, told: int, tmp_path: Path
) -> None:
    built(name).save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    right = config[field]
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, field: told}))
    with pytest.raises(UnmaskError) as caught:
        load_model(tmp_path / "model")
    assert "config.json asks for" in caught.value.what or "not in the file" in caught.value.what
    assert f'"{field}": {right}' in caught.value.do, caught.value.do


@pytest.mark.parametrize(
    "name", ["roberta", "albert-2-groups", "electra", "deberta", "deberta-v2", "modernbert", "gpt2", "t5"]
)
def test_a_missing_tensor_of_any_family_is_an_error_by_name(name: str, tmp_path: Path) -> None:
    built(name).save_pretrained(tmp_path / "model")
    state = load_file(tmp_path / "model" / "model.safetensors")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    for gone in [*state][:: max(1, len(state) // 12)]:
        rest = {key: tensor for key, tensor in state.items() if key != gone}
        with pytest.raises(UnmaskError) as caught:
            load_model(foreign.write(tmp_path / "broken", rest, config))
        assert gone.removeprefix(f"{built(name).base_model_prefix}.") in caught.value.what


def test_a_decoder_of_another_depth_than_the_config_says_is_an_error(tmp_path: Path) -> None:
    built("t5").save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["num_decoder_layers"] == MODELS["t5"].settings["num_decoder_layers"] == 2
    for told in (1, 3, 40):
        (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "num_decoder_layers": told}))
        with pytest.raises(UnmaskError, match=f"2 decoder layers, but config.json asks for {told}") as caught:
            load_model(tmp_path / "model")
        assert '"num_decoder_layers": 2' in caught.value.do
