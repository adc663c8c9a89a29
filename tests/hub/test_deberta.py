"""DeBERTa's folders: the published head, the legacy one, the mask decoder's places, the discriminator's head."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import foreign
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import load_file, save_file
from small_models import VARIANTS, our_network, sequences
from theirs import BUCKETS, MODELS, built, head_of, our_outputs, require_equal, their_outputs

from unmask.batch import PackedBatch
from unmask.config import MaskedTokens, ReplacedTokens
from unmask.errors import UnmaskError
from unmask.hub import names
from unmask.hub.configs import read_config
from unmask.hub.families.deberta import DEBERTA_V2
from unmask.hub.files import build_encoder, load_model, save_model
from unmask.hub.masked_model import load_masked_model

PLACES = "deberta.embeddings.position_embeddings.weight"


def _edited(folder: Path, change: Any) -> Path:
    state = load_file(folder / "model.safetensors")
    save_file(change(state), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("name", ["deberta", "deberta-v3"])
def test_the_legacy_head_computes_what_the_published_one_does(name: str, tmp_path: Path) -> None:
    """transformers calls the published one new: the same layers under other names, both tied to the embedding."""
    legacy, published = MODELS[name].build(legacy=True), MODELS[name].build(legacy=False)
    before = published.state_dict()
    rename = lambda n: n.replace("lm_predictions.lm_head.bias", "cls.predictions.bias").replace(
        "lm_predictions.lm_head.", "cls.predictions.transform."
    )
    legacy.load_state_dict({rename(n): t for n, t in before.items()}, strict=False)
    legacy.tie_weights()
    batch = sequences([9, 30], VARIANTS["deberta-v3"])
    one, other = (their_outputs(model, ("mlm",), batch) for model in (legacy, published))
    require_equal(one, other)
    legacy.save_pretrained(tmp_path / "legacy")
    require_equal(our_outputs(load_model(tmp_path / "legacy"), batch), other)


def _trained() -> hf.PreTrainedModel:
    """A small DeBERTa that has learned a language where each token says what the next one is."""
    torch.manual_seed(0)
    settings = {**BUCKETS, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 1}
    model = hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(**settings))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(120):
        ids, labels = _masked_sentences(16)
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def _masked_sentences(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = 5 + (torch.randint(0, 20, (count, 1)) + torch.arange(12)) % 20
    hidden = torch.rand(ids.shape) < 0.2
    hidden[:, 5] = True
    return ids.masked_fill(hidden, 4), ids.masked_fill(~hidden, -100)


def test_B126_a_trained_head_is_loaded_under_its_own_name_and_fills_masks_better_than_noise(tmp_path: Path) -> None:
    model = _trained()
    model.save_pretrained(tmp_path / "model")
    assert any("lm_predictions" in name for name in load_file(tmp_path / "model" / "model.safetensors"))
    loaded = load_model(tmp_path / "model")
    ids, labels = _masked_sentences(20)
    logits = our_outputs(loaded, PackedBatch.pack(ids.tolist()))["mlm"]
    loss = F.cross_entropy(logits, labels.flatten(), ignore_index=-100)
    assert loss < math.log(97) / 2


def test_B126_without_its_head_a_deberta_is_never_given_a_random_one(tmp_path: Path, tokenizer_folder: Path) -> None:
    built("deberta-v3").save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_bytes((tokenizer_folder / "vocab.txt").read_bytes())
    _edited(tmp_path / "model", lambda state: {n: t for n, t in state.items() if "lm_predictions" not in n})
    loaded = load_model(tmp_path / "model")
    assert loaded.heads == {} and "lm_predictions.lm_head.bias" in loaded.missing
    with pytest.raises(UnmaskError, match="no whole MLM head"):
        load_masked_model(tmp_path / "model")


@torch.no_grad()
def test_B127_the_places_of_a_published_mask_decoder_are_used_where_a_token_is_guessed_and_nowhere_else(
    tmp_path: Path, tokenizer_folder: Path
) -> None:
    """Published files keep the table though nothing at the input reads it, and transformers drops it."""
    built("deberta-v3").save_pretrained(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / name).write_bytes((tokenizer_folder / name).read_bytes())
    table = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
    swapped = table[[0, 2, 1, *range(3, 64)]]
    batch, where = sequences([9, 30], VARIANTS["deberta-v3"]), torch.tensor([1, 2, 7, 20])
    states, logits = [], []
    for places in (table, swapped):
        _edited(tmp_path / "model", lambda state, places=places: {**state, PLACES: places})
        model = load_masked_model(tmp_path / "model")
        layers = model.encoder.layers(batch)
        states.append(layers)
        logits.append(model.mlm.logits(model.encoder, layers, batch, where))
    assert all(torch.equal(one, other) for one, other in zip(*states, strict=True))
    assert bool(((logits[0] - logits[1]).abs().amax(1) > 1e-3)[:2].all()), "the places asked for have changed"
    plain = their_outputs(built("deberta-v3"), ("mlm",), batch)
    assert (logits[0] - plain["mlm"][where]).abs().max() > 1e-3, "without the decoder it is another model"


def test_the_places_go_out_where_published_files_have_them(tmp_path: Path) -> None:
    encoder, objective = our_network(VARIANTS["deberta-v3"], [MaskedTokens(enhanced_decoder=True)])
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(stored[PLACES], objective.parts["mlm"].head.positions.weight)


def test_places_without_a_head_are_reported(tmp_path: Path) -> None:
    built("deberta-v3-bare").save_pretrained(tmp_path / "model")
    bare = PLACES.removeprefix("deberta.")
    _edited(tmp_path / "model", lambda state: {**state, bare: torch.ones(64, 48)})
    loaded = load_model(tmp_path / "model")
    assert loaded.heads == {} and loaded.unexpected == [bare]


def test_a_released_discriminators_head_is_read_by_its_own_names(tmp_path: Path) -> None:
    """Of DeBERTa-v3: [CLS] added, normed, dense, activation, one number. No class of transformers has it."""
    encoder, objective = our_network(VARIANTS["deberta-v3"], [ReplacedTokens(add_first=True, generator_depth=0.5)])
    head, config = objective.parts["rtd"].head, VARIANTS["deberta-v3"]
    state = names.to_theirs(DEBERTA_V2.encoder(config), encoder.state_dict(), config)
    state = {f"deberta.{name}": tensor for name, tensor in state.items()}
    for ours, theirs in (("dense", "dense"), ("norm", "LayerNorm"), ("out", "classifier")):
        for part in ("weight", "bias"):
            state[f"mask_predictions.{theirs}.{part}"] = head.state_dict()[f"{ours}.{part}"]
    settings = {"model_type": "deberta-v2", **DEBERTA_V2.write(config)}
    loaded = load_model(foreign.write(tmp_path / "model", state, settings))
    assert set(loaded.heads) == {"rtd"} and not loaded.unexpected
    batch = sequences([9, 30], config)
    with torch.no_grad():
        hidden = build_encoder(loaded)(batch)
        first = batch.starts[:-1].long()[batch.layout.rows]
        found = head_of("rtd", loaded)(hidden, first)
        normed = F.layer_norm(hidden + hidden[first], (48,), head.norm.weight, head.norm.bias, config.layer_norm_eps)
        wanted = (F.gelu(normed @ head.dense.weight.T + head.dense.bias) @ head.out.weight.T + head.out.bias)[:, 0]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("model_type", ["deberta", "deberta-v2"])
@pytest.mark.parametrize("field", ["relative_attention", "position_biased_input", "pos_att_type"])
def test_transformers_defaults_which_make_no_deberta_are_refused_with_advice(model_type: str, field: str) -> None:
    """From scratch, transformers' DeBERTa has no relative attention, places at the input, and no kinds of scores."""
    right: dict[str, Any] = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"}
    read_config({"model_type": model_type, **right})
    default = hf.AutoConfig.for_model(model_type).to_dict()[field]
    for wrong in ({field: default}, {}):
        with pytest.raises(UnmaskError, match=field) as caught:
            read_config({"model_type": model_type, **{k: v for k, v in right.items() if k != field}, **wrong})
        assert 'relative_attention true, position_biased_input false and pos_att_type "c2p|p2c"' in caught.value.do


def test_our_deberta_is_one_for_transformers_too(tmp_path: Path) -> None:
    for name in ("deberta-v1", "deberta-v2", "deberta-v3"):
        encoder, _ = our_network(VARIANTS[name], [])
        save_model(tmp_path / name, encoder, None, tokenizer_folder=None, about={})
        config = hf.AutoConfig.from_pretrained(tmp_path / name, local_files_only=True)
        assert config.relative_attention and not config.position_biased_input and not config.legacy
        assert sorted(config.pos_att_type) == ["c2p", "p2c"] and config.type_vocab_size == 0
