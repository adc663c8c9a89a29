"""ALBERT (Lan et al. 2020): narrow tables, layers that share weights."""

from __future__ import annotations

from typing import Any

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.hub.families import bert
from unmask.hub.family import Family, TaskClass, task_classes
from unmask.hub.fields import LIMITS, Fields, refusal
from unmask.hub.names import Row, linear, norm

H, GROUP = bert.H, "encoder.albert_layer_groups.{i}.albert_layers.0."


def _read(f: Fields) -> EncoderConfig:
    f.require("inner_group_num", 1)
    sizes = bert.read_sizes(
        f, vocab_size=30000, hidden_size=4096, num_attention_heads=64, intermediate_size=16384
    )  # their defaults are xxlarge's
    layers = sizes["num_hidden_layers"]
    groups = f.whole("num_hidden_groups", 1, 1, LIMITS["num_hidden_groups"])
    if any(int(layer / (layers / groups)) != layer * groups // layers for layer in range(layers)):
        raise refusal(
            f"num_hidden_groups {groups} of {layers} layers is a share that transformers rounds another way than it divides",
            f.where,
        )
    usual: dict[str, Any] = {"hidden_act": f.activation("hidden_act", "gelu_new")}
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        usual[name] = f.fraction(name, 0.0)
    return EncoderConfig(
        **sizes | usual,
        embedding_size=f.size("embedding_size", 128),
        num_hidden_groups=groups,
    )


def _write(config: EncoderConfig) -> dict[str, Any]:
    return {
        **bert.write_sizes(config),
        "embedding_size": config.embedding_size,
        "num_hidden_groups": config.num_blocks,
        "inner_group_num": 1,
    }


def _encoder(config: EncoderConfig) -> tuple[Row, ...]:
    qkv = tuple(f"{GROUP}attention.{part}" for part in ("query", "key", "value"))
    return (
        *bert.embeddings(config),
        *linear("embeddings.project", "encoder.embedding_hidden_mapping_in", H, "table_size"),
        *linear("blocks.{i}.attention.qkv", qkv, "inner_size", H),
        *linear("blocks.{i}.attention.out", f"{GROUP}attention.dense", H, "inner_size"),
        *norm("blocks.{i}.attention_norm", f"{GROUP}attention.LayerNorm"),
        *linear("blocks.{i}.feed_forward.up", f"{GROUP}ffn", "up_size", H),
        *linear("blocks.{i}.feed_forward.down", f"{GROUP}ffn_output", H, "intermediate_size"),
        *norm("blocks.{i}.feed_forward_norm", f"{GROUP}full_layer_layer_norm"),
    )


def _mlm(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return (
        *bert.transform("predictions.dense", "predictions.LayerNorm"),
        *bert.output(config, "predictions.bias", "predictions.decoder"),
    )


def _pooler(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return linear("dense", "pooler", H, H)


def _sop(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return (*_pooler(config, 0), *linear("out", "sop_classifier.classifier", 2, H))


def _classify(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
    return (*_pooler(config, 0), *linear("out", "classifier", outputs, H))


def _dropout(f: Fields) -> float:
    """Its name and its default are its own; null is hidden_dropout_prob."""
    told = "classifier_dropout_prob" not in f.data or f.value("classifier_dropout_prob") is not None
    return f.fraction("classifier_dropout_prob", 0.1) if told else -1.0


def _write_dropout(shape: HeadShape, config: EncoderConfig) -> dict[str, Any]:
    """Written out: the class for sequences can't do with null."""
    return {"classifier_dropout_prob": config.hidden_dropout_prob if shape.dropout < 0 else shape.dropout}


ALBERT = Family(
    model_type="albert",
    prefix="albert.",
    outside=("predictions.", "sop_classifier.", "classifier.", "qa_outputs."),
    read=_read,
    write=_write,
    encoder=_encoder,
    heads={"mlm": _mlm, "sop": _sop, "pooler": _pooler},
    tasks={
        "classify": TaskClass(_classify, lambda f: HeadShape(dropout=_dropout(f)), _write_dropout),
        "tag": TaskClass(
            bert.TOKEN_TASKS["tag"].rows, lambda f: HeadShape(act=None, dropout=_dropout(f)), _write_dropout
        ),
        "answer": bert.TOKEN_TASKS["answer"],
    },
    classes=task_classes("Albert")
    | {
        frozenset({"mlm", "sop"}): "AlbertForPreTraining",
        frozenset({"mlm"}): "AlbertForMaskedLM",
        frozenset({"pooler"}): "AlbertModel",
        frozenset(): "AlbertModel",
    },
    tied={"predictions.decoder.weight": bert.WORDS, "predictions.decoder.bias": "predictions.bias"},
    block="encoder.albert_layer_groups.{i}.",
    blocks="num_hidden_groups",
    renamed={"table_size": "embedding_size"},
    buffers=bert.BUFFERS,
    token_ids={"bos_token_id": "cls", "eos_token_id": "sep"},
)
