"""What we write, transformers loads as it is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from small_models import SMALL, our_answers, our_model, padded, sequences
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoTokenizer,
    BertModel,
)

from unmask.errors import CannotWriteError, UnmaskError
from unmask.files import verify_folder
from unmask.hub.files import build_encoder, load_model, save_model, save_weights
from unmask.hub.restore import restore_into
from unmask.text.tokenizer import Tokenizer

CLASSES = {
    ("mlm", "nsp"): (AutoModelForPreTraining, "BertForPreTraining"),
    ("mlm",): (AutoModelForMaskedLM, "BertForMaskedLM"),
    ("nsp",): (AutoModelForNextSentencePrediction, "BertForNextSentencePrediction"),
}


def _opened(kind, folder: Path, **more):
    """As transformers loads it, after it has reported nothing missing, unexpected, mismatched or newly initialised."""
    model, report = kind.from_pretrained(
        folder, output_loading_info=True, local_files_only=True, attn_implementation="eager", **more
    )
    assert not any(report.values()), report
    return model.eval()


@pytest.mark.parametrize("kinds", CLASSES)
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_tanh", "relu"])
def test_transformers_loads_the_folder_as_it_is_and_gives_our_logits(
    tmp_path: Path, kinds: tuple[str, ...], hidden_act: str
) -> None:
    auto, architecture = CLASSES[kinds]
    config = dataclasses.replace(SMALL, hidden_act=hidden_act, layer_norm_eps=1e-6)
    encoder, objective = our_model(config, kinds)
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    model = _opened(auto, tmp_path / "model")
    assert type(model).__name__ == architecture
    batch = sequences([3, 9, 9, 30])
    hidden, _, _ = our_answers(encoder, our_model(config)[1], batch)
    with torch.no_grad():
        out = model(**padded(batch))
        if "mlm" in kinds:
            logits = objective.parts["mlm"].head(hidden, encoder.token_table()).dense()
            theirs = out.prediction_logits if "nsp" in kinds else out.logits
            assert (logits - batch.layout.unpad(theirs)).abs().max() < 1e-5
        if "nsp" in kinds:
            logits = objective.parts["nsp"].head(hidden[batch.starts[:-1].long()])
            theirs = out.seq_relationship_logits if "mlm" in kinds else out.logits
            assert (logits - theirs).abs().max() < 1e-5


def test_a_model_with_both_heads_opens_as_every_bert_class(saved: Path) -> None:
    _opened(AutoModelForPreTraining, saved)
    for auto in (AutoModelForMaskedLM, AutoModelForNextSentencePrediction, AutoModel):
        _, report = auto.from_pretrained(saved, output_loading_info=True, local_files_only=True)
        assert not report["missing_keys"] and not report["mismatched_keys"]


def test_an_encoder_alone_is_a_bert_model_without_a_pooler(tmp_path: Path) -> None:
    encoder, objective = our_model()
    save_model(tmp_path / "model", encoder, None, tokenizer_folder=None, about={})
    model = _opened(BertModel, tmp_path / "model", add_pooling_layer=False)
    batch = sequences([3, 9, 30])
    with torch.no_grad():
        theirs = model(**padded(batch)).last_hidden_state
    assert (our_answers(encoder, objective, batch)[0] - batch.layout.unpad(theirs)).abs().max() < 1e-5


def test_the_tied_matrix_is_stored_once_and_the_file_says_pt(saved: Path) -> None:
    with safe_open(saved / "model.safetensors", framework="pt") as file:
        stored = list(file.keys())
        assert file.metadata() == {"format": "pt"}
        size = sum(file.get_tensor(name).numel() for name in stored)
    assert not [name for name in stored if "decoder" in name]
    assert size == sum(p.numel() for module in our_model() for p in module.parameters())


def test_auto_tokenizer_gives_our_ids_and_knows_the_length_limit(saved: Path, tokenizer_folder: Path) -> None:
    theirs, ours = AutoTokenizer.from_pretrained(saved, local_files_only=True), Tokenizer.load(tokenizer_folder)
    for text in ("The cats sat on the mat.", "sitting cats", "word3 [MASK]! 的", ""):
        wanted = ours.encode([text])[0].ids.tolist() if "[MASK]" not in text else ours.encode_marked(text).ids.tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == wanted
    assert theirs.model_max_length == SMALL.max_position_embeddings
    pair = theirs("the cat", "sat on", return_tensors="pt")
    assert pair["token_type_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1]


@settings(max_examples=15, deadline=None)
@given(
    layers=st.integers(1, 3),
    heads=st.sampled_from([1, 2, 4]),
    kinds=st.sampled_from([("mlm", "nsp"), ("mlm",), ("nsp",)]),
    segments=st.integers(1, 3),
    act=st.sampled_from(["gelu", "gelu_tanh", "relu"]),
    pad=st.integers(0, 12),
)
def test_export_and_import_give_back_every_bit(
    tmp_path_factory: pytest.TempPathFactory, layers: int, heads: int, kinds, segments: int, act, pad: int
) -> None:
    config = dataclasses.replace(
        SMALL,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        hidden_size=8 * heads,
        type_vocab_size=segments,
        hidden_act=act,
        pad_token_id=pad,
        hidden_dropout_prob=0.1,
    )
    encoder, objective = our_model(config, kinds)
    folder = tmp_path_factory.mktemp("out") / "model"
    save_model(folder, encoder, objective, tokenizer_folder=None, about={"note": "π"})
    loaded = load_model(folder)
    assert loaded.config == config
    assert loaded.about["note"] == "π"
    assert loaded.encoder.keys() == encoder.state_dict().keys()
    assert all(torch.equal(loaded.encoder[name], tensor) for name, tensor in encoder.state_dict().items())
    assert set(loaded.heads) == set(kinds) and not loaded.unexpected
    other_encoder, other_objective = our_model(config, kinds)
    for parameter in [*other_encoder.parameters(), *other_objective.parameters()]:
        parameter.data.zero_()
    assert restore_into(other_encoder, other_objective, loaded) == []
    for one, other in ((encoder, other_encoder), (objective, other_objective)):
        assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in one.state_dict().items())


def test_a_folder_of_transformers_comes_back_bit_for_bit(tmp_path: Path, saved: Path) -> None:
    theirs = AutoModelForPreTraining.from_pretrained(saved, local_files_only=True)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert not loaded.missing and not loaded.unexpected
    save_weights(tmp_path / "again", loaded.weights(), tokenizer_folder=None, about=loaded.about)
    again = AutoModelForPreTraining.from_pretrained(tmp_path / "again", local_files_only=True).state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again[name]), name


def test_the_folder_can_be_verified_and_says_where_the_model_comes_from(saved: Path) -> None:
    assert verify_folder(saved)["about"]["format"] == "unmask-model"
    assert json.loads((saved / "unmask.json").read_text())["steps"] == 12


def test_the_card_is_written_and_a_folder_is_replaced_only_when_asked(tmp_path: Path) -> None:
    model = our_model()
    save_model(tmp_path / "model", *model, tokenizer_folder=None, about={}, card="# A model\n")
    assert (tmp_path / "model" / "README.md").read_text() == "# A model\n"
    with pytest.raises(CannotWriteError):
        save_model(tmp_path / "model", *model, tokenizer_folder=None, about={}, replace=False)
    save_model(tmp_path / "model", *model, tokenizer_folder=None, about={})
    assert not (tmp_path / "model" / "README.md").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("part", ["encoder", "mlm", "nsp"])
def test_B129_export_refuses_a_tensor_that_is_not_finite_by_name(tmp_path: Path, part: str, value: float) -> None:
    encoder, objective = our_model()
    module = encoder if part == "encoder" else objective.parts[part].head
    next(iter(module.parameters())).data[-1] = value
    with pytest.raises(UnmaskError, match="NaN or infinity, so the model is not written"):
        save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    assert list(tmp_path.iterdir()) == []


def test_B129_a_bf16_model_is_exported_as_fp32_and_answers_alike(tmp_path: Path) -> None:
    encoder, objective = our_model()
    save_model(tmp_path / "model", encoder.bfloat16(), objective.bfloat16(), tokenizer_folder=None, about={})
    batch = sequences([3, 9, 30])
    encoder, objective = encoder.float(), objective.float()
    _, mlm, nsp = our_answers(encoder, objective, batch)
    with torch.no_grad():
        out = _opened(AutoModelForPreTraining, tmp_path / "model")(**padded(batch))
    assert (mlm - batch.layout.unpad(out.prediction_logits)).abs().max() < 1e-5
    assert (nsp - out.seq_relationship_logits).abs().max() < 1e-5


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path, tokenizer_folder: Path) -> None:
    small = our_model(dataclasses.replace(SMALL, vocab_size=90))
    with pytest.raises(UnmaskError, match="97 ids, but the model only 90 rows"):
        save_model(tmp_path / "model", *small, tokenizer_folder=tokenizer_folder, about={})
    assert list(tmp_path.iterdir()) == []


def test_a_built_encoder_owns_its_weights_and_has_dropout_off(saved: Path) -> None:
    loaded = load_model(saved)
    encoder = build_encoder(loaded)
    kept = {name: tensor.clone() for name, tensor in loaded.encoder.items()}
    for parameter in encoder.parameters():
        parameter.data.add_(1)
    assert all(torch.equal(loaded.encoder[name], tensor) for name, tensor in kept.items())
    assert not any(module.training for module in encoder.modules())
