from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL, VARIANTS
from transformers.activations import ACT2FN

from unmask.config import EncoderConfig
from unmask.errors import UnmaskError
from unmask.hub.configs import choose_family, read_config
from unmask.hub.families import FAMILIES
from unmask.hub.family import meaning
from unmask.hub.fields import ACTIVATIONS
from unmask.nn.kernels.activation import activation


def read(data: dict[str, Any]) -> EncoderConfig:
    return read_config(data)[1]


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_tanh", "relu", "silu", "tanh"])
def test_a_config_goes_out_and_comes_back(hidden_act: Any) -> None:
    config = dataclasses.replace(SMALL, hidden_act=hidden_act, layer_norm_eps=1e-7, pad_token_id=5)
    assert read({"model_type": "bert", **FAMILIES["bert"].write(config)}) == config


@pytest.mark.parametrize(("theirs", "ours"), ACTIVATIONS.items())
def test_every_name_of_an_activation_is_the_same_function(theirs: str, ours: Any) -> None:
    assert read({"model_type": "bert", "hidden_act": theirs}).hidden_act == ours
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
        ("hidden_act", "quick_gelu", "hidden_act must be one of"),
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
        ("tie_word_embeddings", "yes", "tie_word_embeddings must be true or false"),
    ],
)
def test_a_value_we_cannot_compute_with_is_refused_in_words(field: str, value: object, words: str) -> None:
    with pytest.raises(UnmaskError, match=words):
        read({"model_type": "bert", field: value})


