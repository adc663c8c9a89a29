"""Every preset is the published model: its traits, and as many parameters as transformers builds, to the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from published_models import PUBLISHED
from torch import nn
from transformers import DebertaV2Config

from unmask import presets, settings
from unmask.config import Absolute, Disentangled, EncoderConfig, Recurrent, RelativeBias, Rope
from unmask.errors import UnmaskError
from unmask.nn.cost import count_parameters
from unmask.nn.decoder import Decoder
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TokenHead

UNKNOWN_TO_TRANSFORMERS = {"neobert", "elmo_mini", "elmo_small", "elmo_medium", "elmo"}


def _ours(config: EncoderConfig) -> tuple[Encoder, nn.Module]:
    """The encoder, and what turns its states into vocabulary logits; T5's decoder counts with the latter."""
    with torch.device("meta"):
        encoder, head = Encoder(config), TokenHead(config)
        if isinstance(config.positions, RelativeBias):
            return encoder, nn.ModuleList([head, Decoder(config, config.num_hidden_layers)])
        return encoder, head


def test_every_preset_is_asserted() -> None:
    assert set(presets.names()) == set(PUBLISHED) | UNKNOWN_TO_TRANSFORMERS


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_those_of_the_published_models(name: str) -> None:
    """Without BERT's and RoBERTa's pooler, which belongs to the pair objective; a tied matrix counts once on both sides."""
    theirs, bare, with_head = PUBLISHED[name]()
    encoder, head = _ours(presets.preset(name)())
    with torch.device("meta"):
        assert count_parameters(encoder) == count_parameters(bare(theirs))
        assert count_parameters(encoder, head) == count_parameters(with_head(theirs))


def test_neobert_counts_as_worked_by_hand() -> None:
    """28 layers of 4 square matrices, 3 of 768 × 2,048 and 2 norms; a final norm, a table, an output matrix with a bias."""
    encoder, head = _ours(presets.neobert())
    layer = 4 * 768 * 768 + 3 * 768 * 2048 + 2 * 768
    assert count_parameters(encoder) == 28 * layer + 768 + 30522 * 768
    assert count_parameters(head) == 30522 * 768 + 30522


@pytest.mark.parametrize(("name", "millions"), [("elmo_small", 13.6), ("elmo_medium", 28.0), ("elmo", 93.6)])
def test_elmo_has_the_parameters_its_release_counts(name: str, millions: float) -> None:
    """But for the second bias that torch's LSTMs have: a gate's numbers for each of four LSTMs."""
    config = presets.preset(name)()
    with torch.device("meta"):
        parameters = count_parameters(Encoder(config))
    assert isinstance(config.layer, Recurrent)
    assert (parameters - 4 * 4 * config.layer.cell_size) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        # Devlin et al. 2019 say 110 and 340, the latter rounded up; Turc et al. 2019 the four small ones
        ("bert_tiny", 4.4), ("bert_mini", 11.2), ("bert_small", 28.8), ("bert_medium", 41.4),
        ("bert_base", 109.5), ("bert_large", 335.1),
        ("roberta_base", 124.6), ("roberta_large", 355.4),  # 125 and 355
        ("albert_base", 11.7), ("albert_large", 17.7), ("albert_xlarge", 58.7), ("albert_xxlarge", 222.6),  # 12, 18, 60, 235
    ],
)  # fmt: skip
def test_totals_with_a_pooler_are_those_the_papers_print(name: str, millions: float) -> None:
    config = presets.preset(name)()
    pooler = config.hidden_size * (config.hidden_size + 1)
    assert round((count_parameters(_ours(config)[0]) + pooler) / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("deberta_v3_xsmall", (22, 48)), ("deberta_v3_small", (44, 98)), ("deberta_v3_base", (86, 98)),
        ("deberta_v3_large", (304, 131)), ("mdeberta_v3_base", (86, 190)),
    ],
)  # fmt: skip
def test_deberta_v3_has_its_published_backbone_and_vocabulary_parameters(name: str, millions: tuple[int, int]) -> None:
    """As its model cards print them: 22 + 48, 44 + 98, 86 + 98, 304 + 131 and 86 + 190 million, give or take 2.5 %."""
    config = presets.preset(name)()
    table = config.vocab_size * config.hidden_size
    backbone = count_parameters(_ours(config)[0]) - table
    assert (backbone / 1e6, table / 1e6) == pytest.approx(millions, rel=0.025)


