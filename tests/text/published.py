"""Folders as the published tokenizers lie in them, small ones: made by transformers' own classes and by SentencePiece."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tokenizer_corpus import ODD_LINES, lines

from unmask.text.families import Like
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train

SPM_FILES = {
    "albert": "spiece.model",
    "t5": "spiece.model",
    "deberta-v2": "spm.model",
    "xlm-roberta": "sentencepiece.bpe.model",
    "camembert": "sentencepiece.bpe.model",
}
_SPM_PIECES: dict[str, dict[str, Any]] = {
    "albert": {
        **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "pad_piece": "<pad>"},
        **{"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "user_defined_symbols": ["(", ")", "-", "£"]},
    },
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "deberta-v2": {
        **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
        **{"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    },
    "xlm-roberta": {},
    "camembert": {},
}


@functools.cache
def some_lines(shared: Path) -> list[str]:
    return lines(shared, "en_wikitext2_valid", 150) + lines(shared, "zh_docs_react", 300)


def texts(shared: Path) -> list[str]:
    return some_lines(shared) + ODD_LINES + ["  two  spaces\nand a line ", "\t tab", "（ＡＢＣ）…ﬁ", "``quoted'' 'x'"]


@functools.cache
def trained_like(shared: Path, like: Like) -> Tokenizer:
    return train(some_lines(shared), TrainOptions(like=like, vocab_size=2000))[0]


@functools.cache
def spm_model(shared: Path, family: str, rule: str = "nmt_nfkc") -> bytes:
    """A SentencePiece model with the special pieces of a family."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="needs the package sentencepiece")
    written = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for line in some_lines(shared) if line.strip()),
        model_writer=written,
        vocab_size=1500,
        character_coverage=0.98,
        normalization_rule_name=rule,
        num_threads=1,
        minloglevel=2,
        **_SPM_PIECES[family],
    )
    return written.getvalue()


def spm_folder(folder: Path, shared: Path, family: str, rule: str = "nmt_nfkc", **config: Any) -> Path:
    """Nothing but the model file and the two configurations."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SPM_FILES[family]).write_bytes(spm_model(shared, family, rule))
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _byte_level(name: str, like: Like, **options: Any) -> Callable[[Path, Path], None]:
    def make(folder: Path, shared: Path) -> None:
        import transformers

        model = trained_like(shared, like).documents()[0]["model"]
        merges = [tuple(pair) for pair in model["merges"]]
        getattr(transformers, name)(vocab=model["vocab"], merges=merges, **options).save_pretrained(folder)

    return make


def _wordpiece(folder: Path, shared: Path) -> None:
    import transformers

    vocabulary = trained_like(shared, "electra").documents()[0]["model"]["vocab"]
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)


def _modernbert(folder: Path, shared: Path) -> None:
    """Published with runs of spaces as pieces of their own, and no class but the one that takes any tokenizer."""
    import tokenizers
    import transformers

    content, _ = trained_like(shared, "modernbert").documents()
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokenizer.add_tokens([tokenizers.AddedToken(" " * size, normalized=True) for size in (2, 3, 4)])
    names = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    named = {f"{role}_token": token for role, token in names.items()}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)


def _sentencepiece(family: str, rule: str = "nmt_nfkc", **config: Any) -> Callable[[Path, Path], None]:
    def make(folder: Path, shared: Path) -> None:
        import transformers

        model_only = spm_folder(folder.parent / "model-only", shared, family, rule, **config)
        transformers.AutoTokenizer.from_pretrained(str(model_only)).save_pretrained(folder)

    return make


SAVED: dict[str, tuple[str, Callable[[Path, Path], None]]] = {  # as transformers saves them, with tokenizer.json
    "bert": ("bert", _wordpiece),
    "electra": ("electra", _wordpiece),
    "neobert": ("neobert", _wordpiece),
    "roberta": ("roberta", _byte_level("RobertaTokenizer", "roberta")),
    "roberta with add_prefix_space": ("roberta", _byte_level("RobertaTokenizer", "roberta", add_prefix_space=True)),
    "deberta": ("deberta", _byte_level("DebertaTokenizer", "deberta")),
    "gpt2": ("gpt2", _byte_level("GPT2Tokenizer", "gpt2")),
    "modernbert": ("modernbert", _modernbert),
    "albert": ("albert", _sentencepiece("albert")),
    "albert cased": ("albert", _sentencepiece("albert", do_lower_case=False, keep_accents=True)),
    "t5": ("t5", _sentencepiece("t5")),
    "deberta-v3": ("deberta-v2", _sentencepiece("deberta-v2")),
    "xlm-roberta": ("xlm-roberta", _sentencepiece("xlm-roberta")),
    "camembert": ("camembert", _sentencepiece("camembert")),
}


def saved_folder(folder: Path, shared: Path, name: str) -> Path:
    model_type, make = SAVED[name]
    make(folder, shared)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def vocabulary_folder(folder: Path, shared: Path, like: Like) -> Path:
    """Nothing but the vocabulary files of a family and the model's configuration."""
    folder.mkdir()
    model = trained_like(shared, like).documents()[0]["model"]
    if like == "electra":
        (folder / "vocab.txt").write_text("".join(piece + "\n" for piece in model["vocab"]))
    else:
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        merges = [" ".join(pair) for pair in model["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": like}))
    return folder
