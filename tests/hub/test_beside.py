"""What stands beside the class that transformers knows: the generator, boundary heads, mask decoders, heads of no class."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from small_models import VARIANTS, our_network, randomise, sequences
from theirs import opened, our_outputs, require_equal, their_outputs

from unmask.batch import PackedBatch
from unmask.config import (
    EncoderConfig,
    Infill,
    MaskedTokens,
    Objectives,
    ReplacedTokens,
    SentenceOrder,
    SentencePair,
    SpanBoundary,
)
from unmask.errors import DamagedError, UnmaskError
from unmask.hub.files import build_encoder, load_model, save_model, save_weights
from unmask.hub.masked_model import load_masked_model
from unmask.hub.restore import restore_into
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint

NARROW = dict(generator_width=0.5, generator_depth=0.67)
SAME_WIDTH = dict(generator_width=1.0, generator_depth=0.67)
V3 = VARIANTS["deberta-v3"]
REPLACED: dict[str, tuple[EncoderConfig, ReplacedTokens, str, str]] = {  # and the classes of both folders
    "electra": (
        VARIANTS["electra"], ReplacedTokens(**NARROW), "ElectraForPreTraining", "ElectraForMaskedLM",
    ),
    "electra-wide-tables": (VARIANTS["bert"], ReplacedTokens(**NARROW), "ElectraForPreTraining", "ElectraForMaskedLM"),
    "electra-nothing-shared": (
        VARIANTS["electra"], ReplacedTokens(sharing="none", **NARROW), "ElectraForPreTraining", "ElectraForMaskedLM",
    ),
    "electra-disentangled": (
        VARIANTS["electra"],
        ReplacedTokens(sharing="gradient_disentangled", **NARROW),
        "ElectraForPreTraining",
        "ElectraForMaskedLM",
    ),
    "deberta-v3": (
        V3,
        ReplacedTokens(sharing="gradient_disentangled", add_first=True, **SAME_WIDTH),
        "DebertaV2Model",
        "DebertaV2ForMaskedLM",
    ),
    "modernbert": (
        VARIANTS["modernbert"],
        ReplacedTokens(sharing="gradient_disentangled", **SAME_WIDTH),
        "ModernBertModel",
        "ModernBertForMaskedLM",
    ),
    "modernbert-narrow-generator": (
        VARIANTS["modernbert"], ReplacedTokens(**NARROW), "ModernBertModel", "UnmaskEncoder",
    ),
}  # fmt: skip


def architecture(folder: Path) -> str:
    return json.loads((folder / "config.json").read_text())["architectures"][0]


def saved_replaced(name: str, folder: Path) -> tuple[Encoder, Joint]:
    config, goal, _, _ = REPLACED[name]
    encoder, objective = our_network(config, [goal])
    save_model(folder, encoder, objective, tokenizer_folder=None, about={})
    return encoder, objective


# --- replaced tokens: an encoder and its generator -------------------------------------------------------------------
@pytest.mark.parametrize("name", REPLACED)
@torch.no_grad()
def test_transformers_opens_the_encoder_and_the_generator_beside_it(name: str, tmp_path: Path) -> None:
    """With the numbers that the network had in training, whatever its tables shared with each other."""
    encoder, objective = saved_replaced(name, tmp_path / "model")
    config, _, main, small = REPLACED[name]
    part = objective.parts["rtd"]
    tied = (encoder.embeddings.tables(),) if part.goal.sharing == "tied" else ()
    batch = sequences([1, 9, 9, 40], config)
    for folder, architecture_, states in (
        (tmp_path / "model", main, encoder.layers(batch, *objective.tables())),
        (tmp_path / "model" / "generator", small, part.generator.layers(batch, *tied)),
    ):
        assert architecture(folder) == architecture_
        loaded = load_model(folder)
        ours = our_outputs(loaded, batch)
        for i, state in enumerate(states):
            torch.testing.assert_close(ours[f"layer {i}"], state, atol=2e-6, rtol=2e-5)
        if architecture_ == "UnmaskEncoder":
            continue
        model = opened(getattr(hf, architecture_), folder)
        kinds = tuple(kind for kind in loaded.heads if not (kind == "rtd" and architecture_.endswith("Model")))
        shown = {key: x for key, x in ours.items() if key.startswith("layer") or key in kinds}
        require_equal(shown, their_outputs(model, kinds, batch))


@pytest.mark.parametrize("name", REPLACED)
@torch.no_grad()
def test_training_goes_on_from_a_folder_where_it_was(name: str, tmp_path: Path) -> None:
    """Every bit of the generator, of both heads and of the encoder; a disentangled table's own part is what is left when
    the generator's is taken away, exact to rounding, and what the encoder computes does not change."""
    encoder, objective = saved_replaced(name, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    settled = objective.settle(encoder.state_dict())
    assert loaded.encoder.keys() == settled.keys()
    assert all(torch.equal(tensor, settled[key]) for key, tensor in loaded.encoder.items())
    config, goal, _, _ = REPLACED[name]
    other, goals = our_network(config, [goal])
    for parameter in [*other.parameters(), *goals.parameters()]:
        parameter.data.zero_()
    assert restore_into(other, goals, loaded) == []
    assert all(torch.equal(tensor, goals.state_dict()[key]) for key, tensor in objective.state_dict().items())
    given = objective.parts["rtd"].tables()
    for key, tensor in encoder.state_dict().items():
        exact = not (given and key.startswith("embeddings.") and "norm" not in key and "project" not in key)
        torch.testing.assert_close(other.state_dict()[key], tensor, atol=0 if exact else 2e-7, rtol=0)
    batch = sequences([7, 30], config)
    torch.testing.assert_close(other(batch, *goals.tables()), encoder(batch, *objective.tables()), atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("sharing", ["none", "tied", "gradient_disentangled"])
@torch.no_grad()
def test_a_model_without_a_generator_computes_what_it_did_until_a_new_one_has_learned(
    sharing: Any, tmp_path: Path
) -> None:
    """A disentangled encoder reads the new generator's tables too: its own part must make up for them."""
    config = VARIANTS["electra"]
    source, _ = our_network(config, [])
    save_model(tmp_path / "model", source, None, tokenizer_folder=None, about={})
    encoder, objective = our_network(config, [ReplacedTokens(sharing=sharing, **NARROW)])
    randomise(encoder, 9)
    new = restore_into(encoder, objective, load_model(tmp_path / "model"))
    starts = {name.split(".")[0] + "." + name.split(".")[1] for name in new}
    assert starts == {"rtd.dense", "rtd.out", "rtd.generator", "rtd.mlm"}
    batch = sequences([7, 30], config)
    torch.testing.assert_close(encoder(batch, *objective.tables()), source(batch), atol=2e-6, rtol=2e-5)


def test_a_generator_is_written_again_with_its_encoder(tmp_path: Path) -> None:
    saved_replaced("electra", tmp_path / "model")
    save_weights(tmp_path / "again", load_model(tmp_path / "model").weights(), tokenizer_folder=None, about={})
    for part in (".", "generator"):
        one, other = (load_file(tmp_path / f / part / "model.safetensors") for f in ("model", "again"))
        assert one.keys() == other.keys() and all(torch.equal(other[key], tensor) for key, tensor in one.items())


def test_a_generator_of_another_size_than_the_run_says_is_refused(tmp_path: Path) -> None:
    saved_replaced("electra", tmp_path / "model")
    encoder, objective = our_network(VARIANTS["electra"], [ReplacedTokens(generator_width=1.0, generator_depth=0.67)])
    with pytest.raises(UnmaskError, match="the generator's hidden_size is 48 in this run, but 24 in") as error:
        restore_into(encoder, objective, load_model(tmp_path / "model"))
    assert "generator_width" in error.value.do and "encoder." not in error.value.do


@pytest.mark.parametrize("part", ["generator", "head"])
def test_B129_a_generator_that_is_not_finite_is_not_written(tmp_path: Path, part: str) -> None:
    config, goal, _, _ = REPLACED["electra"]
    encoder, objective = our_network(config, [goal])
    module = objective.parts["rtd"].generator if part == "generator" else objective.parts["rtd"].mlm.head
    next(iter(module.parameters())).data[0] = math.nan
    with pytest.raises(UnmaskError, match="NaN or infinity, so the model is not written"):
        save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["generator/model.safetensors", "generator/config.json"])
def test_one_flipped_bit_in_a_generator_is_named(tmp_path: Path, file: str) -> None:
    saved_replaced("electra", tmp_path / "model")
    path = tmp_path / "model" / file
    content = bytearray(path.read_bytes())
    content[content.index(b"0.02") + 3 if file.endswith("json") else -7] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=f"{path.name} is not the file that was written"):
        load_model(tmp_path / "model").weights()


