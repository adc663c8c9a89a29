"""The config.json files of published models, field for field as they are out there, are read as the presets say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from unmask import presets
from unmask.hub.configs import read_config
from unmask.hub.family import meaning

BERT: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
    "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": True, "vocab_size": 30522,
}  # fmt: skip
CHINESE = BERT | {
    "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "vocab_size": 21128,
}  # fmt: skip
ROBERTA = BERT | {
    "architectures": ["RobertaForMaskedLM"], "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265,
}  # fmt: skip
CAMEMBERT = ROBERTA | {"model_type": "camembert", "output_past": True, "vocab_size": 32005, "bos_token_id": 5}
ALBERT = {
    "architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 2,
    "classifier_dropout_prob": 0.1, "down_scale_factor": 1, "embedding_size": 128, "eos_token_id": 3, "gap_size": 0,
    "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "hidden_size": 768, "initializer_range": 0.02,
    "inner_group_num": 1, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "model_type": "albert", "net_structure_type": 0, "num_attention_heads": 12, "num_hidden_groups": 1,
    "num_hidden_layers": 12, "num_memory_blocks": 0, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30000,
}  # fmt: skip
ELECTRA = BERT | {
    "architectures": ["ElectraForPreTraining"], "embedding_size": 128, "hidden_size": 256, "intermediate_size": 1024,
    "model_type": "electra", "num_attention_heads": 4, "summary_activation": "gelu", "summary_last_dropout": 0.1,
    "summary_type": "first", "summary_use_proj": True,
}  # fmt: skip
DEBERTA = {
    "model_type": "deberta", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512,
    "relative_attention": True, "pos_att_type": "c2p|p2c", "layer_norm_eps": 1e-7, "padding_idx": 0,
    "max_relative_positions": -1, "position_biased_input": False, "num_attention_heads": 12, "num_hidden_layers": 12,
    "type_vocab_size": 0, "vocab_size": 50265,
}  # fmt: skip
DEBERTA_V2 = {
    "model_type": "deberta-v2", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 1536, "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 512,
    "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "conv_kernel_size": 3, "conv_act": "gelu",
    "max_relative_positions": -1, "position_biased_input": False, "num_attention_heads": 24, "attention_head_size": 64,
    "num_hidden_layers": 24, "type_vocab_size": 0, "vocab_size": 128100,
}  # fmt: skip
DEBERTA_V3 = {k: v for k, v in DEBERTA_V2.items() if not k.startswith("conv") and k != "attention_head_size"} | {
    "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12,
    "pooler_dropout": 0, "pooler_hidden_act": "gelu",
}  # fmt: skip
MODERNBERT = {
    "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 50281,
    "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean",
    "cls_token_id": 50281, "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0,
    "eos_token_id": 50282, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02, "intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128,
    "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 12,
    "num_hidden_layers": 22, "pad_token_id": 50283, "position_embedding_type": "absolute",
    "repad_logits_with_grad": False, "sep_token_id": 50282, "sparse_pred_ignore_index": -100,
    "sparse_prediction": False, "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": 50368,
}  # fmt: skip
GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 50257,
}  # fmt: skip
T5 = {
    "architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64, "d_model": 512,
    "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0,
    "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512, "num_heads": 8,
    "num_layers": 6, "output_past": True, "pad_token_id": 0, "relative_attention_num_buckets": 32,
    "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}}, "vocab_size": 32128,
}  # fmt: skip
PUBLISHED = {
    "bert_base": BERT, "bert_base_chinese": CHINESE, "roberta_base": ROBERTA, "albert_base": ALBERT,
    "electra_small": ELECTRA, "deberta_base": DEBERTA, "deberta_v2_xlarge": DEBERTA_V2, "deberta_v3_base": DEBERTA_V3,
    "modernbert_base": MODERNBERT, "gpt2": GPT2, "t5_small": T5,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_the_preset(name: str) -> None:
    preset = presets.preset(name)()
    found = read_config(PUBLISHED[name])[1]
    same = replace(preset, initializer=found.initializer, initializer_range=found.initializer_range)
    assert meaning(found) == meaning(same)


def test_a_camembert_is_a_roberta_with_its_own_vocabulary() -> None:
    roberta, camembert = read_config(ROBERTA)[1], read_config(CAMEMBERT)[1]
    assert camembert == replace(roberta, vocab_size=32005)
