"""ModernBERT (Warner et al. 2024) and Ettin."""

from __future__ import annotations

from typing import Any

from unmask.config import EncoderConfig, Rope
from unmask.config.tasks import HeadShape
from unmask.hub.families.bert import untied
from unmask.hub.family import Family, TaskClass, task_classes
from unmask.hub.fields import EXPORTED, Fields, refusal, shown
from unmask.hub.names import Row, linear, norm, table

H, LAYER = "hidden_size", "layers.{i}."
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def _read(f: Fields) -> EncoderConfig:
    vocab_size, layers = f.size("vocab_size", 50368), f.size("num_hidden_layers", 22)
    biases = [f.flag(name, False) for name in ("attention_bias", "mlp_bias", "classifier_bias")]
    dropouts = [f.fraction(name, 0.0) for name in ("mlp_dropout", "embedding_dropout")]
    acts = [f.activation(name) for name in ("hidden_activation", "classifier_activation")]
    _require_alike(f, biases, "attention_bias, mlp_bias and classifier_bias")
    _require_alike(f, dropouts, "mlp_dropout and embedding_dropout")
    _require_alike(f, acts, "hidden_activation and classifier_activation")
    every, eps = _pattern(f, layers), f.fraction("norm_eps", 1e-5)
    f.require("layer_norm_eps", eps)  # in published files, beside the one that counts
    f.require("position_embedding_type", "absolute")  # so too, though there are none
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=f.size("hidden_size", 768),
        num_hidden_layers=layers,
        num_attention_heads=f.size("num_attention_heads", 12),
        intermediate_size=f.size("intermediate_size", 1152),
        hidden_act=acts[0],
        gated=True,
        max_position_embeddings=f.size("max_position_embeddings", 8192),
        type_vocab_size=0,
        positions=_places(f),
        local_attention=f.whole("local_attention", 128, 2, 1 << 20),
        global_attn_every_n_layers=every,
        norm_first=True,
        first_norm=False,
        norm_bias=f.flag("norm_bias", False),
        linear_bias=biases[0],
        layer_norm_eps=eps,
        hidden_dropout_prob=dropouts[0],
        attention_probs_dropout_prob=f.fraction("attention_dropout", 0.0),
        initializer="residual",
        initializer_range=f.fraction("initializer_range", 0.02),
        head_bias=f.flag("decoder_bias", True),
        tie_word_embeddings=f.flag("tie_word_embeddings", True),
        pad_token_id=f.pad(vocab_size, min(50283, vocab_size - 1)),
    )


def _require_alike(f: Fields, values: list[Any], names: str) -> None:
    """Refuses values that our network has one setting for, and that differ."""
    if values != values[:1] * len(values):
        raise refusal(f"{names} must be alike, not {shown(values)}", f.where)


def _pattern(f: Fields, layers: int) -> int:
    """Every how many layers one sees everything; newer files list the layers, instead or besides."""
    told = f.value("global_attn_every_n_layers") is not None
    every = f.whole("global_attn_every_n_layers", 3, 1, 1 << 10)
    listed = f.value("layer_types")
    if listed is None:
        return every
    if not isinstance(listed, list) or len(listed) != layers or not set(map(str, listed)) <= {GLOBAL, LOCAL}:
        raise refusal(f"layer_types must list num_hidden_layers {layers} times {GLOBAL} or {LOCAL}", f.where)
    if not told:
        every = next((i for i, kind in enumerate(listed) if kind == GLOBAL and i), max(layers, 2))
    if listed != [LOCAL if i % every else GLOBAL for i in range(layers)]:
        contradicted = f", as global_attn_every_n_layers {every} says" if told else ""
        raise refusal(f"layer_types must be {GLOBAL} first and then every n-th time{contradicted}", f.where)
    return every


def _places(f: Fields) -> Rope:
    """The two thetas, from the table of newer files or the two fields of older ones."""
    found = f.value("rope_parameters", {})
    f.require("rope_scaling", None)
    if not isinstance(found, dict) or not found.keys() <= {GLOBAL, LOCAL}:
        raise refusal(f"rope_parameters must be a table with {GLOBAL} and {LOCAL}, not {shown(found)}", f.where)
    thetas = [
        _theta(f, found.get(GLOBAL), GLOBAL, "global_rope_theta", 160_000.0),
        _theta(f, found.get(LOCAL), LOCAL, "local_rope_theta", 10_000.0),
    ]
    return Rope(theta=thetas[0], local_theta=0.0 if thetas[0] == thetas[1] else thetas[1])


def _theta(f: Fields, part: Any, kind: str, old_name: str, usual: float) -> float:
    """One of the two; never the -1 that some exports hold for "the same as the other"."""
    old, part = f.value(old_name, usual), {} if part is None else part
    if not isinstance(part, dict) or not part.keys() <= {"rope_type", "rope_theta"}:
        raise refusal(f"rope_parameters.{kind} must hold rope_type and rope_theta, not {shown(part)}", f.where)
    if part.get("rope_type", "default") != "default":
        raise refusal(f"rope_parameters.{kind} is of rope_type {shown(part['rope_type'])}, not default", f.where)
    name = f"rope_parameters.{kind}.rope_theta" if "rope_theta" in part else old_name
    theta = part.get("rope_theta", old)
    if not isinstance(theta, int | float) or isinstance(theta, bool) or not 0 < theta < 1e12:
        raise refusal(f"{name} must be a number above 0, not {shown(theta)}", f.where)
    return float(theta)


