"""Out and back: from transformers to us and to transformers again, and from us to transformers, every bit."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from small_models import GOALS, VARIANTS, goals_of, our_network
from test_families import UNUSED
from theirs import MODELS, T5, batch_for, built, opened, our_outputs, require_equal, target_side, their_outputs

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, Objectives, ReplacedTokens
from unmask.hub.files import load_model, save_model, save_weights
from unmask.hub.restore import restore_into

# What a configuration may say otherwise after the way out and back, and why it computes the same.
REWORDED = {
    "_name_or_path": "where it was loaded from",
    "_attn_implementation_internal": "how this machine computes attention",
    "use_cache": "only for generation",
    "max_relative_positions": "-1 stands for max_position_embeddings, which we write out",
    "global_attn_every_n_layers": "layer_types says it too",
    "n_inner": "absent stands for 4 × n_embd, which we write out",
    "pad_token_id": "absent in GPT-2, which never pads; ours is 0",
    "bos_token_id": "null where there is no tokenizer",
    "eos_token_id": "null where there is no tokenizer",
    "cls_token_id": "null where there is no tokenizer",
    "sep_token_id": "null where there is no tokenizer",
    "conv_act": "absent stands for tanh, which we write out",
    "decoder_start_token_id": "absent stands for the padding token",
    "n_positions": "T5 has none; ours is the length the model is meant for",
    "legacy": "other names of the same MLM head",
    "pos_att_type": "a list or one string",
    "is_encoder_decoder": "of T5's encoder alone",
    "num_decoder_layers": "of T5's encoder alone, where there is no decoder",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_of_transformers_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    theirs = built(name)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    save_weights(tmp_path / "again", loaded.weights(), tokenizer_folder=None, about={})
    again = opened(type(theirs), tmp_path / "again")
    before, after = theirs.state_dict(), again.state_dict()
    if name.endswith("legacy"):  # the same head under other names
        before = {_newer(k): v for k, v in before.items() if "decoder" not in k}
    assert before.keys() == after.keys()
    unused = {n if n in before else theirs.base_model_prefix + "." + n for n in UNUSED.get(name, [])}
    for key, tensor in before.items():
        assert key in unused or torch.equal(tensor, after[key]), key
    one, other = theirs.config.to_dict(), again.config.to_dict()
    changed = {key for key in one | other if one.get(key) != other.get(key)}
    assert changed <= REWORDED.keys()
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == [type(theirs).__name__]
    assert not (tmp_path / "again" / "heads.safetensors").exists()


def _newer(name: str) -> str:
    return name.replace("cls.predictions.transform.", "lm_predictions.lm_head.").replace(
        "cls.predictions.bias", "lm_predictions.lm_head.bias"
    )


@pytest.mark.parametrize("name", [name for name in MODELS if "legacy" not in name])  # those get the published names
def test_we_store_the_very_names_that_transformers_stores(name: str, tmp_path: Path) -> None:
    built(name).save_pretrained(tmp_path / "theirs")
    save_weights(tmp_path / "again", load_model(tmp_path / "theirs").weights(), tokenizer_folder=None, about={})
    theirs, ours = (load_file(tmp_path / folder / "model.safetensors") for folder in ("theirs", "again"))
    assert ours.keys() == theirs.keys()


# --- from us to transformers -----------------------------------------------------------------------------------------
ELECTRA = VARIANTS["electra"]
OURS: dict[str, tuple[EncoderConfig, tuple[Objectives, ...], str, str]] = {
    name: (config, goals_of(name), architecture, auto)
    for name, config, architecture, auto in (
        ("bert", VARIANTS["bert"], "BertForPreTraining", "AutoModelForPreTraining"),
        ("roberta", VARIANTS["roberta"], "RobertaForMaskedLM", "AutoModelForMaskedLM"),
        ("albert", VARIANTS["albert"], "AlbertForPreTraining", "AutoModelForPreTraining"),
        ("electra", ELECTRA, "ElectraForMaskedLM", "AutoModelForMaskedLM"),
        ("deberta-v1", VARIANTS["deberta-v1"], "DebertaForMaskedLM", "AutoModelForMaskedLM"),
        ("deberta-v2", VARIANTS["deberta-v2"], "DebertaV2ForMaskedLM", "AutoModelForMaskedLM"),
        ("deberta-v3", VARIANTS["deberta-v3"], "DebertaV2ForMaskedLM", "AutoModelForMaskedLM"),
        ("modernbert", VARIANTS["modernbert"], "ModernBertForMaskedLM", "AutoModelForMaskedLM"),
        ("gpt2", VARIANTS["gpt2"], "GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("t5", VARIANTS["t5"], "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
    )
} | {
    "bert-mlm": (VARIANTS["bert"], (GOALS["mlm"],), "BertForMaskedLM", "AutoModelForMaskedLM"),
    "bert-nsp": (
        VARIANTS["bert"],
        (GOALS["nsp"],),
        "BertForNextSentencePrediction",
        "AutoModelForNextSentencePrediction",
    ),
    "bert-untied": (
        replace(VARIANTS["bert"], tie_word_embeddings=False),
        goals_of("bert"),
        "BertForPreTraining",
        "AutoModelForPreTraining",
    ),
    "albert-mlm": (VARIANTS["albert"], (GOALS["mlm"],), "AlbertForMaskedLM", "AutoModelForMaskedLM"),
    "electra-rtd": (ELECTRA, (ReplacedTokens(sharing="none"),), "ElectraForPreTraining", "AutoModelForPreTraining"),
    "modernbert-untied": (
        replace(VARIANTS["modernbert"], tie_word_embeddings=False),
        goals_of("modernbert"),
        "ModernBertForMaskedLM",
        "AutoModelForMaskedLM",
    ),
}


@pytest.fixture(scope="module", params=list(OURS))
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    config, goals, _, _ = OURS[request.param]
    folder = tmp_path_factory.mktemp("ours") / request.param
    encoder, objective = our_network(replace(config, attention_probs_dropout_prob=0.0), goals)
    save_model(folder, encoder, objective, tokenizer_folder=None, about={})
    return request.param, folder


def test_transformers_opens_our_folder_without_a_word_and_gives_our_numbers(ours: tuple[str, Path]) -> None:
    name, folder = ours
    _, _, architecture, auto = OURS[name]
    assert json.loads((folder / "config.json").read_text())["architectures"] == [architecture]
    loaded = load_model(folder)
    heads = tuple(kind for kind in loaded.heads if kind != "pooler")
    for kind in (getattr(hf, architecture), getattr(hf, auto)):
        model = opened(kind, folder)
        assert type(model).__name__ == architecture
        batch = batch_for(model, [1, 9, 9, 30, 64], heads)
        require_equal(our_outputs(loaded, batch), their_outputs(model, heads, batch))


def test_what_we_saved_comes_back_into_a_network_bit_for_bit(ours: tuple[str, Path]) -> None:
    name, folder = ours
    config, goals, _, _ = OURS[name]
    encoder, objective = our_network(config, goals)
    wanted = {**copy.deepcopy(encoder.state_dict()), **copy.deepcopy(objective.state_dict())}
    for parameter in [*encoder.parameters(), *objective.parameters()]:
        parameter.data.zero_()
    loaded = load_model(folder)
    assert loaded.config == config and not loaded.unexpected
    assert restore_into(encoder, objective, loaded) == []
    for key, tensor in {**encoder.state_dict(), **objective.state_dict()}.items():
        assert torch.equal(tensor, wanted[key]), key


def test_an_encoder_alone_is_the_bare_class(tmp_path: Path) -> None:
    bare = {
        "bert": "BertModel", "roberta": "RobertaModel", "albert": "AlbertModel", "electra": "ElectraModel",
        "deberta-v1": "DebertaModel", "deberta-v2": "DebertaV2Model", "modernbert": "ModernBertModel",
        "gpt2": "GPT2Model", "t5": "T5EncoderModel",
    }  # fmt: skip
    for name, architecture in bare.items():
        encoder, _ = our_network(VARIANTS[name], ())
        save_model(tmp_path / name, encoder, None, tokenizer_folder=None, about={})
        more: dict[str, Any] = {"add_pooling_layer": False} if name in ("bert", "roberta", "albert") else {}
        model = opened(getattr(hf, architecture), tmp_path / name, **more)
        batch = batch_for(model, [5, 40], ())
        loaded = load_model(tmp_path / name)
        ours = {k: v for k, v in our_outputs(loaded, batch).items() if k.startswith("layer")}
        require_equal(ours, their_outputs(model, (), batch))


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "electra", "modernbert", "gpt2", "t5"])
def test_tied_weights_stay_tied_after_a_reload_and_a_step_of_training(name: str, tmp_path: Path) -> None:
    config, goals, architecture, _ = OURS[name]
    save_model(tmp_path / "model", *our_network(config, goals), tokenizer_folder=None, about={})
    model = opened(getattr(hf, architecture), tmp_path / "model").train()
    words, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert words is output
    before = words.detach().clone()
    ids = torch.arange(5, 25)[None]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = model(input_ids=ids, labels=ids) if name not in ("bert", "albert") else model(input_ids=ids)
    loss = out.loss if out.loss is not None else out.prediction_logits.logsumexp(-1).sum()
    loss.backward()
    optimizer.step()
    assert not torch.equal(words, before)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    model.save_pretrained(tmp_path / "trained")
    loaded = load_model(tmp_path / "trained")
    assert torch.equal(loaded.encoder["embeddings.tokens.weight"], words) and not loaded.unexpected


def test_T5_with_an_output_matrix_of_its_own_comes_back(tmp_path: Path) -> None:
    """T5 1.1: transformers takes its unscaled outputs from the flag, and its matrix from the file."""
    config = hf.T5Config(**T5, tie_word_embeddings=False, attn_implementation="eager")
    model = hf.T5ForConditionalGeneration(config).eval()
    model.lm_head.weight = torch.nn.Parameter(torch.randn(97, 48))
    model.save_pretrained(tmp_path / "theirs")
    assert "lm_head.weight" in load_file(tmp_path / "theirs" / "model.safetensors")
    loaded = load_model(tmp_path / "theirs")
    assert not loaded.config.tie_word_embeddings
    batch = PackedBatch.pack([[5, 6, 7], [8] * 20]).with_(decoder=target_side([4, 9], 0)[0])
    require_equal(our_outputs(loaded, batch), their_outputs(model, ("infill",), batch))
    save_weights(tmp_path / "again", loaded.weights(), tokenizer_folder=None, about={})
    again = hf.T5ForConditionalGeneration.from_pretrained(tmp_path / "again", local_files_only=True).eval()
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in model.state_dict().items())
    require_equal(our_outputs(load_model(tmp_path / "again"), batch), their_outputs(again, ("infill",), batch))


def test_a_bare_GPT_2_can_guess_the_next_token(tmp_path: Path) -> None:
    """Its head is the tied matrix, so a folder of the bare class lacks nothing."""
    from theirs import GPT2

    hf.GPT2Model(hf.GPT2Config(**GPT2)).save_pretrained(tmp_path / "bare")
    loaded = load_model(tmp_path / "bare")
    assert set(loaded.heads) == {"causal"} and not loaded.missing and not loaded.unexpected