def test_a_generator_that_is_its_own_generator_ends(tmp_path: Path) -> None:
    encoder, _ = our_network(VARIANTS["electra"], [])
    save_model(tmp_path / "model", encoder, None, tokenizer_folder=None, about={})
    (tmp_path / "model" / "manifest.json").unlink()
    (tmp_path / "model" / "generator").symlink_to(tmp_path / "model")
    weights = load_model(tmp_path / "model").weights()
    assert weights.generator is not None and weights.generator.generator is None


# --- heads of no class -----------------------------------------------------------------------------------------------
PLACED = (MaskedTokens(unit="word", enhanced_decoder=True),)
HEADS: dict[str, tuple[EncoderConfig, tuple[Objectives, ...], str, set[str]]] = {  # what is in heads.safetensors
    "spanbert": (VARIANTS["bert"], (MaskedTokens(unit="span"), SpanBoundary(position_size=8)), "BertForMaskedLM", {"sbo"}),
    "nsp-roberta": (VARIANTS["roberta"], (MaskedTokens(), SentencePair()), "RobertaForMaskedLM", {"nsp"}),
    "sop-rope": (VARIANTS["modernbert"], (MaskedTokens(), SentenceOrder()), "ModernBertForMaskedLM", {"sop"}),
    "sop-deberta": (V3, (MaskedTokens(), SentenceOrder()), "DebertaV2ForMaskedLM", {"sop"}),
    "mask-decoder-deberta": (V3, PLACED, "DebertaV2ForMaskedLM", set()),  # where the published ones have it
    "mask-decoder-deberta-v1": (VARIANTS["deberta-v1"], PLACED, "DebertaForMaskedLM", set()),
    "mask-decoder-bert": (VARIANTS["bert"], PLACED, "BertForMaskedLM", {"mlm"}),
    "segments-rope": (
        replace(VARIANTS["modernbert"], type_vocab_size=2), (MaskedTokens(), SentenceOrder()), "UnmaskEncoder", {"mlm", "sop"},
    ),
    "rms-bert": (replace(VARIANTS["bert"], norm="rms"), (MaskedTokens(), SentencePair()), "UnmaskEncoder", {"mlm", "nsp"}),
    "infill-deberta": (V3, (Infill(),), "DebertaV2Model", {"infill"}),
    "infill-shallow-rope": (VARIANTS["modernbert"], (Infill(num_decoder_layers=1),), "ModernBertModel", {"infill"}),
    "infill-rms-bert": (replace(VARIANTS["bert"], norm="rms"), (Infill(),), "UnmaskEncoder", {"infill"}),
    "no-segments-bert": (  # their class adds a segment's row whatever the table holds
        replace(VARIANTS["bert"], type_vocab_size=0), (MaskedTokens(),), "UnmaskEncoder", {"mlm"},
    ),
    "shared-deberta": (replace(V3, num_hidden_groups=1), PLACED, "UnmaskEncoder", {"mlm"}),
    "narrow-modernbert": (
        replace(VARIANTS["modernbert"], embedding_size=16), (ReplacedTokens(**NARROW),), "UnmaskEncoder", {"rtd"},
    ),
    "add-first-electra": (  # the class would leave out the norm, and compute something else
        VARIANTS["electra"], (ReplacedTokens(add_first=True, **NARROW),), "ElectraModel", {"rtd"},
    ),
    "matrix-alone-t5": (
        replace(VARIANTS["t5"], hidden_act="relu"), (MaskedTokens(),), "T5EncoderModel", set(),
    ),
    "untied-deberta": (replace(V3, tie_word_embeddings=False), (MaskedTokens(),), "UnmaskEncoder", {"mlm"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_every_head_comes_back_bit_for_bit_whether_or_not_a_class_has_it(name: str, tmp_path: Path) -> None:
    config, goals, architecture_, beside = HEADS[name]
    encoder, objective = our_network(config, goals)
    wanted = {key: x.clone() for module in (encoder, objective) for key, x in module.state_dict().items()}
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    assert architecture(tmp_path / "model") == architecture_
    heads = tmp_path / "model" / "heads.safetensors"
    assert ({key.split(".")[0] for key in load_file(heads)} if heads.exists() else set()) == beside
    if architecture_ != "UnmaskEncoder":
        opened(getattr(hf, architecture_), tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.config == config and not loaded.unexpected
    for parameter in [*encoder.parameters(), *objective.parameters()]:
        parameter.data.zero_()
    assert restore_into(encoder, objective, loaded) == []
    found = {key: x for module in (encoder, objective) for key, x in module.state_dict().items()}
    assert all(torch.equal(found[key], tensor) for key, tensor in wanted.items())


@pytest.mark.parametrize("name", ["segments-rope", "no-segments-bert", "rms-bert", "shared-deberta", "untied-deberta"])
def test_what_no_class_can_say_is_ours_and_computes_the_same(name: str, tmp_path: Path) -> None:
    config, goals, _, _ = HEADS[name]
    encoder, objective = our_network(config, goals)
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "unmask"
    batch = sequences([1, 9, 40], config)
    with torch.no_grad():
        assert torch.equal(build_encoder(load_model(tmp_path / "model"))(batch), encoder(batch))
    with pytest.raises(ValueError, match="unmask"):
        hf.AutoModel.from_pretrained(tmp_path / "model", local_files_only=True)


@pytest.mark.parametrize(
    "name", ["mask-decoder-deberta", "mask-decoder-bert", "shared-deberta", "matrix-alone-t5", "untied-deberta"]
)
@torch.no_grad()
def test_a_mask_is_filled_as_in_training(name: str, tmp_path: Path, tokenizer_folder: Path) -> None:
    config, goals, _, _ = HEADS[name]
    encoder, objective = our_network(config, goals)
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=tokenizer_folder, about={})
    model = load_masked_model(tmp_path / "model")
    batch, where = sequences([9, 40], config), torch.tensor([3, 20])
    wanted = objective.parts["mlm"].logits(encoder, encoder.layers(batch), batch, where)
    found = model.mlm.logits(model.encoder, model.encoder.layers(batch), batch, where)
    torch.testing.assert_close(found, wanted, atol=0, rtol=0)


def test_a_mask_is_filled_by_the_generator_and_the_error_says_so(tmp_path: Path, tokenizer_folder: Path) -> None:
    config, goal, _, _ = REPLACED["electra"]
    save_model(tmp_path / "model", *our_network(config, [goal]), tokenizer_folder=tokenizer_folder, about={})
    with pytest.raises(UnmaskError, match="no whole MLM head") as caught:
        load_masked_model(tmp_path / "model")
    assert "generator" in caught.value.do
    assert load_masked_model(tmp_path / "model" / "generator").encoder.config.hidden_size == 24


# --- heads.safetensors may be damaged or hostile ----------------------------------------------------------------------
def _with_heads(folder: Path, tokenizer_folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    encoder, objective = our_network(VARIANTS["bert"], [MaskedTokens(enhanced_decoder=True)])
    save_model(folder, encoder, objective, tokenizer_folder=tokenizer_folder, about={})
    save_file(tensors, folder / "heads.safetensors")
    (folder / "manifest.json").unlink()
    return folder


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"mlm.bias": torch.ones(97)}, "mlm.bias is in heads.safetensors and in model.safetensors too"),
        ({"mlm.positions.weight": torch.ones(64, 48, dtype=torch.int8)}, "holds I8 numbers"),
        ({"mlm.positions.weight": torch.full((64, 48), math.nan)}, "NaN or infinity"),
        (
            {"mlm.positions.weight": torch.ones(64, 47)},
            r"mlm.positions.weight is \[64, 48\] in this run, but \[64, 47\]",
        ),
    ],
)
def test_heads_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, tokenizer_folder: Path, tensors: dict[str, torch.Tensor], words: str
) -> None:
    with pytest.raises(UnmaskError, match=words):
        load_masked_model(_with_heads(tmp_path / "model", tokenizer_folder, tensors))


