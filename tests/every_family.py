"""Every family as a person begins with it: a preset's word, its kind of tokenizer, and what the folder should be."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from cli.commands import unmask

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
TEXTS: dict[Language, tuple[str, int, int]] = {  # corpus, documents, characters of each
    "en": ("en_textbooks_openstax", 50, 800),
    "zh": ("zh_laws", 70, 400),
}
VOCABULARY: dict[Language, list[object]] = {  # every character of the text is known
    "en": ["--vocab-size", 700, "--min-frequency", 1],
    "zh": ["--vocab-size", 2400, "--min-frequency", 1, "--limit-alphabet", 1100],
}
TINY = [
    "encoder.hidden_size=32", "encoder.num_hidden_layers=2", "encoder.num_attention_heads=2",
    "encoder.intermediate_size=64", "encoder.max_position_embeddings=64",
]  # fmt: skip
SHORT = [
    "examples.max_length=64", "batch.tokens=768", "optimizer.learning_rate=6e-3", "keeping.evaluations=1",
    "keeping.evaluation_tokens=1200", "machine.threads=1", "machine.workers=0",
]  # fmt: skip


@dataclass(frozen=True)
class Family:
    """`tokenizer` is a word for --like or --kind; `recipe` is the name to go on with. `losses` are those of its objectives.

    `same` are the heads whose logits transformers computes from the folder as we do; the enhanced mask decoder and what is
    kept in heads.safetensors it doesn't know. `auto` is "" where it has no class.
    """

    preset: str
    tokenizer: str
    recipe: str
    losses: tuple[str, ...]
    architecture: str
    auto: str = "AutoModelForMaskedLM"
    same: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    fills: Literal["model", "generator", ""] = "model"
    heads: tuple[str, ...] = ()  # of the folder, where they are not called as the losses


_MLM = {"losses": ("mlm",), "same": ("mlm",)}
_FEW_DISTANCES = ("encoder.positions.position_buckets=16", "encoder.positions.max_relative_positions=64")
_WINDOW = ("encoder.local_attention=16",)
FAMILIES: dict[str, Family] = {
    "bert": Family(
        "bert-base", "bert", "bert", ("mlm", "nsp"), "BertForPreTraining", "AutoModelForPreTraining", ("mlm", "nsp")
    ),
    "roberta": Family("roberta-base", "roberta", "roberta", architecture="RobertaForMaskedLM", **_MLM),
    "camembert": Family("camembert-base", "xlm-roberta", "camembert", architecture="RobertaForMaskedLM", **_MLM),
    "albert": Family(
        "albert-base", "albert", "albert", ("mlm", "sop"), "AlbertForPreTraining", "AutoModelForPreTraining",
        ("mlm", "sop"), ("encoder.embedding_size=16",),
    ),
    "spanbert": Family("spanbert-base", "bert", "spanbert", ("mlm", "sbo"), "BertForMaskedLM", same=("mlm",)),
    "electra": Family(
        "electra-small", "electra", "electra", ("mlm", "rtd"), "ElectraForPreTraining", "AutoModelForPreTraining",
        ("rtd",), ("encoder.embedding_size=16",), "generator",
    ),
    "deberta": Family("deberta-base", "deberta", "deberta", ("mlm",), "DebertaForMaskedLM"),
    "deberta_v2": Family(
        "deberta-v2-xlarge", "deberta-v3", "deberta", ("mlm",), "DebertaV2ForMaskedLM", settings=_FEW_DISTANCES
    ),
    "deberta_v3": Family(
        "deberta-v3-small", "deberta-v3", "deberta_v3", ("mlm", "rtd"), "DebertaV2Model", "AutoModel",
        settings=_FEW_DISTANCES, fills="generator",
    ),
    "modernbert": Family(
        "modernbert-base", "modernbert", "modernbert", architecture="ModernBertForMaskedLM", settings=_WINDOW, **_MLM
    ),
    "ettin": Family(
        "ettin-17m", "modernbert", "modernbert", architecture="ModernBertForMaskedLM", settings=_WINDOW, **_MLM
    ),
    "neobert": Family("neobert", "bert", "neobert", architecture="NeoBERTLMHead", auto="", **_MLM),
    "gpt2": Family(
        "gpt2", "gpt2", "gpt2", ("causal",), "GPT2LMHeadModel", "AutoModelForCausalLM", ("causal",), fills=""
    ),
    "elmo": Family(
        "elmo-mini", "characters", "elmo", ("forward", "backward"), "UnmaskEncoder", "", (),
        ("encoder.layer.cell_size=48", "encoder.layer.filters=[[1,8],[3,16]]", "objectives.bilm.max_words=300"), "",
        ("bilm",),
    ),
    "t5": Family(
        "t5-small", "t5", "t5", ("infill",), "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM", ("infill",),
        ("encoder.head_size=16",), "",
    ),
}  # fmt: skip
CHINESE = {  # characters, whole words of the segmenter
    "bert": Family(
        "bert-base-chinese", "characters", "bert_chinese", ("mlm", "nsp"), "BertForPreTraining",
        "AutoModelForPreTraining", ("mlm", "nsp"),
    ),
}  # fmt: skip


def family_of(name: str, language: Language) -> Family:
    return CHINESE.get(name, FAMILIES[name]) if language == "zh" else FAMILIES[name]


def texts_of(shared: Path, language: Language) -> list[str]:
    name, count, length = TEXTS[language]
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"][:length] for line in islice(lines, count)]


def run(*words: object) -> str:
    """What a command prints, which must succeed."""
    answer = unmask(*words)
    assert answer.code == 0, answer.err
    return answer.out


def make_corpus(folder: Path, texts: list[str], tokenizer: str, language: Language) -> Path:
    """A tokenizer like the family's and a corpus of its tokens, by the commands; Chinese words are those of the segmenter."""
    source = folder / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts), encoding="utf-8")
    like = ("--kind" if tokenizer == "characters" else "--like", tokenizer)
    run("tokenizer", "train", source, "-o", folder / "tokenizer", *like, *VOCABULARY[language])
    words = ("--language", language, "--segmenter", "jieba" if language == "zh" else "none", "--duplicates", "keep")
    out = folder / "corpus"
    run("corpus", "build", source, "-t", folder / "tokenizer", "-o", out, *words, "--heldout", 0.1, "--workers", 1)
    return out


def settings(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def losses(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Of each objective on held-out text, before and after a run."""
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())["result"]
    return found["first"]["losses"], found["last"]["losses"]
