"""ELECTRA (Clark et al. 2020): the discriminator, and the generator as a model of its own."""

from __future__ import annotations

from typing import Any

from unmask.config import EncoderConfig
from unmask.hub.families import bert
from unmask.hub.family import Family, task_classes
from unmask.hub.fields import Fields
from unmask.hub.names import Row, linear

H = bert.H


def _read(f: Fields) -> EncoderConfig:
    """Tables as wide as the encoder are not projected."""
    sizes = bert.read_sizes(f, hidden_size=256, num_attention_heads=4, intermediate_size=1024)
    bert.require_gelu(f, sizes)
    width = f.size("embedding_size", 128)
    return EncoderConfig(**sizes, embedding_size=0 if width == sizes["hidden_size"] else width)


def _write(config: EncoderConfig) -> dict[str, Any]:
    return {**bert.write_sizes(config), "embedding_size": config.table_size}


def _encoder(config: EncoderConfig) -> tuple[Row, ...]:
    project = linear("embeddings.project", "embeddings_project", H, "table_size") if config.embedding_size else ()
    return (*bert.encoder(config), *project)


def _mlm(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return (
        *bert.transform("generator_predictions.dense", "generator_predictions.LayerNorm"),
        Row("bias", ("generator_lm_head.bias",), ("vocab_size",)),
        *bert.untied(config, "generator_lm_head"),
    )


def _rtd(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return (
        *linear("dense", "discriminator_predictions.dense", H, H),
        *linear("out", "discriminator_predictions.dense_prediction", 1, H),
    )


ELECTRA = Family(
    model_type="electra",
    prefix="electra.",
    outside=(
        "generator_predictions.", "generator_lm_head.", "discriminator_predictions.", "classifier.", "qa_outputs.",
    ),
    read=_read,
    write=_write,
    encoder=_encoder,
    heads={"mlm": _mlm, "rtd": _rtd},
    tasks={"classify": bert.dense_head("gelu", "classifier.dense", "classifier.out_proj"), **bert.TOKEN_TASKS},
    classes=task_classes("Electra")
    | {
        frozenset({"rtd"}): "ElectraForPreTraining",
        frozenset({"mlm"}): "ElectraForMaskedLM",
        frozenset(): "ElectraModel",
    },
    tied={"generator_lm_head.weight": bert.WORDS},
    renamed={"table_size": "embedding_size"},
    buffers=bert.BUFFERS,
)  # fmt: skip
