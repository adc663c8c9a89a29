"""Every preset is the published model: as many parameters as transformers builds for the same sizes, to the last one."""

from __future__ import annotations

import pytest
import torch
from small_models import vocabulary
from torch import nn
from transformers import BertConfig, BertForPreTraining, BertModel

from unmask import presets
from unmask.config import MaskedTokens, SentencePair
from unmask.hub import configs, names
from unmask.nn.encoder import Encoder
from unmask.objectives.build import build_objective

# (vocabulary, layers, width, heads, feed-forward), parameters with both heads, parameters of BertModel
PUBLISHED = {
    "bert_tiny": ((30522, 2, 128, 2, 512), 4_433_468, 4_385_920),
    "bert_mini": ((30522, 4, 256, 4, 1024), 11_267_900, 11_170_560),
    "bert_small": ((30522, 4, 512, 8, 2048), 29_058_876, 28_763_648),
    "bert_medium": ((30522, 8, 512, 8, 2048), 41_668_412, 41_373_184),
    "bert_base": ((30522, 12, 768, 12, 3072), 110_106_428, 109_482_240),
    "bert_large": ((30522, 24, 1024, 16, 4096), 336_226_108, 335_141_888),
    "bert_base_chinese": ((21128, 12, 768, 12, 3072), 102_882_442, 102_267_648),
}


def _count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def test_every_preset_is_asserted() -> None:
    assert set(presets.names()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_those_of_the_published_models(name: str) -> None:
    (vocab_size, layers, hidden, heads, feed_forward), with_heads, bare = PUBLISHED[name]
    config = presets.preset(name)()
    theirs = BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=feed_forward,
    )
    assert config == configs.from_hf(theirs.to_dict())
    with torch.device("meta"):
        encoder = Encoder(config)
        objective = build_objective(config, [MaskedTokens(), SentencePair()], vocabulary(vocab_size))
        pretraining, model = BertForPreTraining(theirs), BertModel(theirs)
    assert _count(encoder, objective) == _count(pretraining) == with_heads
    assert _count(encoder, objective.parts["nsp"].head.dense) == _count(model) == bare


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_name_tables_cover_every_tensor_of_both_sides_once(name: str) -> None:
    config = presets.preset(name)()
    with torch.device("meta"):
        theirs = BertForPreTraining(
            BertConfig(**{k: v for k, v in configs.to_hf(config, "BertForPreTraining").items() if k != "dtype"})
        )
        encoder = Encoder(config)
    table: dict[str, tuple[int, ...]] = {}
    for part in (names.ENCODER, names.MLM, names.NSP):
        new = names.shapes(part, config)
        assert not table.keys() & new.keys()
        table |= new
    state = {names.canonical(k): tuple(v.shape) for k, v in theirs.state_dict().items()}
    assert table == {k: v for k, v in state.items() if k not in names.TIED}
    rows = [row.ours for row in names.expand(names.ENCODER, config.num_hidden_layers)]
    assert sorted(rows) == sorted(encoder.state_dict())
