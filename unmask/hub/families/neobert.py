"""NeoBERT (Le Breton et al. 2025): no class of transformers, but the folders it was released as."""

from __future__ import annotations

from typing import Any

from unmask.config import EncoderConfig, Rope
from unmask.config.tasks import HeadShape
from unmask.hub.families.bert import untied, write_dropout
from unmask.hub.family import Family, TaskClass, task_classes
from unmask.hub.fields import Fields
from unmask.hub.names import Row, linear, norm, table

H, LAYER = "hidden_size", "transformer_encoder.{i}."


def _read(f: Fields) -> EncoderConfig:
    """Their `intermediate_size` is that of a feed-forward without a gate; the gated one has two thirds, a multiple of 8."""
    f.value("kwargs")  # what their class was given and made no use of
    f.value("tie_word_embeddings")  # a default of the library's that their class makes no use of
    for name, only in (("hidden_act", "SwiGLU"), ("rope", True), ("rms_norm", True)):
        f.require(name, only)
    vocab_size, width = f.size("vocab_size", 30522), f.size("intermediate_size", 3072)
    heads, hidden = f.size("num_attention_heads", 12), f.size("hidden_size", 768)
    f.require("dim_head", hidden // heads)
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=f.size("num_hidden_layers", 28),
        num_attention_heads=heads,
        intermediate_size=-(-(2 * width // 3) // 8) * 8,
        hidden_act="silu",
        gated=True,
        max_position_embeddings=f.size("max_length", 1024, "max_position_embeddings"),
        type_vocab_size=0,
        positions=Rope(),
        norm="rms",
        norm_first=True,
        embedding_norm=False,
        linear_bias=False,
        layer_norm_eps=f.fraction("norm_eps", 1e-6),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=f.fraction("embedding_init_range", 0.02),
        head_transform=False,
        tie_word_embeddings=False,
        pad_token_id=f.pad(vocab_size),
    )


def _write(config: EncoderConfig) -> dict[str, Any]:
    same = "vocab_size hidden_size num_hidden_layers num_attention_heads pad_token_id tie_word_embeddings".split()
    return {
        **{name: getattr(config, name) for name in same},
        "intermediate_size": -(-config.intermediate_size * 3 // 2),
        "max_length": config.max_position_embeddings,
        "norm_eps": config.layer_norm_eps,
        "embedding_init_range": config.initializer_range,
        "decoder_init_range": config.initializer_range,
    }


def _encoder(config: EncoderConfig) -> tuple[Row, ...]:
    qkv = Row("blocks.{i}.attention.qkv.weight", (f"{LAYER}qkv.weight",), (3 * config.inner_size, H), "per_head_pairs")
    return (
        table("embeddings.tokens", "encoder", "vocab_size", "table_size"),
        qkv,
        *linear("blocks.{i}.attention.out", f"{LAYER}wo", H, "inner_size", bias=False),
        *norm("blocks.{i}.attention_norm", f"{LAYER}attention_norm", bias=False),
        *linear("blocks.{i}.feed_forward.up", f"{LAYER}ffn.w12", "up_size", H, bias=False),
        *linear("blocks.{i}.feed_forward.down", f"{LAYER}ffn.w3", H, "intermediate_size", bias=False),
        *norm("blocks.{i}.feed_forward_norm", f"{LAYER}ffn_norm", bias=False),
        *norm("norm", "layer_norm", bias=False),
    )


def _mlm(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return (Row("bias", ("decoder.bias",), ("vocab_size",)), *untied(config, "decoder"))


def _classify(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
    return (*linear("dense", "dense", H, H), *linear("out", "classifier", outputs, H))


def _shape(f: Fields) -> HeadShape:
    rate = f.fraction("classifier_dropout", 0.1)
    return HeadShape(dropout=rate, input_dropout=rate)


NEOBERT = Family(
    model_type="neobert",
    prefix="model.",
    outside=("decoder.", "dense.", "classifier."),
    read=_read,
    write=_write,
    encoder=_encoder,
    heads={"mlm": _mlm},
    tasks={"classify": TaskClass(_classify, _shape, write_dropout)},  # it was released with no class for other tasks
    classes=task_classes("NeoBERT", "classify") | {frozenset({"mlm"}): "NeoBERTLMHead", frozenset(): "NeoBERT"},
    tied={},
    block=LAYER,
    renamed={"max_position_embeddings": "max_length", "layer_norm_eps": "norm_eps"},
    buffers=frozenset({"freqs_cis"}),
)
