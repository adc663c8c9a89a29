"""The test score of a model that transformers' Trainer fine-tunes.

What chance decides is the same as in ours wherever it can be: the order of the records and the first numbers of the head. Between
two orders lie several points in sets that are learned in a hundred steps, far more than between two libraries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from scipy.stats import spearmanr
from torch import nn

from benchmarks.quality.rows import Row
from unmask.config import Answering, EncoderConfig, Regression, Tagging
from unmask.epochs import DEAL
from unmask.measure.squad import answer_scores
from unmask.nn.initial import initialise
from unmask.randomness import generator

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
BEST, LONGEST = 20, 30  # starts and ends that are tried, tokens of an answer

Rows = list[dict[str, Any]]


def theirs(row: Row, files: Path, model: Path, seed: int) -> float:
    """Fine-tunes and measures."""
    transformers.logging.set_verbosity_error()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    names = ("train", "dev", "test") if row.select else ("train", "test")
    read = {s: [json.loads(x) for x in (files / f"{s}.jsonl").read_text("utf-8").splitlines()] for s in names}
    match row.task:
        case Answering():
            return _answering(row, files, model, seed, tokenizer, read)
        case Tagging():
            return _tagging(row, files, model, seed, tokenizer, read)
        case _:
            return _texts(row, files, model, seed, tokenizer, read)


class _Order(torch.utils.data.Sampler[int]):
    """Examples in the order in which ours deals their records, another one in each epoch."""

    def __init__(self, examples: Sequence[Sequence[int]], seed: int):
        self.examples, self.seed, self.epoch = examples, seed, -1

    def __len__(self) -> int:
        return sum(map(len, self.examples))

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        order = generator(self.seed, DEAL, self.epoch).permutation(len(self.examples))
        return iter([example for record in order for example in self.examples[record]])


class _Trainer(transformers.Trainer):
    """`examples` are those of each record, several where a text has several windows."""

    examples: Sequence[Sequence[int]]

    def _get_train_sampler(self, train_dataset: Any = None) -> _Order:
        return _Order(self.examples, self.args.seed)


def _begin_head(head: nn.Linear, seed: int, *, behind_dense: bool = False) -> None:
    """The numbers that ours begins with. A classifier's come after those of the dense layer before it."""
    dense = [nn.Linear(head.in_features, head.in_features)] if behind_dense else []
    initialise(nn.ModuleList([*dense, head]), EncoderConfig(), torch.Generator().manual_seed(seed))


def _trainer(
    row: Row, files: Path, model: Any, seed: int, examples: Sequence[Sequence[int]] | None = None, **given: Any
) -> Any:
    """The settings that ours has, in the Trainer's words; a step is of as many records."""
    examples = [[at] for at in range(len(given["train_dataset"]))] if examples is None else examples
    size = round(32 * len(given["train_dataset"]) / len(examples))
    best = {"load_best_model_at_end": True, "metric_for_best_model": "score", "save_total_limit": 1}
    when = "epoch" if row.select else "no"
    arguments = transformers.TrainingArguments(
        str(files / "theirs"), num_train_epochs=row.epochs, per_device_train_batch_size=size,
        per_device_eval_batch_size=64, learning_rate=row.learning_rate, weight_decay=0.01, warmup_steps=0.1,
        lr_scheduler_type="linear", eval_strategy=when, save_strategy=when, seed=seed, report_to=[],
        disable_tqdm=True, use_cpu=True, logging_strategy="no", dataloader_pin_memory=False,
        **(best if row.select else {}),
    )  # fmt: skip
    trainer = _Trainer(model, arguments, **given)
    trainer.examples = examples
    trainer.train()
    return trainer


def _texts(row: Row, files: Path, model: Path, seed: int, tokenizer: Any, read: dict[str, Rows]) -> float:
    number = isinstance(row.task, Regression)
    labels = [] if number else sorted({str(r["label"]) for r in read["train"]})
    net = transformers.AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=1 if number else len(labels), **DROPOUT
    )
    _begin_head(net.classifier, seed, behind_dense=True)
    sets = {split: _encoded(rows, tokenizer, labels, row.max_length) for split, rows in read.items()}
    trainer = _trainer(
        row, files, net, seed, train_dataset=sets["train"], eval_dataset=sets["dev"],
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda p: {"score": _score(p, number)},
    )  # fmt: skip
    return float(trainer.evaluate(sets["test"])["eval_score"])


def _encoded(rows: Sequence[dict[str, Any]], tokenizer: Any, labels: list[str], length: int) -> Rows:
    pairs = [r["text_b"] for r in rows] if "text_b" in rows[0] else None
    texts = [r["text_a"] if pairs else r["text"] for r in rows]
    made = tokenizer(texts, pairs, truncation=True, max_length=length)
    values = [labels.index(str(r["label"])) if labels else float(r["label"]) for r in rows]
    return [{name: column[i] for name, column in made.items()} | {"labels": values[i]} for i in range(len(rows))]


def _score(predicted: Any, number: bool) -> float:
    if number:
        return float(spearmanr(predicted.predictions[:, 0], predicted.label_ids).statistic)
    return float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())


