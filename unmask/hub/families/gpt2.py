"""GPT-2 (Radford et al. 2019): the causal stack, for contrast."""

from __future__ import annotations

from typing import Any

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.hub.families.bert import TOKEN_TASKS, untied, write_dropout
from unmask.hub.family import Family, TaskClass, task_classes
from unmask.hub.fields import EXPORTED, Fields, refusal
from unmask.hub.names import Row, linear, norm, table

H, LAYER = "hidden_size", "h.{i}."


def _read(f: Fields) -> EncoderConfig:
    for name, only in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        f.require(name, only)
    f.require("add_cross_attention", False)
    vocab_size, width = f.size("vocab_size", 50257), f.size("n_embd", 768, "hidden_size")
    dropout = f.fraction("resid_pdrop", 0.1)
    if f.fraction("embd_pdrop", 0.1) != dropout:
        raise refusal("embd_pdrop must be resid_pdrop's value", f.where)
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=f.size("n_layer", 12, "num_hidden_layers"),
        num_attention_heads=f.size("n_head", 12, "num_attention_heads"),
        intermediate_size=f.size("n_inner", 4 * width, "intermediate_size"),
        max_position_embeddings=f.size("n_positions", 1024, "max_position_embeddings"),
        hidden_act=f.activation("activation_function", "gelu_new"),
        type_vocab_size=0,
        causal=True,
        norm_first=True,
        embedding_norm=False,
        layer_norm_eps=f.fraction("layer_norm_epsilon", 1e-5),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=f.fraction("attn_pdrop", 0.1),
        initializer="residual",
        initializer_range=f.fraction("initializer_range", 0.02),
        head_transform=False,
        head_bias=False,
        tie_word_embeddings=f.flag("tie_word_embeddings", True),
        pad_token_id=f.pad(vocab_size),
    )


def _write(config: EncoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "n_embd": config.hidden_size,
        "n_layer": config.num_hidden_layers,
        "n_head": config.num_attention_heads,
        "n_inner": config.intermediate_size,
        "n_positions": config.max_position_embeddings,
        "activation_function": EXPORTED[config.hidden_act],
        "layer_norm_epsilon": config.layer_norm_eps,
        "resid_pdrop": config.hidden_dropout_prob,
        "embd_pdrop": config.hidden_dropout_prob,
        "attn_pdrop": config.attention_probs_dropout_prob,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": config.tie_word_embeddings,
        "pad_token_id": config.pad_token_id,
    }


def _linear(ours: str, theirs: str, out: str | int, into: str | int) -> tuple[Row, ...]:
    """Their matrices lie the other way round."""
    weight = Row(f"{ours}.weight", (f"{theirs}.weight",), (into, out), "transposed")
    return (weight, Row(f"{ours}.bias", (f"{theirs}.bias",), (out,)))


def _encoder(config: EncoderConfig) -> tuple[Row, ...]:
    return (
        table("embeddings.tokens", "wte", "vocab_size", "table_size"),
        table("embeddings.positions", "wpe", "position_rows", "table_size"),
        *norm("blocks.{i}.attention_norm", f"{LAYER}ln_1"),
        *_linear("blocks.{i}.attention.qkv", f"{LAYER}attn.c_attn", 3 * config.inner_size, H),
        *_linear("blocks.{i}.attention.out", f"{LAYER}attn.c_proj", H, "inner_size"),
        *norm("blocks.{i}.feed_forward_norm", f"{LAYER}ln_2"),
        *_linear("blocks.{i}.feed_forward.up", f"{LAYER}mlp.c_fc", "up_size", H),
        *_linear("blocks.{i}.feed_forward.down", f"{LAYER}mlp.c_proj", H, "intermediate_size"),
        *norm("norm", "ln_f"),
    )


def _causal(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return untied(config, "lm_head")


def _classify(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
    return linear("out", "score", outputs, H, bias=False)


def _shape(f: Fields) -> HeadShape:
    """The last token has seen all others."""
    return HeadShape(pooling="last", act=None, out_bias=False, dropout=0.0)


def _tag_shape(f: Fields) -> HeadShape:
    return HeadShape(act=None, dropout=f.fraction("classifier_dropout", 0.1))


GPT2 = Family(
    model_type="gpt2",
    prefix="transformer.",
    outside=("lm_head.", "score.", "classifier.", "qa_outputs."),
    read=_read,
    write=_write,
    encoder=_encoder,
    heads={"causal": _causal},
    tasks={
        "classify": TaskClass(_classify, _shape),
        "tag": TaskClass(TOKEN_TASKS["tag"].rows, _tag_shape, write_dropout),
        "answer": TOKEN_TASKS["answer"],
    },
    classes=task_classes("GPT2") | {frozenset({"causal"}): "GPT2LMHeadModel", frozenset(): "GPT2Model"},
    tied={"lm_head.weight": "wte.weight"},
    block=LAYER,
    renamed={
        "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "intermediate_size": "n_inner", "position_rows": "n_positions",
        "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    },
    token_ids={"bos_token_id": "sep", "eos_token_id": "sep", "pad_token_id": "pad"},
)  # fmt: skip