def _write(config: EncoderConfig) -> dict[str, Any]:
    rope = config.positions
    if not isinstance(rope, Rope):
        return {}
    same = (
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings".split()
    )
    local = [config.window_of(i) > 0 for i in range(config.num_hidden_layers)]
    thetas = {GLOBAL: rope.theta, LOCAL: rope.local_theta or rope.theta}
    return {
        **{name: getattr(config, name) for name in (*same, "norm_bias", "initializer_range", "tie_word_embeddings")},
        "pad_token_id": config.pad_token_id,
        "hidden_activation": EXPORTED[config.hidden_act],
        "classifier_activation": EXPORTED[config.hidden_act],
        "norm_eps": config.layer_norm_eps,
        "attention_bias": config.linear_bias,
        "mlp_bias": config.linear_bias,
        "classifier_bias": config.linear_bias,
        "decoder_bias": config.head_bias,
        "attention_dropout": config.attention_probs_dropout_prob,
        "mlp_dropout": config.hidden_dropout_prob,
        "embedding_dropout": config.hidden_dropout_prob,
        "local_attention": config.local_attention or 128,  # where no layer is local, any
        "global_attn_every_n_layers": config.global_attn_every_n_layers if config.local_attention else 1,
        "layer_types": [LOCAL if is_local else GLOBAL for is_local in local],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
    }


def _encoder(config: EncoderConfig) -> tuple[Row, ...]:
    b, n = config.linear_bias, config.norm_bias
    rows = [
        table("embeddings.tokens", "embeddings.tok_embeddings", "vocab_size", "table_size"),
        *norm("embeddings.norm", "embeddings.norm", bias=n),
        *linear("blocks.{i}.attention.qkv", f"{LAYER}attn.Wqkv", 3 * config.inner_size, H, bias=b),
        *linear("blocks.{i}.attention.out", f"{LAYER}attn.Wo", H, "inner_size", bias=b),
        *linear("blocks.{i}.feed_forward.up", f"{LAYER}mlp.Wi", "up_size", H, bias=b),
        *linear("blocks.{i}.feed_forward.down", f"{LAYER}mlp.Wo", H, "intermediate_size", bias=b),
        *norm("blocks.{i}.feed_forward_norm", f"{LAYER}mlp_norm", bias=n),
        *norm("norm", "final_norm", bias=n),
    ]
    for block in range(1, config.num_hidden_layers):  # the first has none before its attention
        rows += norm(f"blocks.{block}.attention_norm", f"layers.{block}.attn_norm", bias=n)
    return tuple(rows)


def _mlm(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    bias = (Row("bias", ("decoder.bias",), ("vocab_size",)),) if config.head_bias else ()
    return (
        *linear("transform.dense", "head.dense", "table_size", H, bias=config.linear_bias),
        *norm("transform.norm", "head.norm", "table_size", bias=config.norm_bias),
        *bias,
        *untied(config, "decoder"),
    )


def _task(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
    return (
        *linear("dense", "head.dense", H, H, bias=config.linear_bias),
        *norm("norm", "head.norm", bias=config.norm_bias),
        *linear("out", "classifier", outputs, H),
    )


def _shape(f: Fields) -> HeadShape:
    """Every task goes through the same dense layer; only a sequence's is pooled."""
    pooling = f.value("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise refusal(f"classifier_pooling must be cls or mean, not {shown(pooling)}", f.where)
    return HeadShape(
        pooling="mean" if pooling == "mean" else "first",
        act=f.activation("classifier_activation"),
        normed=True,
        bias=f.flag("classifier_bias", False),
        dropout=f.fraction("classifier_dropout", 0.0),
    )


def _write_shape(shape: HeadShape, config: EncoderConfig) -> dict[str, Any]:
    return {
        "classifier_pooling": {"first": "cls"}.get(shape.pooling, shape.pooling),
        "classifier_dropout": config.hidden_dropout_prob if shape.dropout < 0 else shape.dropout,
    }


TASK = TaskClass(_task, _shape, _write_shape)

MODERNBERT = Family(
    model_type="modernbert",
    prefix="model.",
    outside=("head.", "decoder.", "classifier."),
    read=_read,
    write=_write,
    encoder=_encoder,
    heads={"mlm": _mlm},
    tasks=dict.fromkeys(("classify", "tag", "answer"), TASK),
    classes=task_classes("ModernBert") | {frozenset({"mlm"}): "ModernBertForMaskedLM", frozenset(): "ModernBertModel"},
    tied={"decoder.weight": "embeddings.tok_embeddings.weight"},
    block=LAYER,
    renamed={"layer_norm_eps": "norm_eps"},
    token_ids={"bos_token_id": "cls", "cls_token_id": "cls", "eos_token_id": "sep", "sep_token_id": "sep"},
)
