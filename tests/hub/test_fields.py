"""A field of a configuration that we can't honour is an error that names it: every field of every family, changed in turn."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import randomise
from theirs import MODELS, Theirs, batch_for, our_outputs, require_equal, their_outputs
from transformers import PreTrainedModel

from unmask.errors import UnmaskError
from unmask.hub.configs import read_config
from unmask.hub.fields import HARMLESS
from unmask.hub.files import load_model

FAMILIES = (
    "bert", "roberta", "camembert", "xlm-roberta", "albert-2-groups", "electra", "electra-generator", "deberta",
    "deberta-v2", "deberta-v3", "modernbert", "gpt2", "t5",
)  # fmt: skip

# Honoured, though no setting of EncoderConfig changes.
ELSEWHERE = {
    ("t5", "num_decoder_layers"): "the head is as deep as it says",
    ("t5", "is_encoder_decoder"): "says how the encoder was saved",
    ("deberta", "max_relative_positions"): "all below 1 stand for max_position_embeddings",
    ("deberta-v2", "max_relative_positions"): "all below 1 stand for max_position_embeddings",
    ("deberta-v3", "max_relative_positions"): "all below 1 stand for max_position_embeddings",
    ("deberta", "legacy"): "other names of the same head",
    ("deberta-v2", "legacy"): "other names of the same head",
    ("deberta-v3", "legacy"): "other names of the same head",
}
# Refused when the tensors are read: the settings themselves ask for another tensor.
BY_TENSOR = {("t5", "tie_word_embeddings"): "lm_head.weight", ("t5", "scale_decoder_outputs"): "lm_head.weight"}


@cache
def whole_config(name: str) -> dict[str, Any]:
    """Every field that transformers writes for this family, the optional ones of DeBERTa v2 too."""
    theirs = MODELS[name]
    return json.loads(json.dumps(theirs.config(**theirs.settings).to_dict()))


def changed(value: Any) -> list[Any]:
    """Other values for a field, some of which may be nonsense."""
    if isinstance(value, bool):
        return [not value, "no", None]
    if isinstance(value, int):
        return [value + 1, 2 * value + 2, 2 * value, value - 1, -1, 1.5, "7", None]
    if isinstance(value, float):
        return [value + 0.25, value / 2, -1.0, "0.1", True, None]
    if isinstance(value, str):
        return ["relu", "another", "c2p", "gated-silu", 3, None]
    if value is None:
        return [True, 1, 0.5, "another"]
    return [[*value, *value], [], {}, {"another": 1}, "another"] if isinstance(value, list) else [{"another": 1}, [], 3]


def other_values(name: str, field: str) -> list[Any]:
    now = whole_config(name)[field]
    return [value for value in changed(now) if value != now]


CASES = [(name, field) for name in FAMILIES for field in whole_config(name) if field != "model_type"]


@pytest.mark.parametrize(("name", "field"), CASES)
def test_every_field_is_honoured_or_harmless_or_refused_by_name(name: str, field: str) -> None:
    before = read_config(whole_config(name))[1]
    for value in other_values(name, field):
        try:
            after = read_config({**whole_config(name), field: value})[1]
        except UnmaskError as error:
            assert field in error.what, (value, error.what)
            continue
        usual = value is None and read_config({k: v for k, v in whole_config(name).items() if k != field})[1] == after
        assert after != before or field in HARMLESS or (name, field) in ELSEWHERE or usual, value


ALIKE = {"camembert", "xlm-roberta", "electra", "deberta-v3"}  # one of their kin is enough
SHARED = {field for field in whole_config("bert") if all(field in whole_config(name) for name in FAMILIES)} & HARMLESS
COMPUTED = [(name, field) for name, field in CASES if name not in ALIKE and (name == "bert" or field not in SHARED)]


@pytest.mark.parametrize(("name", "field"), COMPUTED)
def test_whatever_a_field_says_our_numbers_are_those_of_transformers(name: str, field: str, tmp_path: Path) -> None:
    """Harmless ones included: the list in fields.py holds nothing that transformers' own numbers depend on."""
    theirs = MODELS[name]
    for number, value in enumerate(other_values(name, field)):
        config = {**whole_config(name), field: value}
        try:
            read_config(config)
            model = _built(theirs, config)
        except Exception:  # we refuse it (see above), or transformers can't build it
            continue
        model.save_pretrained(tmp_path / str(number))
        (tmp_path / str(number) / "config.json").write_text(json.dumps(config))
        try:
            loaded = load_model(tmp_path / str(number))
        except UnmaskError as error:
            assert BY_TENSOR[name, field] in error.what
            continue
        batch = batch_for(model, [1, 13, 30], theirs.heads, below=60)
        require_equal(our_outputs(loaded, batch), their_outputs(model, theirs.heads, batch))


def _built(theirs: Theirs, settings: dict[str, Any]) -> PreTrainedModel:
    config = theirs.config.from_dict(settings)
    config._attn_implementation = "eager"
    model = theirs.model(config).eval()
    randomise(model, 3)
    batch = batch_for(model, [3, 9], theirs.heads, below=60)
    their_outputs(model, theirs.heads, batch)
    return model.to(torch.float32)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_absent_field_means_what_transformers_takes_it_for(name: str) -> None:
    theirs = MODELS[name]
    model_type = {"model_type": theirs.config.model_type}
    needed = {
        k: v
        for k, v in whole_config(name).items()
        if k in ("relative_attention", "position_biased_input", "pos_att_type")
    }
    defaults = json.loads(json.dumps(theirs.config(**needed).to_dict()))
    assert read_config({**model_type, **needed})[1] == read_config(defaults)[1]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("value", [True, 7, 0.5, "x", [1], {"a": 1}])
def test_a_setting_nobody_knows_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(UnmaskError, match="attention_sinks") as caught:
        read_config({**whole_config(name), "attention_sinks": value})
    assert "delete it" in caught.value.do


@pytest.mark.parametrize("name", FAMILIES)
def test_a_setting_nobody_knows_that_says_nothing_is_passed_over(name: str) -> None:
    for value in (None, False, [], {}, ""):
        read_config({**whole_config(name), "attention_sinks": value})
