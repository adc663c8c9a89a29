"""A Hugging Face `config.json` to an EncoderConfig and back.

The schema is closed: the fields below are read, everything else (`auto_map` and the like) is ignored and never acted on.
Every value is checked against a limit before anything of its size is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from unmask.config import Activation, EncoderConfig
from unmask.errors import UnmaskError

ARCHITECTURES = ("BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction", "BertModel")

# Far above every published encoder, far below what would exhaust a machine before the weights are looked at.
LIMITS = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 16,
    "num_hidden_layers": 1 << 10,
    "num_attention_heads": 1 << 12,
    "intermediate_size": 1 << 18,
    "max_position_embeddings": 1 << 20,
    "type_vocab_size": 1 << 10,
}
FRACTIONS = ("layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
LONGEST_JSON = 64 << 20  # bytes

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
EXPORTED = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}


def from_hf(data: Mapping[str, Any], *, where: str = "config.json") -> EncoderConfig:
    """The EncoderConfig of a BERT configuration; a field that is absent has BERT-base's value, as in transformers.

    Raises UnmaskError for another family, for what our encoder can't compute and for values out of range.
    """
    _require_bert(data, where)
    _require_computable(data, where)
    values: dict[str, Any] = {}
    for name, limit in LIMITS.items():
        if name in data:
            values[name] = _whole(name, data[name], 1, limit, where)
    for name in FRACTIONS:
        if name in data:
            values[name] = _fraction(name, data[name], where)
    values["hidden_act"] = _activation(data.get("hidden_act", "gelu"), where)
    pad = data.get("pad_token_id")
    if pad is not None:
        rows = values.get("vocab_size", EncoderConfig.vocab_size)
        values["pad_token_id"] = _whole("pad_token_id", pad, 0, rows - 1, where)
    try:
        return EncoderConfig(**values)
    except ValueError as error:
        raise _refusal(str(error), where) from None


def to_hf(config: EncoderConfig, architecture: str) -> dict[str, Any]:
    """The configuration as transformers reads it; `architecture` is one of ARCHITECTURES."""
    assert architecture in ARCHITECTURES
    same = {f.name: getattr(config, f.name) for f in fields(config)}
    return {
        "architectures": [architecture],
        "model_type": "bert",
        **same,
        "hidden_act": EXPORTED[config.hidden_act],
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "use_cache": False,
        "dtype": "float32",
    }


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file that may be hostile; UnmaskError when it is anything else or longer than 64 MiB."""
    try:
        if not path.is_file():
            raise UnmaskError(
                f"{path.name} is missing", where=str(path.parent), do="point at a model folder that has it"
            )
        with open(path, "rb") as file:
            text = file.read(LONGEST_JSON + 1)
    except OSError as error:
        raise UnmaskError(f"{path.name} can't be read: {error.strerror}", where=str(path)) from None
    if len(text) > LONGEST_JSON:
        raise _refusal(f"{path.name} is longer than {LONGEST_JSON:,} bytes", str(path))
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"{path.name} is not JSON ({error})", str(path)) from None
    if not isinstance(data, dict):
        raise _refusal(f"{path.name} must hold a JSON object", str(path))
    return data


def _require_bert(data: Mapping[str, Any], where: str) -> None:
    """`model_type` decides; configurations older than that field are known by their sizes alone."""
    if "model_type" not in data and {"hidden_size", "num_hidden_layers", "vocab_size"} <= set(data):
        return
    if data.get("model_type") != "bert":
        raise UnmaskError(
            f'this is a model of type {_shown(data.get("model_type"))}; unmask reads the type "bert"',
            where=where,
            do=f"choose a BERT model ({', '.join(ARCHITECTURES)}): other families differ in positions, heads or tokens, "
            "and reading one as BERT would give wrong numbers",
        )


def _require_computable(data: Mapping[str, Any], where: str) -> None:
    """Settings that change what BERT computes, in ways our encoder doesn't have."""
    for name, usual in (("position_embedding_type", "absolute"), ("is_decoder", False), ("add_cross_attention", False)):
        if data.get(name, usual) not in (usual, None):
            raise UnmaskError(
                f"{name} is {_shown(data[name])}; unmask's encoder computes only {json.dumps(usual)}",
                where=where,
                do="choose a plain BERT encoder",
            )


def _whole(name: str, value: object, least: int, most: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _refusal(f"{name} must be a whole number from {least} to {most:,}, not {_shown(value)}", where)
    return value


def _fraction(name: str, value: object, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1 or not math.isfinite(value):
        raise _refusal(f"{name} must be a number from 0 to 1, not {_shown(value)}", where)
    return float(value)


def _activation(value: object, where: str) -> Activation:
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise _refusal(f"hidden_act must be one of {', '.join(ACTIVATIONS)}, not {_shown(value)}", where)
    return ACTIVATIONS[value]


def _shown(value: object) -> str:
    """A value out of a file, short and free of control characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _refusal(what: str, where: str) -> UnmaskError:
    return UnmaskError(what, where=where, do="correct the file, or use a copy of the model that is whole")
