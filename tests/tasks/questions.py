"""Questions about odd texts, tokenizers of every kind, and outputs that say one thing."""

from __future__ import annotations

import functools

import numpy as np

from unmask.labelled.records import Answer, Place, QuestionExample
from unmask.text.aligned import Windows
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train

KINDS = ("wordpiece", "bpe", "unigram", "characters")
SIDES = ("start", "end")
LINE = "the café of Zoë in 北京 costs １２３ or 45 euro \U0001f642 not far away."


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    lines = [LINE, "who pays what and where is it?", "a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3"]
    return train(lines * 3, TrainOptions(kind=kind, vocab_size=400))[0]


def asked(context: str, answer: str | None = None, start: int = -1, question: str = "who?") -> QuestionExample:
    """`answer` "" says that there is none, None that nobody knows."""
    found = () if not answer else (Answer(answer, context.index(answer) if start < 0 else start),)
    return QuestionExample("1", question, context, None if answer is None else found, Place("f", 1, 1))


def shown_outputs(windows: Windows, first: int, last: int) -> dict[str, np.ndarray]:
    """Every window that holds this token of the context says that the answer begins (ends) there."""
    out = {side: np.full(len(windows.ids_T), -9, np.float32) for side in SIDES}
    where_M = windows.place_M + np.repeat(windows.starts[:-1], np.diff(windows.token_starts))
    out["start"][where_M[windows.token_M == first]] = 9
    out["end"][where_M[windows.token_M == last]] = 9
    return out
