"""DeBERTa v1 (He et al. 2021), v2 and v3 (He et al. 2023): content and place scored apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unmask.config import Disentangled, EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.families import bert
from unmask.hub.family import Family, TaskClass, task_classes
from unmask.hub.fields import EXPORTED, Fields, refusal, shown
from unmask.hub.names import Row, linear, norm, table

H, SELF, PLACES = bert.H, bert.LAYER + "attention.self.", "embeddings.position_embeddings.weight"
ADVICE = (
    'published DeBERTas have relative_attention true, position_biased_input false and pos_att_type "c2p|p2c"; a model made '
    "from transformers' defaults is a BERT with DeBERTa's names: export it as one"
)


def _read_common(f: Fields, **usual: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sizes, and the places without what is v2's own. Absent fields mean what transformers makes of them: no relative
    attention, places at the input, no scores between contents and places; a published DeBERTa says otherwise in each."""
    f.require("relative_attention", True, absent=False, do=ADVICE)
    f.require("position_biased_input", False, absent=True, do=ADVICE)
    f.flag("legacy", True)  # which names the MLM head has, not what it computes; both are read
    sizes = bert.read_sizes(f, type_vocab_size=0, **usual) | {"layer_norm_eps": f.fraction("layer_norm_eps", 1e-7)}
    f.require("tie_word_embeddings", True)
    f.require("embedding_size", sizes["hidden_size"])
    kinds = f.value("pos_att_type", [])
    kinds = [kind.strip() for kind in kinds.lower().split("|")] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or sorted(map(str, kinds)) not in (["c2p"], ["p2c"], ["c2p", "p2c"]):
        raise UnmaskError(f"pos_att_type must name c2p, p2c or both, not {shown(kinds)}", where=f.where, do=ADVICE)
    limit = f.whole("max_relative_positions", -1, -1, 1 << 20)
    places = {
        "content_to_position": "c2p" in kinds,
        "position_to_content": "p2c" in kinds,
        "max_relative_positions": limit if limit > 0 else sizes["max_position_embeddings"],
    }
    return sizes, places


def _read_v1(f: Fields) -> EncoderConfig:
    sizes, places = _read_common(f, vocab_size=50265)
    how = Disentangled(**places, position_buckets=0, normed=False, shared_projections=False)
    return EncoderConfig(**sizes, positions=how, key_bias=False)


