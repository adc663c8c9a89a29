"""Small models of transformers, of every family and head, in which every tensor is random; and their answers beside ours."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from small_models import padded, randomise
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.hub.files import LoadedModel, build_encoder
from unmask.nn.encoder import Encoder
from unmask.nn.heads import PairHead, ReplacedHead, TokenHead
from unmask.objectives.infill import InfillHead

SIZES: dict[str, Any] = dict(
    vocab_size=97, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80
)
BERT = SIZES | dict(max_position_embeddings=64)
ROBERTA = SIZES | dict(max_position_embeddings=66, type_vocab_size=1, layer_norm_eps=1e-5)
ALBERT = BERT | dict(num_hidden_layers=6, embedding_size=16)
RELATIVE = BERT | dict(relative_attention=True, position_biased_input=False, pos_att_type="c2p|p2c", legacy=False)
BUCKETS = RELATIVE | dict(position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True)
MODERN = SIZES | dict(max_position_embeddings=64, num_hidden_layers=4, pad_token_id=0, local_attention=8)
BIASED = dict(attention_bias=True, mlp_bias=True, classifier_bias=True, norm_bias=True)
GPT2 = dict(vocab_size=97, n_embd=48, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=1)
T5 = dict(vocab_size=97, d_model=48, d_kv=10, d_ff=80, num_layers=3, num_decoder_layers=2, num_heads=4)
GATED = T5 | dict(feed_forward_proj="gated-gelu", num_decoder_layers=4, relative_attention_num_buckets=8)


@dataclass(frozen=True)
class Theirs:
    """A class of transformers and its settings; `heads` are the kinds that our side must find."""

    model: type[hf.PreTrainedModel]
    config: type[hf.PreTrainedConfig]
    heads: tuple[str, ...]
    settings: dict[str, Any] = field(hash=False)

    def build(self, **changes: Any) -> hf.PreTrainedModel:
        config = self.config(**{**self.settings, **changes}, attn_implementation="eager")
        model = self.model(config).eval()
        randomise(model, 3)
        return model


def _albert(**more: Any) -> Theirs:
    return Theirs(hf.AlbertForPreTraining, hf.AlbertConfig, ("mlm", "sop"), ALBERT | more)


def _deberta(**more: Any) -> Theirs:
    return Theirs(hf.DebertaForMaskedLM, hf.DebertaConfig, ("mlm",), RELATIVE | more)


def _deberta_v2(**more: Any) -> Theirs:
    return Theirs(hf.DebertaV2ForMaskedLM, hf.DebertaV2Config, ("mlm",), BUCKETS | more)


def _modern(**more: Any) -> Theirs:
    return Theirs(hf.ModernBertForMaskedLM, hf.ModernBertConfig, ("mlm",), MODERN | more)


MODELS = {
    "bert": Theirs(hf.BertForPreTraining, hf.BertConfig, ("mlm", "nsp"), BERT),
    "bert-mlm": Theirs(hf.BertForMaskedLM, hf.BertConfig, ("mlm",), BERT | dict(hidden_act="relu")),
    "bert-nsp": Theirs(hf.BertForNextSentencePrediction, hf.BertConfig, ("nsp",), BERT | dict(hidden_act="gelu_new")),
    "bert-bare": Theirs(hf.BertModel, hf.BertConfig, ("pooler",), BERT),
    "bert-untied": Theirs(hf.BertForPreTraining, hf.BertConfig, ("mlm", "nsp"), BERT | dict(tie_word_embeddings=False)),
    "roberta": Theirs(hf.RobertaForMaskedLM, hf.RobertaConfig, ("mlm",), ROBERTA),
    "roberta-bare": Theirs(hf.RobertaModel, hf.RobertaConfig, ("pooler",), ROBERTA),
    "roberta-pad-3": Theirs(
        hf.RobertaForMaskedLM, hf.RobertaConfig, ("mlm",), ROBERTA | dict(pad_token_id=3, max_position_embeddings=68)
    ),
    "roberta-untied": Theirs(
        hf.RobertaForMaskedLM, hf.RobertaConfig, ("mlm",), ROBERTA | dict(tie_word_embeddings=False)
    ),
    "camembert": Theirs(hf.CamembertForMaskedLM, hf.CamembertConfig, ("mlm",), ROBERTA),
    "xlm-roberta": Theirs(hf.XLMRobertaForMaskedLM, hf.XLMRobertaConfig, ("mlm",), ROBERTA),
    "albert": _albert(),
    "albert-2-groups": _albert(num_hidden_groups=2),
    "albert-3-groups": _albert(num_hidden_groups=3),
    "albert-wide-tables": _albert(embedding_size=48),
    "albert-untied": _albert(tie_word_embeddings=False),
    "albert-mlm": Theirs(hf.AlbertForMaskedLM, hf.AlbertConfig, ("mlm",), ALBERT),
    "albert-bare": Theirs(hf.AlbertModel, hf.AlbertConfig, ("pooler",), ALBERT),
    "electra": Theirs(hf.ElectraForPreTraining, hf.ElectraConfig, ("rtd",), BERT | dict(embedding_size=16)),
    "electra-wide-tables": Theirs(hf.ElectraForPreTraining, hf.ElectraConfig, ("rtd",), BERT | dict(embedding_size=48)),
    "electra-generator": Theirs(hf.ElectraForMaskedLM, hf.ElectraConfig, ("mlm",), BERT | dict(embedding_size=16)),
    "electra-generator-wide": Theirs(hf.ElectraForMaskedLM, hf.ElectraConfig, ("mlm",), BERT | dict(embedding_size=48)),
    "electra-generator-untied": Theirs(
        hf.ElectraForMaskedLM, hf.ElectraConfig, ("mlm",), BERT | dict(embedding_size=16, tie_word_embeddings=False)
    ),
    "electra-bare": Theirs(hf.ElectraModel, hf.ElectraConfig, (), BERT | dict(embedding_size=16)),
    "deberta": _deberta(),
    "deberta-segments": _deberta(type_vocab_size=2),
    "deberta-short-range": _deberta(max_relative_positions=20),
    "deberta-c2p": _deberta(pos_att_type="c2p"),
    "deberta-p2c": _deberta(pos_att_type=["p2c"], max_relative_positions=20),
    "deberta-legacy": _deberta(legacy=True),
    "deberta-v2": _deberta_v2(share_att_key=False, conv_kernel_size=3, conv_act="gelu"),
    "deberta-v2-wide-kernel": _deberta_v2(share_att_key=False, conv_kernel_size=5),
    "deberta-v2-c2p": _deberta_v2(share_att_key=False, pos_att_type="c2p"),
    "deberta-v2-p2c": _deberta_v2(pos_att_type="p2c"),
    "deberta-v2-no-buckets": _deberta_v2(position_buckets=-1, norm_rel_ebd="none", max_relative_positions=20),
    "deberta-v2-legacy": _deberta_v2(legacy=True),
    "deberta-v3": _deberta_v2(),
    "deberta-v3-bare": Theirs(hf.DebertaV2Model, hf.DebertaV2Config, (), BUCKETS),
    "modernbert": _modern(),
    "modernbert-all-global": _modern(global_attn_every_n_layers=1),
    "modernbert-every-2nd": _modern(global_attn_every_n_layers=2, local_attention=2),
    "modernbert-one-global": _modern(global_attn_every_n_layers=9),
    "modernbert-wide-window": _modern(local_attention=256),
    "modernbert-one-theta": _modern(
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": 5_000.0} for kind in ("full_attention", "sliding_attention")
        }
    ),
    "modernbert-biases": _modern(**BIASED),
    "modernbert-no-output-bias": _modern(decoder_bias=False),
    "modernbert-untied": _modern(tie_word_embeddings=False),
    "modernbert-bare": Theirs(hf.ModernBertModel, hf.ModernBertConfig, (), MODERN),
    "gpt2": Theirs(hf.GPT2LMHeadModel, hf.GPT2Config, ("causal",), GPT2),
    "gpt2-other-sizes": Theirs(
        hf.GPT2LMHeadModel, hf.GPT2Config, ("causal",), GPT2 | dict(n_inner=80, activation_function="relu")
    ),
    "gpt2-untied": Theirs(hf.GPT2LMHeadModel, hf.GPT2Config, ("causal",), GPT2 | dict(tie_word_embeddings=False)),
    "t5": Theirs(hf.T5ForConditionalGeneration, hf.T5Config, ("infill",), T5),
    "t5-gated": Theirs(hf.T5ForConditionalGeneration, hf.T5Config, ("infill",), GATED),
    "t5-gated-silu": Theirs(
        hf.T5ForConditionalGeneration, hf.T5Config, ("infill",), T5 | dict(feed_forward_proj="gated-silu")
    ),
    "t5-encoder": Theirs(hf.T5EncoderModel, hf.T5Config, (), T5),
}


@cache
def built(name: str) -> hf.PreTrainedModel:
    """One of the models above; tests leave its weights as they are."""
    return MODELS[name].build()


def head_of(kind: str, loaded: LoadedModel) -> nn.Module:
    """One of ours with the weights of a folder, every one of them."""
    config, state = loaded.config, loaded.heads[kind]
    match kind:
        case "mlm" | "causal":
            head: nn.Module = TokenHead(config)
        case "nsp" | "sop":
            head = PairHead(config)
        case "rtd":
            head = ReplacedHead(config, add_first="norm.weight" in state)
        case "infill":
            head = InfillHead(config, loaded.weights().decoder_layers)
    head.load_state_dict(state)
    return head.eval()


def target_side(lengths: list[int], pad_token_id: int, below: int = 97) -> tuple[PackedBatch, Tensor]:
    """What a decoder reads, and the labels [T] it should write: the same one place later."""
    generator = torch.Generator().manual_seed(5)
    labels = [torch.randint(5, below, (n,), generator=generator).tolist() for n in lengths]
    read = PackedBatch.pack([[pad_token_id, *row[:-1]] for row in labels])
    return read, torch.tensor([token for row in labels for token in row])


@torch.no_grad()
def our_outputs(loaded: LoadedModel, batch: PackedBatch) -> dict[str, Tensor]:
    """Every layer's states [T, D] as "layer 0" …, and the logits of each head."""
    encoder = build_encoder(loaded)
    layers = encoder.layers(batch)
    out = {f"layer {i}": x for i, x in enumerate(layers)}
    for kind in loaded.heads:
        if kind != "pooler":
            out[kind] = _our_logits(kind, head_of(kind, loaded), encoder, layers[-1], batch)
    return out


