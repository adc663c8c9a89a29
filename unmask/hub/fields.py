"""Reads the fields of a `config.json` that may be hostile: each is checked before anything of its size is made, and none is
passed over in silence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from unmask.config import Activation
from unmask.errors import UnmaskError

# Far above every published encoder, far below what would exhaust a machine before the weights are looked at.
LIMITS = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 16,
    "embedding_size": 1 << 16,
    "num_hidden_layers": 1 << 10,
    "num_hidden_groups": 1 << 10,
    "num_attention_heads": 1 << 12,
    "head_size": 1 << 12,
    "intermediate_size": 1 << 18,
    "max_position_embeddings": 1 << 20,
    "type_vocab_size": 1 << 10,
    "conv_kernel_size": 1 << 8,
}

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
EXPORTED = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu", "tanh": "tanh"}

# What never changes the numbers that an encoder or the head it was pre-trained with computes, by the reason for it.
HARMLESS = frozenset(
    # where the file comes from, and code that we never run
    """_name_or_path architectures auto_map language model_type tokenizer_class transformers_version
    transformers.js_config"""
    # which of several equal ways a machine takes, and how numbers are stored
    """ _attn_implementation _attn_implementation_internal attn_implementation chunk_size_feed_forward
    deterministic_flash_attn dtype gradient_checkpointing reference_compile reorder_and_upcast_attn torch_dtype
    torchscript use_bfloat16 use_cache xla_device"""
    # what a call returns
    """ keys_to_ignore_at_inference output_attentions output_hidden_states output_past output_scores
    remove_invalid_values repad_logits_with_grad return_dict return_dict_in_generate sparse_pred_ignore_index
    sparse_prediction"""
    # ids of tokens that the tokenizer puts in, or that generation begins and ends with
    """ bos_token_id cls_token_id decoder_start_token_id eos_token_id forced_bos_token_id forced_eos_token_id
    mask_token_id max_length n_ctx prefix sep_token_id unk_token_id"""
    # how new weights begin
    """ classifier_init_range decoder_init_range initializer_cutoff_factor initializer_factor initializer_range"""
    # heads of tasks: read where there is one, or one is asked for (task_heads.py)
    """ classifier_dropout classifier_dropout_prob classifier_pooling cls_dropout finetuning_task id2label label2id num_labels
    pooler_dropout pooler_hidden_act pooler_hidden_size problem_type sbert_ce_default_activation_function
    sentence_transformers summary_activation summary_first_dropout
    summary_last_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params"""
    # left over in published files from code that no longer reads them
    """ cross_attention_hidden_size directionality down_scale_factor gap_size is_composition net_structure_type
    num_memory_blocks pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    pooler_type""".split()
)


class Fields:
    """The fields of one configuration. Ask for each, then `finish`: what nobody asked for is refused by name."""

    def __init__(self, data: Mapping[str, Any], where: str):
        self.data, self.where = data, where
        self._seen: set[str] = set()

    def value(self, name: str, usual: Any = None) -> Any:
        """The field as it is, `usual` where it is absent or null."""
        self._seen.add(name)
        found = self.data.get(name)
        return usual if found is None else found

    def whole(self, name: str, usual: int, least: int = 1, most: int = 1 << 24) -> int:
        """A whole number within limits."""
        value = self.value(name, usual)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise refusal(f"{name} must be a whole number from {least} to {most:,}, not {shown(value)}", self.where)
        return value

    def size(self, name: str, usual: int, of: str = "", least: int = 1) -> int:
        """A size of the network; `of` names it as in EncoderConfig where the two differ."""
        return self.whole(name, usual, least, LIMITS[of or name])

    def pad(self, rows: int, usual: int = 0) -> int:
        """`pad_token_id`, a row of the table."""
        return self.whole("pad_token_id", usual, 0, rows - 1)

    def fraction(self, name: str, usual: float) -> float:
        """A number from 0 to 1."""
        value = self.value(name, usual)
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not 0 <= value <= 1 or not math.isfinite(value):
            raise refusal(f"{name} must be a number from 0 to 1, not {shown(value)}", self.where)
        return float(value)

    def flag(self, name: str, usual: bool) -> bool:
        """True or false."""
        value = self.value(name, usual)
        if not isinstance(value, bool):
            raise refusal(f"{name} must be true or false, not {shown(value)}", self.where)
        return value

    def activation(self, name: str, usual: str = "gelu") -> Activation:
        """A non-linearity."""
        value = self.value(name, usual)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise refusal(f"{name} must be one of {', '.join(ACTIVATIONS)}, not {shown(value)}", self.where)
        return ACTIVATIONS[value]

    def require(self, name: str, only: Any, *, absent: Any = None, do: str = "") -> None:
        """A field that our encoder computes in one way only; `absent` is what its absence means, `only` unless given."""
        value = self.value(name, only if absent is None else absent)
        if value != only or isinstance(value, bool) != isinstance(only, bool):
            raise UnmaskError(
                f"{name} is {shown(value)}; unmask's encoder computes only {json.dumps(only)}",
                where=self.where,
                do=do or "choose a model of this family without it",
            )

    def finish(self) -> None:
        """Refuses what is left over: it could change what the model computes."""
        left = [name for name in self.data if name not in self._seen and name not in HARMLESS]
        told = [name for name in left if self.data[name] not in (None, False, "", [], {})]
        if told:
            raise UnmaskError(
                f"{shown(told[0])} is a setting that unmask does not know: {shown(self.data[told[0]])}",
                where=self.where,
                do="if it does not change what the model computes, delete it from a copy of config.json",
            )


def shown(value: object) -> str:
    """A value out of a file, short and free of control characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"


def refusal(what: str, where: str) -> UnmaskError:
    """What to say of a file that contradicts itself or its limits."""
    return UnmaskError(what, where=where, do="correct the file, or use a copy of the model that is whole")
