"""BERT (Devlin et al. 2019), and the layer names that RoBERTa, ELECTRA and DeBERTa took over."""

from __future__ import annotations

from typing import Any

from unmask.config import Activation, EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.hub.family import Family, TaskClass, task_classes
from unmask.hub.fields import EXPORTED, Fields, refusal, shown
from unmask.hub.names import Row, linear, norm, table

H, LAYER = "hidden_size", "encoder.layer.{i}."
WORDS = "embeddings.word_embeddings.weight"
BUFFERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})


def read_sizes(f: Fields, **usual: int) -> dict[str, Any]:
    """The fields that BERT and its descendants share; `usual` where a family's own defaults differ."""
    f.require("is_decoder", False)
    f.require("add_cross_attention", False)
    f.require("position_embedding_type", "absolute")
    f.require("is_encoder_decoder", False)
    vocab_size = f.size("vocab_size", usual.get("vocab_size", 30522))
    segments = usual.get("type_vocab_size", 2)  # a class that has some can't do with none
    return {
        "vocab_size": vocab_size,
        "hidden_size": f.size("hidden_size", usual.get("hidden_size", 768)),
        "num_hidden_layers": f.size("num_hidden_layers", usual.get("num_hidden_layers", 12)),
        "num_attention_heads": f.size("num_attention_heads", usual.get("num_attention_heads", 12)),
        "intermediate_size": f.size("intermediate_size", usual.get("intermediate_size", 3072)),
        "max_position_embeddings": f.size("max_position_embeddings", usual.get("max_position_embeddings", 512)),
        "type_vocab_size": f.size("type_vocab_size", segments, least=min(segments, 1)),
        "hidden_act": f.activation("hidden_act"),
        "layer_norm_eps": f.fraction("layer_norm_eps", 1e-12),
        "hidden_dropout_prob": f.fraction("hidden_dropout_prob", 0.1),
        "attention_probs_dropout_prob": f.fraction("attention_probs_dropout_prob", 0.1),
        "initializer_range": f.fraction("initializer_range", 0.02),
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "pad_token_id": f.pad(vocab_size, usual.get("pad_token_id", 0)),
    }


def require_gelu(f: Fields, sizes: dict[str, Any]) -> None:
    """Refuses other activations for families whose MLM head computes gelu whatever the configuration says."""
    if sizes["hidden_act"] != "gelu":
        raise refusal(
            f"hidden_act is {shown(f.value('hidden_act'))}; this family's MLM head would compute gelu all the same, and "
            "unmask has one activation for the whole model",
            f.where,
        )


def write_sizes(config: EncoderConfig) -> dict[str, Any]:
    """The same fields as they are stored."""
    same = """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings
        type_vocab_size layer_norm_eps hidden_dropout_prob attention_probs_dropout_prob initializer_range
        tie_word_embeddings pad_token_id""".split()
    return {
        **{name: getattr(config, name) for name in same},
        "hidden_act": EXPORTED[config.hidden_act],
        "use_cache": False,
    }


def embeddings(config: EncoderConfig) -> tuple[Row, ...]:
    """Tables and their norm."""
    rows = [table("embeddings.tokens", "embeddings.word_embeddings", "vocab_size", "table_size")]
    if config.position_rows:
        rows += [table("embeddings.positions", "embeddings.position_embeddings", "position_rows", "table_size")]
    if config.type_vocab_size:
        rows += [table("embeddings.segments", "embeddings.token_type_embeddings", "type_vocab_size", "table_size")]
    return (*rows, *norm("embeddings.norm", "embeddings.LayerNorm", "table_size"))


def after_attention() -> tuple[Row, ...]:
    """The rest of a block behind its queries, keys and values."""
    return (
        *linear("blocks.{i}.attention.out", f"{LAYER}attention.output.dense", H, "inner_size"),
        *norm("blocks.{i}.attention_norm", f"{LAYER}attention.output.LayerNorm"),
        *linear("blocks.{i}.feed_forward.up", f"{LAYER}intermediate.dense", "up_size", H),
        *linear("blocks.{i}.feed_forward.down", f"{LAYER}output.dense", H, "intermediate_size"),
        *norm("blocks.{i}.feed_forward_norm", f"{LAYER}output.LayerNorm"),
    )