def _read_v2(f: Fields) -> EncoderConfig:
    sizes, places = _read_common(
        f, vocab_size=128100, hidden_size=1536, num_hidden_layers=24, num_attention_heads=24, intermediate_size=6144
    )
    norms = f.value("norm_rel_ebd", "none")
    if norms not in ("none", "layer_norm"):
        raise refusal(f"norm_rel_ebd must be none or layer_norm, not {shown(norms)}", f.where)
    f.require("attention_head_size", sizes["hidden_size"] // sizes["num_attention_heads"])
    f.require("conv_groups", 1)
    buckets = f.whole("position_buckets", -1, -1, 1 << 20)
    how = Disentangled(
        **places,
        position_buckets=max(buckets, 0),
        normed=norms == "layer_norm",
        shared_projections=f.flag("share_att_key", False),
    )
    kernel, act = f.size("conv_kernel_size", 0, least=0), f.activation("conv_act", "tanh")
    return EncoderConfig(
        **sizes, positions=how, conv_kernel_size=kernel, conv_act=act if kernel else EncoderConfig.conv_act
    )


def _write(config: EncoderConfig) -> dict[str, Any]:
    if not isinstance(config.positions, Disentangled):
        return {}
    d = config.positions
    kinds = (("c2p", d.content_to_position), ("p2c", d.position_to_content))
    return {
        **bert.write_sizes(config),
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": "|".join(kind for kind, wanted in kinds if wanted),
        "max_relative_positions": d.max_relative_positions,
        "legacy": False,
    }


def _write_v2(config: EncoderConfig) -> dict[str, Any]:
    if not isinstance(config.positions, Disentangled):
        return {}
    d = config.positions
    kernel = {"conv_kernel_size": config.conv_kernel_size, "conv_act": EXPORTED[config.conv_act]}
    return {
        **_write(config),
        "position_buckets": d.position_buckets or -1,
        "norm_rel_ebd": "layer_norm" if d.normed else "none",
        "share_att_key": d.shared_projections,
        **(kernel if config.conv_kernel_size else {}),
    }


def _places(config: EncoderConfig) -> tuple[Row, ...]:
    d = config.positions
    assert isinstance(d, Disentangled)
    rows = table("places.table", "encoder.rel_embeddings", 2 * d.span, H)
    return (rows, *(norm("places.norm", "encoder.LayerNorm") if d.normed else ()))


def _encoder_v1(config: EncoderConfig) -> tuple[Row, ...]:
    d = config.positions
    assert isinstance(d, Disentangled)
    c2p = linear("blocks.{i}.attention.position_key", f"{SELF}pos_proj", "inner_size", H, bias=False)
    p2c = linear("blocks.{i}.attention.position_query", f"{SELF}pos_q_proj", "inner_size", H)
    return (
        *bert.embeddings(config),
        *_places(config),
        Row("blocks.{i}.attention.qkv.weight", (f"{SELF}in_proj.weight",), (3 * config.inner_size, H), "per_head"),
        Row("blocks.{i}.attention.query_bias", (f"{SELF}q_bias",), ("inner_size",)),
        Row("blocks.{i}.attention.value_bias", (f"{SELF}v_bias",), ("inner_size",)),
        *(c2p if d.content_to_position else ()),
        *(p2c if d.position_to_content else ()),
        *bert.after_attention(),
    )


def _encoder_v2(config: EncoderConfig) -> tuple[Row, ...]:
    d = config.positions
    assert isinstance(d, Disentangled)
    qkv = tuple(f"{SELF}{part}_proj" for part in ("query", "key", "value"))
    c2p = linear("blocks.{i}.attention.position_key", f"{SELF}pos_key_proj", "inner_size", H)
    p2c = linear("blocks.{i}.attention.position_query", f"{SELF}pos_query_proj", "inner_size", H)
    kernel = Row("convolution.kernel.weight", ("encoder.conv.conv.weight",), (H, H, "conv_kernel_size"))
    bias = Row("convolution.kernel.bias", ("encoder.conv.conv.bias",), (H,))
    convolution = (kernel, bias, *norm("convolution.norm", "encoder.conv.LayerNorm"))
    return (
        *bert.embeddings(config),
        *_places(config),
        *linear("blocks.{i}.attention.qkv", qkv, "inner_size", H),
        *(c2p if d.content_to_position and not d.shared_projections else ()),
        *(p2c if d.position_to_content and not d.shared_projections else ()),
        *bert.after_attention(),
        *(convolution if config.conv_kernel_size else ()),
    )


def _mlm(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    """The published head, and the table of places that its enhanced decoder adds, which transformers' class lacks.

    The head that transformers calls legacy computes the same under other names.
    """
    return (
        *bert.transform("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm"),
        Row("bias", ("lm_predictions.lm_head.bias",), ("vocab_size",)),
        Row("positions.weight", (PLACES,), ("max_position_embeddings", H), optional=True),
    )


def _rtd(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    """The head of the released discriminators; no class of transformers has it."""
    return (
        *linear("dense", "mask_predictions.dense", H, H),
        *norm("norm", "mask_predictions.LayerNorm"),
        *linear("out", "mask_predictions.classifier", 1, H),
    )


def _classify(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
    return (*linear("dense", "pooler.dense", H, H), *linear("out", "classifier", outputs, H))


def _shape(f: Fields) -> HeadShape:
    f.require("pooler_hidden_size", f.value("hidden_size"))
    own = f.value("cls_dropout") is None
    return HeadShape(
        act=f.activation("pooler_hidden_act"),
        dropout=-1.0 if own else f.fraction("cls_dropout", 0.0),
        input_dropout=f.fraction("pooler_dropout", 0.0),
    )


def _write_shape(shape: HeadShape, config: EncoderConfig) -> dict[str, Any]:
    before = config.hidden_dropout_prob if shape.input_dropout < 0 else shape.input_dropout
    return {
        "pooler_hidden_act": EXPORTED.get(shape.act or ""),
        "pooler_dropout": before,
        **({"cls_dropout": shape.dropout} if shape.dropout >= 0 else {}),
    }


DEBERTA = Family(
    model_type="deberta",
    prefix="deberta.",
    outside=("lm_predictions.", "mask_predictions.", "cls.", "pooler.", "classifier.", "qa_outputs."),
    read=_read_v1,
    write=_write,
    encoder=_encoder_v1,
    heads={"mlm": _mlm, "rtd": _rtd},
    tasks={
        "classify": TaskClass(_classify, _shape, _write_shape),
        "tag": TaskClass(bert.TOKEN_TASKS["tag"].rows, lambda f: HeadShape(act=None)),  # with the encoder's own dropout
        "answer": bert.TOKEN_TASKS["answer"],
    },
    classes=task_classes("Deberta") | {frozenset({"mlm"}): "DebertaForMaskedLM", frozenset(): "DebertaModel"},
    tied={"cls.predictions.decoder.weight": bert.WORDS, "cls.predictions.decoder.bias": "lm_predictions.lm_head.bias"},
    old_names=(
        ("cls.predictions.transform.", "lm_predictions.lm_head."),
        ("cls.predictions.bias", "lm_predictions.lm_head.bias"),
    ),
    buffers=bert.BUFFERS,
)

DEBERTA_V2 = replace(
    DEBERTA,
    model_type="deberta-v2",
    read=_read_v2,
    write=_write_v2,
    encoder=_encoder_v2,
    classes=task_classes("DebertaV2") | {frozenset({"mlm"}): "DebertaV2ForMaskedLM", frozenset(): "DebertaV2Model"},
)
