"""T5 (Raffel et al. 2020): encoder and decoder, for contrast."""

from __future__ import annotations

from typing import Any

from unmask.config import Activation, EncoderConfig, RelativeBias
from unmask.config.tasks import HeadShape
from unmask.hub.families.bert import TOKEN_TASKS, untied, write_dropout
from unmask.hub.family import Family, TaskClass, task_classes
from unmask.hub.fields import ACTIVATIONS, EXPORTED, Fields, refusal, shown
from unmask.hub.names import Row, linear, norm, table

H = "hidden_size"
BUCKETS = "relative_attention_bias"


def _read(f: Fields) -> EncoderConfig:
    """Two of its fields say one thing: an output matrix of its own goes with decoder outputs that are not scaled (T5 1.1)."""
    f.require("is_decoder", False)
    f.flag("is_encoder_decoder", True)  # false where the encoder was saved alone
    f.value("num_decoder_layers")  # read with the decoder
    vocab_size, layers = f.size("vocab_size", 32128), f.size("num_layers", 6, "num_hidden_layers")
    act, gated = _activation(f)
    dropout, tied = f.fraction("dropout_rate", 0.1), f.flag("tie_word_embeddings", True)
    scaled = (
        f.flag("scale_decoder_outputs", False) if "scale_decoder_outputs" in f.data else tied
    )  # null is false there
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=f.size("d_model", 512, "hidden_size"),
        num_hidden_layers=layers,
        num_attention_heads=f.size("num_heads", 8, "num_attention_heads"),
        head_size=f.size("d_kv", 64, "head_size"),
        intermediate_size=f.size("d_ff", 2048, "intermediate_size"),
        hidden_act=act,
        gated=gated,
        max_position_embeddings=f.size("n_positions", 512, "max_position_embeddings"),
        type_vocab_size=0,
        positions=RelativeBias(
            num_buckets=f.whole("relative_attention_num_buckets", 32, 4, 1 << 16),
            max_distance=f.whole("relative_attention_max_distance", 128, 3, 1 << 20),
        ),
        scale_attention=False,
        norm="rms",
        norm_first=True,
        embedding_norm=False,
        linear_bias=False,
        layer_norm_eps=f.fraction("layer_norm_epsilon", 1e-6),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer="t5",
        head_transform=False,
        head_bias=False,
        tie_word_embeddings=tied and scaled,
        pad_token_id=f.pad(vocab_size),
    )


def _activation(f: Fields) -> tuple[Activation, bool]:
    """`feed_forward_proj`, of which newer files hold two other spellings besides."""
    told = str(f.value("feed_forward_proj", "relu"))
    gated, name = told.startswith("gated-"), told.removeprefix("gated-")
    name = "gelu_new" if told == "gated-gelu" else name
    if name not in ACTIVATIONS:
        raise refusal(f"feed_forward_proj {shown(told)} is none that unmask computes", f.where)
    for other, value in (("is_gated_act", gated), ("dense_act_fn", name)):
        if f.value(other, value) != value:
            raise refusal(f"feed_forward_proj is {shown(told)}, but {other} is {shown(f.value(other))}", f.where)
    return ACTIVATIONS[name], gated


def _write(config: EncoderConfig) -> dict[str, Any]:
    bias = config.positions
    if not isinstance(bias, RelativeBias):
        return {}
    act = EXPORTED[config.hidden_act]
    spelled = "gelu" if act == "gelu_new" and config.gated else act
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.hidden_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "d_kv": config.key_size,
        "d_ff": config.intermediate_size,
        "n_positions": config.max_position_embeddings,
        "feed_forward_proj": f"gated-{spelled}" if config.gated else spelled,
        "relative_attention_num_buckets": bias.num_buckets,
        "relative_attention_max_distance": bias.max_distance,
        "layer_norm_epsilon": config.layer_norm_eps,
        "dropout_rate": config.hidden_dropout_prob,
        "tie_word_embeddings": config.tie_word_embeddings,
        "pad_token_id": config.pad_token_id,
        "decoder_start_token_id": config.pad_token_id,
    }


def _attention(ours: str, theirs: str) -> tuple[Row, ...]:
    qkv = tuple(f"{theirs}.{part}" for part in "qkv")
    return (
        *linear(f"{ours}.qkv", qkv, "inner_size", H, bias=False),
        *linear(f"{ours}.out", f"{theirs}.o", H, "inner_size", bias=False),
    )