def test_ettin_sizes_are_in_their_names() -> None:
    for name, millions in {"17m": 17, "32m": 32, "68m": 68, "150m": 150, "400m": 396, "1b": 1028}.items():
        assert round(count_parameters(_ours(presets.preset(f"ettin_{name}")())[0]) / 1e6) in (millions, millions - 1)


# --- what is usually got wrong --------------------------------------------------------------------------------------------
LAYOUT = ("norm_first", "embedding_norm", "linear_bias", "norm", "gated", "hidden_act", "layer_norm_eps")
BERT = (False, True, True, "layer", False, "gelu", 1e-12)
TRAITS: dict[str, tuple[Any, ...]] = {
    "bert_base": BERT, "spanbert_base": BERT, "electra_small": BERT, "electra_base": BERT,
    "roberta_base": (*BERT[:-1], 1e-5), "camembert_base": (*BERT[:-1], 1e-5),
    "albert_base": (*BERT[:-2], "gelu_tanh", 1e-12),
    "deberta_base": (*BERT[:-1], 1e-7), "deberta_v2_xlarge": (*BERT[:-1], 1e-7), "deberta_v3_base": (*BERT[:-1], 1e-7),
    "modernbert_base": (True, True, False, "layer", True, "gelu", 1e-5),
    "ettin_17m": (True, True, False, "layer", True, "gelu", 1e-5),
    "neobert": (True, False, False, "rms", True, "silu", 1e-5),
    "gpt2": (True, False, True, "layer", False, "gelu_tanh", 1e-5),
    "t5_base": (True, False, False, "rms", False, "relu", 1e-6),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAITS)
def test_the_traits_of_each_family_are_those_of_the_released_weights(name: str) -> None:
    config = presets.preset(name)()
    assert tuple(getattr(config, trait) for trait in LAYOUT) == TRAITS[name]


def test_dropout_is_what_each_model_is_published_with() -> None:
    without = {name for name in presets.names() if not presets.preset(name)().hidden_dropout_prob}
    begins = ("albert", "modernbert", "ettin", "neobert")
    assert without == {name for name in presets.names() if name.startswith(begins)}


@pytest.mark.parametrize("name", ["roberta_base", "roberta_large", "camembert_base"])
def test_roberta_places_begin_after_the_padding_and_there_are_512_of_them(name: str) -> None:
    config = presets.preset(name)()
    assert (config.position_offset, config.position_rows, config.max_position_embeddings) == (2, 514, 512)
    assert config.type_vocab_size == 1


@pytest.mark.parametrize("name", ["albert_base", "albert_large", "albert_xlarge", "albert_xxlarge"])
def test_albert_has_narrow_tables_and_one_set_of_weights(name: str) -> None:
    config = presets.preset(name)()
    assert config.table_size == 128 and config.num_blocks == 1
    assert {config.block_of(layer) for layer in range(config.num_hidden_layers)} == {0}


def test_only_the_small_electra_projects_its_tables() -> None:
    widths = [presets.preset(f"electra_{size}")().table_size for size in ("small", "base", "large")]
    assert widths == [128, 768, 1024] and presets.electra_base().embedding_size == 0


DEBERTAS = [name for name in presets.names() if "deberta" in name]


