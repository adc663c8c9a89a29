"""What an aligned encoder should give, token by token."""

from __future__ import annotations

from unmask.text.aligned import Framed, Windows, Words
from unmask.text.tokenizer import Tokenizer


def rows(made: Framed | Words | Windows) -> list[list[int]]:
    return [made.ids_T[a:b].tolist() for a, b in zip(made.starts, made.starts[1:], strict=False)]


def framed_as(tokenizer: Tokenizer, *texts: list[int]) -> list[int]:
    """[CLS] A [SEP] B [SEP], with the separator twice in the middle for byte-level BPE."""
    cls, sep = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    ids = cls + texts[0] + sep
    return ids if len(texts) == 1 else ids + (sep if tokenizer.kind == "bpe" else []) + texts[1] + sep


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text])[0].ids.tolist()
