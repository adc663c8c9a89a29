"""The published config.json files in transformers' words, and the classes that transformers builds from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    CamembertConfig,
    CamembertForMaskedLM,
    CamembertModel,
    DebertaConfig,
    DebertaForMaskedLM,
    DebertaModel,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DebertaV2Model,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraModel,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

Published = tuple[
    Any, Callable[[Any], nn.Module], Callable[[Any], nn.Module]
]  # config, bare encoder, with vocabulary head


def _bert(layers: int, hidden: int, vocab_size: int = 30522) -> Published:
    config = BertConfig(
        vocab_size=vocab_size, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )  # fmt: skip
    return config, lambda c: BertModel(c, add_pooling_layer=False), BertForMaskedLM


def _roberta(layers: int, hidden: int) -> Published:
    sizes: dict[str, Any] = dict(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5)
    config = RobertaConfig(
        **sizes, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64, intermediate_size=4 * hidden
    )  # fmt: skip
    return config, lambda c: RobertaModel(c, add_pooling_layer=False), RobertaForMaskedLM


def _camembert() -> Published:
    config = CamembertConfig(vocab_size=32005, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5)
    return config, lambda c: CamembertModel(c, add_pooling_layer=False), CamembertForMaskedLM


def _albert(layers: int, hidden: int, heads: int) -> Published:
    config = AlbertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden
    )
    return config, lambda c: AlbertModel(c, add_pooling_layer=False), AlbertForMaskedLM


def _electra(layers: int, hidden: int, table: int) -> Published:
    config = ElectraConfig(
        embedding_size=table, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )  # fmt: skip
    return config, ElectraModel, ElectraForMaskedLM


RELATIVE: dict[str, Any] = dict(
    relative_attention=True, position_biased_input=False, pos_att_type="c2p|p2c", type_vocab_size=0, layer_norm_eps=1e-7
)
BUCKETS: dict[str, Any] = RELATIVE | dict(position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True)
CONVOLUTION: dict[str, Any] = dict(conv_kernel_size=3, conv_act="gelu")


def _deberta(layers: int, hidden: int) -> Published:
    config = DebertaConfig(
        vocab_size=50265, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden, **RELATIVE,
    )  # fmt: skip
    return config, DebertaModel, DebertaForMaskedLM


def _deberta_v2(layers: int, hidden: int, vocab_size: int = 128100, **more: Any) -> Published:
    config = DebertaV2Config(
        vocab_size=vocab_size, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden, **BUCKETS, **more,
    )  # fmt: skip
    return config, DebertaV2Model, DebertaV2ForMaskedLM


def _modernbert(layers: int, hidden: int, intermediate: int) -> Published:
    config = ModernBertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64, intermediate_size=intermediate
    )
    return config, ModernBertModel, ModernBertForMaskedLM


def _gpt2(layers: int, hidden: int) -> Published:
    return GPT2Config(n_layer=layers, n_embd=hidden, n_head=hidden // 64), GPT2Model, GPT2LMHeadModel


def _t5(layers: int, hidden: int) -> Published:
    config = T5Config(
        d_model=hidden, num_layers=layers, num_heads=hidden // 64, d_ff=4 * hidden, dense_act_fn="relu",
        tie_word_embeddings=True,
    )  # fmt: skip
    return config, T5EncoderModel, T5ForConditionalGeneration


PUBLISHED: dict[str, Callable[[], Published]] = {
    "bert_tiny": lambda: _bert(2, 128),
    "bert_mini": lambda: _bert(4, 256),
    "bert_small": lambda: _bert(4, 512),
    "bert_medium": lambda: _bert(8, 512),
    "bert_base": lambda: _bert(12, 768),
    "bert_large": lambda: _bert(24, 1024),
    "bert_base_chinese": lambda: _bert(12, 768, 21128),
    "spanbert_base": lambda: _bert(12, 768, 28996),
    "spanbert_large": lambda: _bert(24, 1024, 28996),
    "roberta_base": lambda: _roberta(12, 768),
    "roberta_large": lambda: _roberta(24, 1024),
    "camembert_base": _camembert,
    "albert_base": lambda: _albert(12, 768, 12),
    "albert_large": lambda: _albert(24, 1024, 16),
    "albert_xlarge": lambda: _albert(24, 2048, 16),
    "albert_xxlarge": lambda: _albert(12, 4096, 64),
    "electra_small": lambda: _electra(12, 256, 128),
    "electra_base": lambda: _electra(12, 768, 768),
    "electra_large": lambda: _electra(24, 1024, 1024),
    "deberta_base": lambda: _deberta(12, 768),
    "deberta_large": lambda: _deberta(24, 1024),
    "deberta_v2_xlarge": lambda: _deberta_v2(24, 1536, **CONVOLUTION),
    "deberta_v2_xxlarge": lambda: _deberta_v2(48, 1536, **CONVOLUTION),
    "deberta_v3_xsmall": lambda: _deberta_v2(12, 384),
    "deberta_v3_small": lambda: _deberta_v2(6, 768),
    "deberta_v3_base": lambda: _deberta_v2(12, 768),
    "deberta_v3_large": lambda: _deberta_v2(24, 1024),
    "mdeberta_v3_base": lambda: _deberta_v2(12, 768, 251000),
    "modernbert_base": lambda: _modernbert(22, 768, 1152),
    "modernbert_large": lambda: _modernbert(28, 1024, 2624),
    "ettin_17m": lambda: _modernbert(7, 256, 384),
    "ettin_32m": lambda: _modernbert(10, 384, 576),
    "ettin_68m": lambda: _modernbert(19, 512, 768),
    "ettin_150m": lambda: _modernbert(22, 768, 1152),
    "ettin_400m": lambda: _modernbert(28, 1024, 2624),
    "ettin_1b": lambda: _modernbert(28, 1792, 3840),
    "gpt2": lambda: _gpt2(12, 768),
    "gpt2_medium": lambda: _gpt2(24, 1024),
    "t5_small": lambda: _t5(6, 512),
    "t5_base": lambda: _t5(12, 768),
}