@pytest.mark.parametrize("name", DEBERTAS)
def test_B18_a_deberta_from_scratch_attends_to_relative_places(name: str) -> None:
    """transformers' own defaults give one that does not: see the next test."""
    config = presets.preset(name)()
    d = config.positions
    assert isinstance(d, Disentangled) and d.content_to_position and d.position_to_content
    assert d.max_relative_positions == 512 and config.position_rows == 0 and config.type_vocab_size == 0
    assert config.key_size == 64
    first = name in ("deberta_base", "deberta_large")
    assert (d.position_buckets, d.normed, d.shared_projections) == ((0, False, False) if first else (256, True, True))
    assert config.key_bias is not first
    encoder, _ = _ours(replace(config, num_hidden_layers=1))
    assert encoder.places.table.weight.shape == ((1024 if first else 512), config.hidden_size)
    assert encoder.embeddings.positions is None


def test_B18_the_defaults_of_transformers_would_not() -> None:
    theirs = DebertaV2Config()
    assert not theirs.relative_attention and theirs.position_biased_input and theirs.pos_att_type is None


def test_only_deberta_v2_has_the_convolution() -> None:
    having = {name for name in presets.names() if presets.preset(name)().conv_kernel_size}
    assert having == {"deberta_v2_xlarge", "deberta_v2_xxlarge"}
    assert {presets.preset(name)().conv_kernel_size for name in having} == {3}


MODERN = [name for name in presets.names() if name.startswith(("modernbert", "ettin"))]


@pytest.mark.parametrize("name", MODERN)
def test_modernbert_sees_everything_in_every_third_layer_and_64_tokens_a_side_in_the_others(name: str) -> None:
    config = presets.preset(name)()
    assert [config.window_of(layer) for layer in range(7)] == [0, 64, 64, 0, 64, 64, 0]
    assert not config.first_norm and not config.norm_bias and config.type_vocab_size == 0 and config.position_rows == 0
    assert config.head_transform and config.head_bias and config.tie_word_embeddings
    assert config.initializer == "residual" and config.key_size == 64
    ettin = name.startswith("ettin")
    assert config.positions == Rope(theta=160_000.0, local_theta=0.0 if ettin else 10_000.0)
    assert config.max_position_embeddings == (7999 if ettin else 8192)


def test_neobert_has_an_output_matrix_of_its_own_and_one_theta() -> None:
    config = presets.neobert()
    assert config.positions == Rope(theta=10_000.0) and config.max_position_embeddings == 4096
    assert not config.tie_word_embeddings and not config.head_transform and config.head_bias
    assert config.local_attention == 0


def test_gpt_looks_back_only_and_t5_does_not_scale_its_scores() -> None:
    assert [name for name in presets.names() if presets.preset(name)().causal] == ["gpt2", "gpt2_medium"]
    assert [name for name in presets.names() if not presets.preset(name)().scale_attention] == ["t5_small", "t5_base"]
    assert presets.t5_small().positions == RelativeBias(num_buckets=32, max_distance=128)
    assert presets.gpt2().positions == Absolute() and presets.gpt2().max_position_embeddings == 1024
    for config in (presets.gpt2(), presets.t5_base()):
        assert not config.head_transform and not config.head_bias and config.tie_word_embeddings


# --- by name --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", presets.names())
def test_a_preset_goes_by_its_name_with_dashes_too_and_takes_any_vocabulary(name: str) -> None:
    function = presets.preset(name.replace("_", "-"))
    assert function is presets.preset(name) is getattr(presets, name) and name in presets.__all__
    assert replace(function(999), vocab_size=function().vocab_size) == function()


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_survives_json(name: str) -> None:
    config = presets.preset(name)()
    assert settings.parse(EncoderConfig, settings.plain(config)) == config


def test_a_name_that_is_not_there_is_answered_with_the_near_one_and_with_all_by_family() -> None:
    with pytest.raises(UnmaskError) as caught:
        presets.preset("deberta-v3-bsae")
    assert caught.value.do.startswith("did you mean deberta_v3_base? there are: bert_tiny, bert_mini")
    assert "; electra_small, electra_base, electra_large; " in caught.value.do
