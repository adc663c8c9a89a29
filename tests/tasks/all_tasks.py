"""Small random models of every family with the head of a task, and records that ask them everything at once."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from questions import tokenizer
from small_models import VARIANTS, randomise

from unmask.config import Answering, Classification, Contrast, Ranking, Regression, Tagging, Task
from unmask.hub.task_heads import head_shape
from unmask.labelled.records import Answer, Place, QuestionExample, RankedExample, TaggedExample, TextExample
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint, Objective
from unmask.tasks.job import Features, Job
from unmask.tasks.jobs import job_of
from unmask.text.aligned import AlignedEncoder

# Each family with a tokenizer of its own kind.
FAMILIES = {
    "bert": "wordpiece", "roberta": "bpe", "albert": "unigram", "deberta-v1": "bpe", "deberta-v2": "unigram",
    "modernbert": "bpe", "gpt2": "bpe", "t5": "unigram", "neobert": "wordpiece",
}  # fmt: skip
TOPICS, TAGS = ("art", "the law", "海"), ("O", "B-PER", "I-PER", "B-地", "I-地")
TASKS: dict[str, Task] = {
    "one label": Classification(labels=TOPICS),
    "pairs": Classification(labels=TOPICS),
    "several labels": Classification(labels=TOPICS, multi_label=True),
    "number": Regression(target="score"),
    "number of a pair": Regression(),
    "tags": Tagging(labels=TAGS),
    "tags, CRF": Tagging(labels=TAGS, decoder="crf"),
    "tags, BiLSTM-CRF": Tagging(labels=TAGS, decoder="bilstm_crf"),
    "plain tags": Tagging(labels=("NOUN", "VERB"), scheme="plain"),
    "answer": Answering(stride=6, max_answer_tokens=8),
    "answer or none": Answering(stride=6, max_answer_tokens=8, impossible=True),
    "vector, mean": Contrast(dimensions=(16,), query_prompt="who: "),
    "vector, first": Contrast(pooling="cls"),
    "vector, weighted": Contrast(pooling="weighted", chunk_tokens=24),
    "rank": Ranking(),
    "rank, listwise": Ranking(loss="listwise"),
}
LONG = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz0123    ", k=150)).strip()
TEXTS = (  # without repetitions, in which answers would be equally good but for rounding
    "the café of Zoë in 北京",
    "",
    LONG,
    "[SEP] [MASK] <s> </s>",
    "who pays １２３ euro \U0001f642 and where is it",
    "\u200b \t",
    "costs",
    LONG[::-1].replace(" ", ""),
)
LENGTH = 32  # of a window; some texts are longer


@dataclass(frozen=True)
class Model:
    """A job with a network of its own."""

    job: Job
    encoder: Encoder
    objective: Joint
    texts: AlignedEncoder

    @property
    def member(self) -> Objective:
        (member,) = self.objective.members().values()
        return member

    def features(self, examples: Sequence[Any]) -> Features:
        return self.job.features(examples, self.texts)


def model_of(task: str, family: str) -> Model:
    """Every tensor of it is random, so that nothing is neutral by accident."""
    job, encoder = job_of(TASKS[task]), encoder_of(family)
    shape = head_shape({"deberta-v1": "deberta"}.get(family, family), job.task.kind)
    objective = Joint({job.task.kind: job.objective(encoder.config, shape)})
    randomise(objective, 2)
    return Model(job, encoder, objective.eval(), AlignedEncoder(tokenizer(FAMILIES[family]), LENGTH))


@functools.cache
def encoder_of(family: str) -> Encoder:
    vocab_size = tokenizer(FAMILIES[family]).vocab_size
    encoder = Encoder(replace(VARIANTS[family], vocab_size=vocab_size, num_hidden_layers=2))
    randomise(encoder, 1)
    return encoder.eval()


def records(task: str) -> list[Any]:
    """One on each of TEXTS, with its truth."""
    kinds = {"tags": tagged, "plain": tagged, "answer": questioned, "vector": matched, "rank": ranked}
    make = kinds.get(task.split(" ")[0].strip(","), classified)
    return [make(task, text, at) for at, text in enumerate(TEXTS)]


def place(at: int) -> Place:
    return Place("records.jsonl", at + 1, at + 1)


def classified(task: str, text: str, at: int) -> TextExample:
    truths: dict[str, Any] = {
        "one": TOPICS[at % 3],
        "pairs": TOPICS[at % 3],
        "several": TOPICS[: at % 4],
        "number": at / 4,
    }
    pair = TEXTS[-1 - at] if "pair" in task else None
    return TextExample(text, pair, truths[task.split(" ")[0]], place(at))


def tagged(task: str, text: str, at: int) -> TaggedExample:
    """Records of more than a window, and one without a word."""
    words = tuple(text.split(" ")) if text else ()
    names = ("NOUN", "VERB") if task.startswith("plain") else ("B-PER", "I-PER")
    return TaggedExample(words, tuple(names[n % 2] for n in range(len(words))), place(at))


def questioned(task: str, text: str, at: int) -> QuestionExample:
    """Contexts of several windows; where it may be, every other question has no answer."""
    context = f"{text} Ada {TEXTS[-1 - at]}"
    none = task == "answer or none" and at % 2
    return QuestionExample(str(at), text[:20], context, () if none else (Answer("Ada", len(text) + 1),), place(at))


def matched(task: str, text: str, at: int) -> RankedExample:
    return RankedExample(text, (f"{text} {at}",), (TEXTS[-1 - at], "the of"), place(at))


def ranked(task: str, text: str, at: int) -> RankedExample:
    return RankedExample(text, ("who", text), (TEXTS[-1 - at], "Zoë"), place(at))
