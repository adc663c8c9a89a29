from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import SMALL
from transformers import BertConfig

from unmask import presets
from unmask.config import EncoderConfig
from unmask.errors import UnmaskError
from unmask.hub.configs import from_hf, to_hf


@pytest.mark.parametrize("name", presets.names())
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_tanh", "relu"])
def test_a_config_goes_out_and_comes_back(name: str, hidden_act: Any) -> None:
    config = dataclasses.replace(presets.preset(name)(), hidden_act=hidden_act, layer_norm_eps=1e-7, pad_token_id=5)
    assert from_hf(to_hf(config, "BertForPreTraining")) == config


def test_transformers_reads_every_field_we_write() -> None:
    data = to_hf(SMALL, "BertForMaskedLM")
    theirs = BertConfig(**data).to_dict()
    assert {name: theirs[name] for name in data if name != "dtype"} == {n: v for n, v in data.items() if n != "dtype"}


def test_our_defaults_are_those_of_transformers() -> None:
    """A config.json that leaves a field out means the default of transformers."""
    assert from_hf({"model_type": "bert"}) == from_hf(BertConfig().to_dict()) == EncoderConfig()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("relu", "relu"),
    ],
)
def test_every_name_of_an_activation_is_the_same_function(theirs: str, ours: Any) -> None:
    import torch
    from transformers.activations import ACT2FN

    from unmask.nn.encoder import activation

    assert from_hf({"model_type": "bert", "hidden_act": theirs}).hidden_act == ours
    x = torch.linspace(-6, 6, 1001)
    assert (ACT2FN[theirs](x) - activation(ours)(x)).abs().max() < 2e-6


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("vocab_size", 0, "vocab_size must be a whole number from 1"),
        ("vocab_size", "30522", "vocab_size must be a whole number"),
        ("hidden_size", 768.0, "hidden_size must be a whole number"),
        ("num_hidden_layers", True, "num_hidden_layers must be a whole number"),
        ("num_attention_heads", 7, "must be a multiple of num_attention_heads 7"),
        ("num_attention_heads", None, "num_attention_heads must be a whole number"),
        ("hidden_act", "silu", "hidden_act must be one of"),
        ("hidden_act", {"a": 1}, "hidden_act must be one of"),
        ("layer_norm_eps", 0, "layer_norm_eps must be above 0"),
        ("layer_norm_eps", float("nan"), "layer_norm_eps must be a number"),
        ("hidden_dropout_prob", 1.5, "hidden_dropout_prob must be a number from 0 to 1"),
        ("attention_probs_dropout_prob", "0.1", "attention_probs_dropout_prob must be a number"),
        ("pad_token_id", 30522, "pad_token_id must be a whole number from 0 to 30,521"),
        ("pad_token_id", -1, "pad_token_id must be a whole number"),
        ("position_embedding_type", "relative_key", "position_embedding_type is"),
        ("is_decoder", True, "is_decoder is true"),
        ("add_cross_attention", True, "add_cross_attention is true"),
    ],
)
def test_a_value_we_cannot_compute_with_is_refused_in_words(field: str, value: object, words: str) -> None:
    with pytest.raises(UnmaskError, match=words):
        from_hf({"model_type": "bert", field: value})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(list(to_hf(SMALL, "BertModel"))) | st.text(max_size=8), VALUES, max_size=6))
def test_any_json_is_a_config_or_an_error_in_words(data: dict[str, Any]) -> None:
    try:
        config = from_hf({"model_type": "bert", **data})
    except UnmaskError:
        return
    assert isinstance(config, EncoderConfig)