def encoder(config: EncoderConfig) -> tuple[Row, ...]:
    """The whole encoder."""
    qkv = tuple(f"{LAYER}attention.self.{part}" for part in ("query", "key", "value"))
    return (*embeddings(config), *linear("blocks.{i}.attention.qkv", qkv, "inner_size", H), *after_attention())


def untied(config: EncoderConfig, name: str) -> tuple[Row, ...]:
    """The output matrix, where it is not the embedding's."""
    if config.tie_word_embeddings:
        return ()
    return (Row("matrix.weight", (f"{name}.weight",), ("vocab_size", "table_size")),)


def output(config: EncoderConfig, tied_bias: str, decoder: str) -> tuple[Row, ...]:
    """The output's bias, and its matrix where it has one of its own: then the bias that counts is the matrix's."""
    bias = tied_bias if config.tie_word_embeddings else f"{decoder}.bias"
    return (Row("bias", (bias,), ("vocab_size",)), *untied(config, decoder))


def transform(dense: str, normed: str) -> tuple[Row, ...]:
    """What a vocabulary head has before its matrix."""
    return (*linear("transform.dense", dense, "table_size", H), *norm("transform.norm", normed, "table_size"))


def mlm(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    """BertForMaskedLM's head."""
    return (
        *transform("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
        *output(config, "cls.predictions.bias", "cls.predictions.decoder"),
    )


def pooler(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    """The first half of a pair head, which folders without the second half may have."""
    return linear("dense", "pooler.dense", H, H)


def nsp(config: EncoderConfig, decoder_layers: int) -> tuple[Row, ...]:
    """Pooler and next-sentence classifier."""
    return (*pooler(config, 0), *linear("out", "cls.seq_relationship", 2, H))


# --- heads of tasks --------------------------------------------------------------------------------------------------------
def classifier_dropout(f: Fields) -> float:
    """Null is hidden_dropout_prob."""
    return -1.0 if f.value("classifier_dropout") is None else f.fraction("classifier_dropout", 0.0)


def write_dropout(shape: HeadShape, config: EncoderConfig) -> dict[str, Any]:
    """The field, where it says something."""
    return {"classifier_dropout": shape.dropout} if shape.dropout >= 0 else {}


def linear_head(name: str, *, dropout: bool) -> TaskClass:
    """A linear layer over each token's state; those of answers have no dropout."""

    def read(f: Fields) -> HeadShape:
        return HeadShape(act=None, dropout=classifier_dropout(f) if dropout else 0.0)

    def rows(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
        return linear("out", name, outputs, H)

    return TaskClass(rows, read, write_dropout) if dropout else TaskClass(rows, read)


def dense_head(act: Activation, dense: str, out: str) -> TaskClass:
    """RoBERTa's head of a sequence, with dropout on both sides of its dense layer."""

    def read(f: Fields) -> HeadShape:
        rate = classifier_dropout(f)
        return HeadShape(act=act, dropout=rate, input_dropout=rate)

    def rows(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
        return (*linear("dense", dense, H, H), *linear("out", out, outputs, H))

    return TaskClass(rows, read, write_dropout)


def _classify(config: EncoderConfig, outputs: int) -> tuple[Row, ...]:
    return (*pooler(config, 0), *linear("out", "classifier", outputs, H))


TOKEN_TASKS = {
    "tag": linear_head("classifier", dropout=True),
    "answer": linear_head("qa_outputs", dropout=False),
}


def _read(f: Fields) -> EncoderConfig:
    return EncoderConfig(**read_sizes(f))


BERT = Family(
    model_type="bert",
    prefix="bert.",
    outside=("cls.", "classifier.", "qa_outputs."),
    read=_read,
    write=write_sizes,
    encoder=encoder,
    heads={"mlm": mlm, "nsp": nsp, "pooler": pooler},
    tasks={
        "classify": TaskClass(_classify, lambda f: HeadShape(dropout=classifier_dropout(f)), write_dropout),
        **TOKEN_TASKS,
    },
    classes=task_classes("Bert")
    | {
        frozenset({"mlm", "nsp"}): "BertForPreTraining",
        frozenset({"mlm"}): "BertForMaskedLM",
        frozenset({"nsp"}): "BertForNextSentencePrediction",
        frozenset({"pooler"}): "BertModel",
        frozenset(): "BertModel",
    },
    tied={"cls.predictions.decoder.weight": WORDS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
    buffers=BUFFERS,
)