def _feed_forward(config: EncoderConfig, ours: str, theirs: str) -> tuple[Row, ...]:
    up = (f"{theirs}.wi_0", f"{theirs}.wi_1") if config.gated else f"{theirs}.wi"
    return (
        *linear(f"{ours}.up", up, "intermediate_size", H, bias=False),
        *linear(f"{ours}.down", f"{theirs}.wo", H, "intermediate_size", bias=False),
    )


def _bias(config: EncoderConfig, ours: str, theirs: str) -> Row:
    assert isinstance(config.positions, RelativeBias)
    return table(ours, theirs, config.positions.num_buckets, "num_attention_heads")


def _encoder(config: EncoderConfig) -> tuple[Row, ...]:
    block, there = "blocks.{i}.", "encoder.block.{i}.layer."
    return (
        table("embeddings.tokens", "shared", "vocab_size", "table_size"),
        _bias(config, "places.table", f"encoder.block.0.layer.0.SelfAttention.{BUCKETS}"),
        *_attention(f"{block}attention", f"{there}0.SelfAttention"),
        *norm(f"{block}attention_norm", f"{there}0.layer_norm", bias=False),
        *_feed_forward(config, f"{block}feed_forward", f"{there}1.DenseReluDense"),
        *norm(f"{block}feed_forward_norm", f"{there}1.layer_norm", bias=False),
        *norm("norm", "encoder.final_layer_norm", bias=False),
    )


def _infill(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    rows = [
        _bias(config, "decoder.places.table", f"decoder.block.0.layer.0.SelfAttention.{BUCKETS}"),
        *norm("decoder.norm", "decoder.final_layer_norm", bias=False),
    ]
    for layer in range(decoder_layers):
        block, there = f"decoder.blocks.{layer}.", f"decoder.block.{layer}.layer."
        cross = f"{there}1.EncDecAttention"
        rows += [
            *_attention(f"{block}attention", f"{there}0.SelfAttention"),
            *norm(f"{block}attention_norm", f"{there}0.layer_norm", bias=False),
            *linear(f"{block}cross.query", f"{cross}.q", "inner_size", H, bias=False),
            *linear(f"{block}cross.key_value", (f"{cross}.k", f"{cross}.v"), "inner_size", H, bias=False),
            *linear(f"{block}cross.out", f"{cross}.o", H, "inner_size", bias=False),
            *norm(f"{block}cross_norm", f"{there}1.layer_norm", bias=False),
            *_feed_forward(config, f"{block}feed_forward", f"{there}2.DenseReluDense"),
            *norm(f"{block}feed_forward_norm", f"{there}2.layer_norm", bias=False),
        ]
    matrix = [Row(f"tokens.{row.ours}", row.theirs, row.shape) for row in untied(config, "lm_head")]
    return (*rows, *matrix)


def _tag_shape(f: Fields) -> HeadShape:
    return HeadShape(act=None, dropout=f.fraction("classifier_dropout", 0.0))


T5 = Family(
    model_type="t5",
    prefix="",
    outside=("classifier.",),
    read=_read,
    write=_write,
    encoder=_encoder,
    heads={"infill": _infill},
    tasks={"tag": TaskClass(TOKEN_TASKS["tag"].rows, _tag_shape, write_dropout)},  # its other classes read the decoder
    classes=task_classes("T5", "tag")
    | {frozenset({"infill"}): "T5ForConditionalGeneration", frozenset(): "T5EncoderModel"},
    prefixes={"T5ForTokenClassification": "transformer."},
    old_names=(("transformer.", ""),),
    tied={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    block="encoder.block.{i}.",
    decoder_block="decoder.block.{i}.",
    renamed={
        "hidden_size": "d_model", "num_hidden_layers": "num_layers", "num_attention_heads": "num_heads",
        "intermediate_size": "d_ff", "head_size": "d_kv",
        "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
        "num_buckets": "relative_attention_num_buckets", "max_distance": "relative_attention_max_distance",
    },
    buffers=frozenset({f"decoder.block.0.layer.1.EncDecAttention.{BUCKETS}.weight"}),
    token_ids={"eos_token_id": "sep"},
)  # fmt: skip
