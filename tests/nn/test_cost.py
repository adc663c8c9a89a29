from __future__ import annotations

import pytest
import torch
from made_up import vocabulary

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, MaskedTokens, SentencePair
from unmask.nn.cost import count_parameters, estimated_flops, training_bytes, training_flops
from unmask.nn.encoder import Encoder
from unmask.objectives.build import build_objective
from unmask.presets import names, preset

ODD = EncoderConfig(
    vocab_size=101, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=33, type_vocab_size=2,
)  # fmt: skip
VOCABULARY = vocabulary(101)


def test_the_formula_counts_what_is_built() -> None:
    with torch.device("meta"):
        encoder, heads = Encoder(ODD), build_objective(ODD, (MaskedTokens(), SentencePair()), VOCABULARY)
    assert count_parameters(ODD) == sum(p.numel() for p in encoder.parameters())
    assert count_parameters(ODD, mlm=True, nsp=True) == sum(p.numel() for m in (encoder, heads) for p in m.parameters())


@pytest.mark.parametrize("name", names())
def test_the_presets_have_the_published_sizes(name: str) -> None:
    """BERT base is "110M", large "340M" (published as 336 M without rounding up), the small ones Turc et al.'s table 1."""
    millions = {"bert_tiny": 4.4, "bert_mini": 11.3, "bert_small": 29.1, "bert_medium": 41.7, "bert_base": 110.1,
                "bert_large": 336.2, "bert_base_chinese": 102.9}  # fmt: skip
    assert round(count_parameters(preset(name)(), mlm=True, nsp=True) / 1e6, 1) == millions[name]


def test_flops_of_one_token_have_the_value_worked_by_hand() -> None:
    e = EncoderConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    matrices = 2 * (4 * 16 + 2 * 32)  # qkv and out, up and down
    attention = 4 * 4  # scores and sums over one place
    assert training_flops(e, PackedBatch.pack([[7]]), 0) == 3 * (matrices + attention)
    assert training_flops(e, PackedBatch.pack([[7]]), 2) == 3 * (matrices + attention + 2 * 2 * (16 + 40))


def test_the_estimate_is_the_count_for_equal_lengths() -> None:
    batch = PackedBatch.pack([[7] * 16] * 4)
    assert estimated_flops(ODD, 64, 16, 9) == training_flops(ODD, batch, 9)
    assert training_bytes(ODD, 64, 16, 9) > 16 * count_parameters(ODD)
