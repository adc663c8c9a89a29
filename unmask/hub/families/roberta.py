"""RoBERTa (Liu et al. 2019) and the models that differ from it in their vocabulary alone: CamemBERT, XLM-RoBERTa."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unmask.config import Absolute, EncoderConfig
from unmask.hub.families import bert
from unmask.hub.family import Family, task_classes
from unmask.hub.fields import Fields, refusal
from unmask.hub.names import Row


def _read(f: Fields) -> EncoderConfig:
    return _read_with(f, vocab_size=50265)


def _read_descendant(f: Fields) -> EncoderConfig:
    return _read_with(f, vocab_size=30522)  # what their classes take an absent field for


def _read_with(f: Fields, vocab_size: int) -> EncoderConfig:
    """Their `max_position_embeddings` counts the rows of the table, of which those up to padding's hold no place."""
    sizes = bert.read_sizes(f, vocab_size=vocab_size, pad_token_id=1)
    bert.require_gelu(f, sizes)
    rows, first = sizes["max_position_embeddings"], sizes["pad_token_id"] + 1
    if rows <= first:
        raise refusal(f"max_position_embeddings is {rows}, but places begin at {first}", f.where)
    return EncoderConfig(**sizes | {"max_position_embeddings": rows - first, "positions": Absolute(after_padding=True)})


def _write(config: EncoderConfig) -> dict[str, Any]:
    return {**bert.write_sizes(config), "max_position_embeddings": config.position_rows}


def _mlm(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    return (
        *bert.transform("lm_head.dense", "lm_head.layer_norm"),
        *bert.output(config, "lm_head.bias", "lm_head.decoder"),
    )


ROBERTA = Family(
    model_type="roberta",
    prefix="roberta.",
    outside=("lm_head.", "classifier.", "qa_outputs."),
    read=_read,
    write=_write,
    encoder=bert.encoder,
    heads={"mlm": _mlm, "pooler": bert.pooler},
    tasks={"classify": bert.dense_head("tanh", "classifier.dense", "classifier.out_proj"), **bert.TOKEN_TASKS},
    classes=task_classes("Roberta")
    | {
        frozenset({"mlm"}): "RobertaForMaskedLM",
        frozenset({"pooler"}): "RobertaModel",
        frozenset(): "RobertaModel",
    },
    tied={"lm_head.decoder.weight": bert.WORDS, "lm_head.decoder.bias": "lm_head.bias"},
    renamed={"position_rows": "max_position_embeddings"},
    buffers=bert.BUFFERS,
    token_ids={"bos_token_id": "cls", "eos_token_id": "sep"},
)

CAMEMBERT = replace(
    ROBERTA,
    model_type="camembert",
    read=_read_descendant,
    classes=task_classes("Camembert")
    | {
        frozenset({"mlm"}): "CamembertForMaskedLM",
        frozenset({"pooler"}): "CamembertModel",
        frozenset(): "CamembertModel",
    },
)

XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    read=_read_descendant,
    classes=task_classes("XLMRoberta")
    | {
        frozenset({"mlm"}): "XLMRobertaForMaskedLM",
        frozenset({"pooler"}): "XLMRobertaModel",
        frozenset(): "XLMRobertaModel",
    },
)