def _our_logits(kind: str, head: nn.Module, encoder: Encoder, hidden_TD: Tensor, batch: PackedBatch) -> Tensor:
    first_BD = hidden_TD[batch.starts[:-1].long()]
    match kind:
        case "mlm" | "causal":
            return head(hidden_TD, encoder.token_table()).dense()
        case "nsp" | "sop":
            return head(first_BD)
        case "rtd":
            return head(hidden_TD, batch.starts[:-1].long()[batch.layout.rows])
    assert kind == "infill"
    return head(encoder, hidden_TD, batch).dense()


@torch.no_grad()
def their_outputs(model: hf.PreTrainedModel, heads: tuple[str, ...], batch: PackedBatch) -> dict[str, Tensor]:
    """The same from transformers."""
    given: dict[str, Any] = dict(padded(batch, model.config.pad_token_id or 0))
    if batch.decoder is not None and "infill" in heads:
        given["decoder_input_ids"] = batch.decoder.layout.pad(batch.decoder.input_ids)
    out = model(**given, output_hidden_states=True, return_dict=True)
    base = model.get_encoder() if "infill" in heads else model.base_model
    encoder_given = {name: x for name, x in given.items() if name != "decoder_input_ids"}
    states = list(out.encoder_hidden_states if "infill" in heads else out.hidden_states)
    states[-1] = base(**encoder_given, return_dict=True).last_hidden_state  # some list the state before the last norm
    unpad = batch.layout.unpad
    found = {f"layer {i}": unpad(x) for i, x in enumerate(states)}
    for kind in heads:
        if kind == "infill":
            assert batch.decoder is not None
            found[kind] = batch.decoder.layout.unpad(out.logits)
        elif kind in ("nsp", "sop"):
            found[kind] = next(
                out[name] for name in ("seq_relationship_logits", "sop_logits", "logits") if out.get(name) is not None
            )
        elif kind != "pooler":
            logits = out.prediction_logits if "prediction_logits" in out else out.logits
            found[kind] = unpad(logits)
    return found