def _tagging(row: Row, files: Path, model: Path, seed: int, tokenizer: Any, read: dict[str, Rows]) -> float:
    """A word's first piece carries its tag, as transformers' own example does it."""
    tags = sorted({tag for rows in read.values() for r in rows for tag in r["labels"]})
    net = transformers.AutoModelForTokenClassification.from_pretrained(model, num_labels=len(tags), **DROPOUT)
    _begin_head(net.classifier, seed)
    sets = {split: _tagged(rows, tokenizer, tags, row.max_length) for split, rows in read.items()}
    trainer = _trainer(
        row, files, net, seed, train_dataset=sets["train"], eval_dataset=sets["dev"],
        data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
        compute_metrics=lambda p: {"score": _strict_f1(p, tags)},
    )  # fmt: skip
    return float(trainer.evaluate(sets["test"])["eval_score"])


def _tagged(rows: Rows, tokenizer: Any, tags: list[str], length: int) -> Rows:
    made = tokenizer([r["tokens"] for r in rows], is_split_into_words=True, truncation=True, max_length=length)
    found = []
    for at, one in enumerate(rows):
        words = made.word_ids(at)
        first = [w is not None and (i == 0 or words[i - 1] != w) for i, w in enumerate(words)]
        labels = [tags.index(one["labels"][w]) if new else -100 for w, new in zip(words, first, strict=True)]
        found.append({name: column[at] for name, column in made.items()} | {"labels": labels})
    return found


def _strict_f1(predicted: Any, tags: list[str]) -> float:
    from seqeval.metrics import f1_score
    from seqeval.scheme import IOB2

    def words(ids: Any, kept: Any) -> list[list[str]]:
        return [[tags[i] for i in one[keep]] for one, keep in zip(ids, kept, strict=True)]

    kept = predicted.label_ids != -100
    truth, said = words(predicted.label_ids, kept), words(predicted.predictions.argmax(-1), kept)
    return float(f1_score(truth, said, mode="strict", scheme=IOB2))


def _answering(row: Row, files: Path, model: Path, seed: int, tokenizer: Any, read: dict[str, Rows]) -> float:
    net = transformers.AutoModelForQuestionAnswering.from_pretrained(model, **DROPOUT)
    _begin_head(net.qa_outputs, seed)
    made = {split: _windows(row, rows, tokenizer) for split, rows in read.items()}
    keep = ("input_ids", "attention_mask", "token_type_ids", "start_positions", "end_positions")
    windows = [[at for at, w in enumerate(made["train"]) if w["row"] == r] for r in range(len(read["train"]))]
    trainer = _trainer(
        row, files, net, seed, windows, train_dataset=[{k: w[k] for k in keep if k in w} for w in made["train"]],
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )  # fmt: skip
    starts, ends = trainer.predict([{k: w[k] for k in keep if k in w} for w in made["test"]]).predictions
    best: dict[int, tuple[float, str]] = {}
    for window, start, end in zip(made["test"], starts, ends, strict=True):
        found = _best_span(window, start, end, read["test"][window["row"]]["context"])
        best[window["row"]] = max(best.get(window["row"], (-np.inf, "")), found)
    said = [best[at][1] for at in range(len(read["test"]))]
    truths = [[answer["text"] for answer in r["answers"]] for r in read["test"]]
    language = "zh" if row.name.startswith("zh") else "en"
    return answer_scores(truths, said, language=language)["f1"]


def _windows(row: Row, rows: Rows, tokenizer: Any) -> Rows:
    """Questions with pieces of their contexts; the answer's tokens in the windows that hold it, else [CLS]."""
    assert isinstance(row.task, Answering)
    made = tokenizer(
        [r["question"] for r in rows], [r["context"] for r in rows], truncation="only_second", stride=row.task.stride,
        max_length=row.max_length, return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    found = []
    for at, source in enumerate(made["overflow_to_sample_mapping"]):
        inside = [part == 1 for part in made.sequence_ids(at)]
        places = [place if within else None for place, within in zip(made["offset_mapping"][at], inside, strict=True)]
        answer = rows[source]["answers"][0]
        begin, end = answer["start"], answer["start"] + len(answer["text"])
        start = _token(places, lambda p, b=begin: p[0] <= b < p[1])
        stop = _token(places, lambda p, e=end: p[0] < e <= p[1])
        start, stop = (start, stop) if start and stop else (0, 0)
        window = {name: made[name][at] for name in ("input_ids", "attention_mask", "token_type_ids") if name in made}
        found.append(window | {"start_positions": start, "end_positions": stop, "places": places, "row": source})
    return found


def _token(places: list[Any], holds: Callable[[Any], bool]) -> int:
    return next((at for at, place in enumerate(places) if place is not None and holds(place)), 0)


def _best_span(window: dict[str, Any], start: Any, end: Any, context: str) -> tuple[float, str]:
    places = window["places"]
    best = (-np.inf, "")
    for first in np.argsort(-start[: len(places)])[:BEST]:
        for last in np.argsort(-end[: len(places)])[:BEST]:
            whole = places[first] is not None and places[last] is not None
            if whole and first <= last < first + LONGEST:
                best = max(best, (float(start[first] + end[last]), context[places[first][0] : places[last][1]]))
    return best