def test_a_head_of_ours_that_is_there_in_part_cannot_fill_masks(tmp_path: Path, tokenizer_folder: Path) -> None:
    config = HEADS["untied-deberta"][0]
    save_model(tmp_path / "model", *our_network(config, [MaskedTokens()]), tokenizer_folder=tokenizer_folder, about={})
    heads = load_file(tmp_path / "model" / "heads.safetensors")
    del heads["mlm.transform.dense.weight"]
    save_file(heads, tmp_path / "model" / "heads.safetensors")
    (tmp_path / "model" / "manifest.json").unlink()
    with pytest.raises(UnmaskError, match="lacks mlm.transform.dense.weight"):
        load_masked_model(tmp_path / "model")


def test_one_flipped_bit_in_the_heads_is_named(tmp_path: Path) -> None:
    config, goals, _, _ = HEADS["spanbert"]
    save_model(tmp_path / "model", *our_network(config, goals), tokenizer_folder=None, about={})
    content = bytearray((tmp_path / "model" / "heads.safetensors").read_bytes())
    content[-7] ^= 1
    (tmp_path / "model" / "heads.safetensors").write_bytes(content)
    with pytest.raises(DamagedError, match=r"heads.safetensors is not the file that was written"):
        load_model(tmp_path / "model")


def test_heads_of_another_tool_are_no_concern_of_ours(tmp_path: Path) -> None:
    encoder, _ = our_network(VARIANTS["bert"], [])
    save_model(tmp_path / "model", encoder, None, tokenizer_folder=None, about={})
    for name in ("unmask.json", "manifest.json"):
        (tmp_path / "model" / name).unlink()
    save_file({"anything": torch.ones(3)}, tmp_path / "model" / "heads.safetensors")
    assert load_model(tmp_path / "model").heads == {}


def test_a_batch_of_one_token_passes_a_mask_decoder() -> None:
    encoder, objective = our_network(V3, PLACED)
    batch = PackedBatch.pack([[5]])
    with torch.no_grad():
        logits = objective.parts["mlm"].logits(encoder, encoder.layers(batch), batch, torch.tensor([0]))
    assert bool(logits.isfinite().all())
