"""Real lines in two languages with emoji and accents, and the tokenizers learned from them once a session."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path

from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, TrainReport, train

KINDS = ("wordpiece", "bpe", "unigram", "characters")
ODD_LINES = [
    "naïve Café, CAFE\u0301 and Zoë \U0001f642\U0001f1e9\U0001f1ea\U0001f469\u200d\U0001f4bb",
    "北京 是　首都，ＡＢＣ１２３。",
    "バスです ハ\u3099ス 가나다라 \u1112\u1161\u11ab",
    "tabs\tand  spaces \u00a0\u2003 here\u2028there",
    "A\u0010b … c\t\u0010d",
    "\ufeff",
    "\u200b",
    "\u02dc \u0301",
    " ",
    "",
    "𠀀𠀁 rare 㐀 hanzi and ﷽",
    "x" * 300,
    "2024-01-31 3.14159 1,000,000",
]


def lines(shared: Path, name: str, count: int) -> list[str]:
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = (json.loads(line)["text"] for line in file)
        found = (line.replace("<unk>", "rare") for text in texts for line in text.split("\n") if line)
        return [line for _, line in zip(range(count), found, strict=False)]


@functools.cache
def corpus(shared: Path) -> list[str]:
    return lines(shared, "en_wikitext2_valid", 400) + lines(shared, "zh_docs_react", 1500)


@functools.cache
def trained(shared: Path, kind: str) -> tuple[Tokenizer, TrainReport]:
    return train(corpus(shared) + ODD_LINES[:3], TrainOptions(kind=kind, vocab_size=4000))
