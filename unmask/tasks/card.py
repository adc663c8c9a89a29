"""The README.md of a fine-tuned model: what it answers, what it learned from, what was measured, how to ask it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unmask.config import Answering, Classification, Contrast, FineTuning, Ranking, Regression, Tagging, Task

_MOST_LABELS = 40


def task_card(run: FineTuning, task: Task, examples: Mapping[str, int], metrics: Mapping[str, float], step: int) -> str:
    """Markdown with the front matter model hubs read; every figure in it was measured in the run.

    `examples` are the numbers of records by split; `metrics` are those of the dev set, none without one; `step` is the
    checkpoint's.
    """
    pipeline, library = _kind(task)
    rows = "\n".join(
        ["| metric | value |", "| --- | ---: |", *(f"| {name} | {x:.4f} |" for name, x in metrics.items())]
    )
    chosen = f"which also chose this checkpoint{_and_more(task)}"
    measured = f"On the {examples.get('dev', 0):,} records of the dev set, {chosen}:\n\n{rows}"
    return f"""---
library_name: {library}
pipeline_tag: {pipeline}
tags: [unmask]
---

# {_title(task)}

Fine-tuned with unmask from `{_name(run.model)}` on {examples["train"]:,} records in batches of
{run.examples * run.accumulate}. This is step {step:,} of a run of up to {run.epochs:g} epochs: learning rate
{run.optimizer.learning_rate:g}, texts of up to {run.max_length} tokens, seed {run.seed}.

{_labels(task)}## What was measured

{measured if metrics else "Nothing: the run had no dev set."}

## How to use it

{_usage(task)}

Every setting of the run is in `unmask.json`.
"""


def _name(model: str) -> str:
    """The folder's name; where that is only "model", as in every run, with the one it is in."""
    path = Path(model).resolve()
    return path.name if path.name != "model" else f"{path.parent.name}/model"


def _kind(task: Task) -> tuple[str, str]:
    match task:
        case Classification() | Regression():
            return "text-classification", "transformers"
        case Tagging(decoder="linear"):
            return "token-classification", "transformers"
        case Tagging():
            return "token-classification", "unmask"
        case Answering():
            return "question-answering", "transformers"
        case Contrast():
            return "sentence-similarity", "sentence-transformers"
        case Ranking():
            return "text-ranking", "sentence-transformers"


def _title(task: Task) -> str:
    match task:
        case Classification(multi_label=True):
            return "A classifier of texts, any number of labels each"
        case Classification():
            return "A classifier of texts"
        case Regression():
            return "A model that gives texts a number"
        case Tagging():
            return "A model that tags words"
        case Answering():
            return "A model that answers questions from a text"
        case Contrast():
            return "A model that turns texts into vectors"
        case Ranking():
            return "A model that ranks texts by a query"


def _usage(task: Task) -> str:
    """Commands, and the class of other libraries that answers the same."""
    commands = "```sh\nunmask predict . FILE\nunmask evaluate . LABELLED-FILE\n```"
    match task:
        case Contrast():
            return (
                "```sh\nunmask embed . FILE --out vectors.npy\n```\n\n"
                '`SentenceTransformer(".")` of sentence-transformers gives the same vectors.'
            )
        case Ranking():
            return f'{commands}\n\n`CrossEncoder(".")` of sentence-transformers gives the same order.'
        case Tagging(decoder="crf" | "bilstm_crf"):
            return (
                f"{commands}\n\ntransformers would load this folder without its CRF, and give other tags: use unmask."
            )
        case _:
            return f"{commands}\n\ntransformers loads the folder by the class that `config.json` names."


def _and_more(task: Task) -> str:
    tuned = (isinstance(task, Classification) and task.multi_label) or (isinstance(task, Answering) and task.impossible)
    return " and its thresholds" if tuned else ""


def _labels(task: Task) -> str:
    if isinstance(task, Regression) and task.target:
        return f"The number is its `{task.target}`.\n\n"
    names = getattr(task, "labels", ())
    if not names:
        return ""
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_LABELS])
    more = f" and {len(names) - _MOST_LABELS} more" if len(names) > _MOST_LABELS else ""
    return f"Labels: {shown}{more}.\n\n"
