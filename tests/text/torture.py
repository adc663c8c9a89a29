"""Texts in which a character that a reader sees is not one code point, or not what the tokenizer sees; tokenizers for them."""

from __future__ import annotations

import functools
import unicodedata
from typing import get_args

from foreign_text import HOSTILE
from tokenizer_corpus import ODD_LINES

from unmask.text.tokenizer import Tokenizer
from unmask.text.tokenizer_json import ModelKind
from unmask.text.train_tokenizer import TrainOptions, train

TORTURE = [
    *ODD_LINES,
    *HOSTILE,
    "cafe\u0301",
    "Zoe\u0308 <mask> rides on.",
    "Zo\u00eb <mask> rides on.",
    "（ＡＢＣ）…ﬁ ﬃnal",
    "\U0001f469\u200d\U0001f4bb Ada lives in Rome",
    "x\r\ny answer",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\u1100\u116e\u11a8 x",
    "\u0130stanbul \u00c0\u00c9 \ufb00 Stra\u00dfe",
    "\u2018q\u2019 \u00bd \u2122 \u33a1",
    "\u0915\u094d\u0937 \u0e19\u0e49\u0e33",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 1\ufe0f\u20e3 #\ufe0f\u20e3 \U0001f44d\U0001f3fd",
    "\u200bx\u200b y\ufeffz",
    "  \u3000  ",
    "\u0301\u0301 a\u0300\u0301b",
    "\ufdfa x \ufdfd",
    "a\u00adb soft",
    "e\u0301" * 20,
    "A\u030a \u00c5 \u212b \u210c",
    "\u0344 \u1fc1 \u0958",
    "中\u0301文 か\u3099\u304b",
    "\U0001f602\U0001f602\U0001f602 ok",
    "\x10\x11 \x10ab cd",
    "\x10\ufb01ab cd \x10ef",
    "\x10",
    "eax f\ufb01\x10x x\u2026\x11a/ \u33a1\x11 (\u0301\x10s",
    "(\x10\x11ab) ef-\x10\ufb01ne \x10(\x10)",
    "``quoted'' and 'so' '''",
]
KINDS = ("wordpiece", "wordpiece lower-case", "bpe", "unigram", "characters")
_LINES = [
    *(
        "The quick brown fox jumps over the lazy dog in Rome.",
        "Ada lives in Rome, and Zoë has a café there.",
        "ok then",
    ),
    *(
        "自然语言处理模型很有用，北京是首都。",
        "state-of-the-art models cost 5.975,74 or 7.7 a day!",
        "Where does Ada live?",
    ),
]


@functools.cache
def small(kind: str) -> Tokenizer:
    """A tokenizer of a kind, learned from a few lines: most words fall into many pieces."""
    name, _, lower = kind.partition(" ")
    options = TrainOptions(kind=name, vocab_size=420, limit_alphabet=300, lowercase=bool(lower))  # type: ignore[arg-type]
    assert name in (*get_args(ModelKind), "characters")
    return train(_LINES * 3, options)[0]


def content(tokenizer: Tokenizer, id: int) -> str:
    """What a piece says, folded; "" for the unknown token and for bytes that are no whole character."""
    piece = tokenizer.token(id)
    if tokenizer.kind == "bpe":
        said = tokenizer.decode([id])
        return "" if "\ufffd" in said else folded(said)
    if id == tokenizer.unk_token_id:
        return ""
    return folded(piece.removeprefix("##") if tokenizer.kind == "wordpiece" else piece.replace("\u2581", ""))


def folded(text: str) -> str:
    """Without case, accents, forms, white space and control characters."""
    quoted = text.replace("``", chr(34)).replace(chr(39) * 2, chr(34))  # as ALBERT has it
    once = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", quoted).lower())
    return "".join(c for c in once if unicodedata.category(c) not in ("Mn", "Mc", "Me", "Cc", "Cf") and not c.isspace())