def batch_for(
    model: hf.PreTrainedModel, lengths: list[int], heads: tuple[str, ...], seed: int = 0, below: int = 97
) -> PackedBatch:
    """Random ids that are never the padding token, segments where the model has two, a target side for a decoder."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(5, below, (n,), generator=generator).tolist() for n in lengths]
    two = getattr(model.config, "type_vocab_size", 0) > 1
    types = [[int(place >= n // 3) for place in range(n)] for n in lengths]
    batch = PackedBatch.pack(ids, types if two else None)
    if "infill" not in heads:
        return batch
    return batch.with_(decoder=target_side([1 + n % 9 for n in lengths], model.config.pad_token_id or 0, below)[0])


def require_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(
            tensor, theirs[name], atol=2e-5, rtol=2e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def opened(kind: Any, folder: Path, **more: Any) -> hf.PreTrainedModel:
    """As transformers loads it, after it has found nothing missing, unexpected or mismatched, and has warned of nothing."""
    with _warnings() as said:
        model, report = kind.from_pretrained(
            folder, output_loading_info=True, local_files_only=True, attn_implementation="eager", **more
        )
    assert not any(report.values()), report
    assert not said, said
    return model.eval()


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What transformers logs, from warnings on."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listener, logger = Listener(logging.WARNING), logging.getLogger("transformers")
    logger.addHandler(listener)
    try:
        yield said
    finally:
        logger.removeHandler(listener)