@pytest.mark.parametrize(
    ("model_type", "data", "words"),
    [
        ("gpt2", {"n_head": 7}, "n_embd 768 must be a multiple of n_head 7"),
        ("gpt2", {"layer_norm_epsilon": 0}, "layer_norm_epsilon must be above 0"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is true"),
        ("t5", {"relative_attention_num_buckets": 6}, "relative_attention_num_buckets must be a multiple of 4"),
        ("t5", {"relative_attention_max_distance": 16}, "relative_attention_max_distance must be above half"),
        ("t5", {"feed_forward_proj": "gated-quick"}, 'feed_forward_proj "gated-quick" is none'),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings is 2, but places begin at 2"),
        ("roberta", {"hidden_act": "relu"}, "hidden_act is .relu.; this family's MLM head would compute gelu"),
        ("albert", {"num_hidden_groups": 13}, "num_hidden_groups 13 exceeds num_hidden_layers 12"),
        ("albert", {"inner_group_num": 2}, "inner_group_num is 2"),
        ("modernbert", {"local_attention": 7}, "local_attention must be even"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types must list num_hidden_layers 22 times"),
        ("modernbert", {"rope_scaling": {"factor": 2}}, "rope_scaling is"),
        ("neobert", {"num_attention_heads": 256}, "head_size must be even, not 3"),
        ("unmask", {"encoder": {"hidden_size": "x"}}, "hidden_size"),
        ("unmask", {"encoder": {"hidden_sise": 3}}, "hidden_sise"),
        ("unmask", {"encoder": [1]}, "encoder must be a table"),
        ("unmask", {"encoder": {"positions": {"kind": "disentangled", "max_relative_positions": 10**15}}}, "more than"),
        ("unmask", {"encoder": {"positions": {"kind": "relative_bias", "num_buckets": 10**15}}}, "more than"),
        ("unmask", {"encoder": {"num_hidden_layers": 10**15}}, "num_hidden_layers is more than 1,024"),
    ],
)
def test_other_families_refuse_in_their_own_words(model_type: str, data: dict[str, Any], words: str) -> None:
    with pytest.raises(UnmaskError, match=words):
        read({"model_type": model_type, **data})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = {
    "deberta": ["pos_att_type", "max_relative_positions"],
    "deberta-v2": ["pos_att_type", "position_buckets", "norm_rel_ebd", "share_att_key", "conv_kernel_size", "conv_act"],
    "modernbert": ["layer_types", "global_attn_every_n_layers", "rope_parameters", "local_attention", "norm_eps"],
    "gpt2": ["n_embd", "n_head", "n_inner", "resid_pdrop", "activation_function"],
    "t5": ["feed_forward_proj", "d_kv", "is_gated_act", "dense_act_fn", "relative_attention_num_buckets"],
    "neobert": ["max_length", "dim_head", "hidden_act", "intermediate_size"],
    "unmask": ["encoder"],
}
RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p"}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_json_is_a_config_or_an_error_in_words(data: st.DataObject) -> None:
    model_type = data.draw(st.sampled_from(list(FAMILIES)))
    known = [*FAMILIES["bert"].write(SMALL), *FIELDS.get(model_type, [])]
    found = data.draw(st.dictionaries(st.sampled_from(known) | st.text(max_size=8), VALUES, max_size=6))
    base = RELATIVE if model_type.startswith("deberta") else {}
    try:
        config = read({"model_type": model_type, **base, **found})
    except UnmaskError:
        return
    assert isinstance(config, EncoderConfig)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_value_in_the_nested_settings_is_a_config_or_an_error_in_words(data: st.DataObject) -> None:
    whole = json.loads(json.dumps(FAMILIES["unmask"].write(VARIANTS[data.draw(st.sampled_from(list(VARIANTS)))])))
    rope = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("full_attention", "sliding_attention")}
    for base, parts in (({"model_type": "unmask", **whole}, whole["encoder"]), ({"model_type": "modernbert"}, rope)):
        changed = {**parts, data.draw(st.sampled_from(list(parts)) | st.text(max_size=5)): data.draw(VALUES)}
        name = "encoder" if "encoder" in base else "rope_parameters"
        try:
            read({**base, name: changed})
        except UnmaskError:
            continue


@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_family_cannot_say_is_never_said_by_it(name: str) -> None:
    """Every setting changed in turn: the family that is chosen reads back what was meant, or it is our own."""
    other: dict[str, Any] = {
        "norm": "rms", "norm_first": True, "gated": True, "causal": True, "scale_attention": False, "head_size": 20,
        "embedding_size": 24, "num_hidden_groups": 1, "type_vocab_size": 3, "head_bias": False, "hidden_act": "silu",
        "linear_bias": False, "key_bias": False, "conv_kernel_size": 5, "layer_norm_eps": 0.25, "norm_bias": False,
        "local_attention": 6, "global_attn_every_n_layers": 2, "hidden_dropout_prob": 0.5, "pad_token_id": 7,
        "head_transform": False, "embedding_norm": False, "first_norm": False, "tie_word_embeddings": False,
    }  # fmt: skip
    for field, value in other.items():
        config = dataclasses.replace(VARIANTS[name], **{field: value})
        family = choose_family(config, {}, 0)
        back = read({"model_type": family.model_type, **family.write(config)})
        same = dataclasses.replace(back, initializer=config.initializer, initializer_range=config.initializer_range)
        assert meaning(same) == meaning(config), (field, family.model_type)


def test_two_spellings_of_one_network_are_one() -> None:
    rope = VARIANTS["modernbert"]
    for one, other in (
        (SMALL, dataclasses.replace(SMALL, head_size=12, num_hidden_groups=3, conv_act="relu")),
        (dataclasses.replace(rope, local_attention=0), dataclasses.replace(rope, global_attn_every_n_layers=1)),
    ):
        assert one != other and meaning(one) == meaning(other)
    for changed in ({"head_size": 10}, {"num_hidden_groups": 1}, {"local_attention": 6}):
        assert meaning(rope) != meaning(dataclasses.replace(rope, **changed))


def test_a_model_with_windows_nowhere_is_a_modernbert_all_the_same() -> None:
    config = dataclasses.replace(VARIANTS["modernbert"], local_attention=0)
    family = choose_family(config, {}, 0)
    written = family.write(config)
    assert family.model_type == "modernbert" and set(written["layer_types"]) == {"full_attention"}
    assert written["local_attention"] > 0


@pytest.mark.parametrize(("layers", "groups"), [(12, 1), (12, 5), (12, 12), (24, 7)])
def test_layers_share_their_groups_as_in_transformers(layers: int, groups: int) -> None:
    config = read({"model_type": "albert", "num_hidden_layers": layers, "num_hidden_groups": groups})
    assert [config.block_of(i) for i in range(layers)] == [int(i / (layers / groups)) for i in range(layers)]


def test_a_share_of_layers_that_transformers_rounds_otherwise_is_refused() -> None:
    """9 / (18 / 14) is 7 but for the rounding, and its code takes the 6 below."""
    with pytest.raises(UnmaskError, match="num_hidden_groups 14 of 18 layers"):
        read({"model_type": "albert", "num_hidden_layers": 18, "num_hidden_groups": 14})
