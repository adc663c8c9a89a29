"""The test score of a model that unmask fine-tunes."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from benchmarks.quality.rows import Row, Search
from unmask.config import AdamW, Contrast, FineTuning, Keeping, Linear, Machine, Ranking
from unmask.hub.files import load_model, save_model
from unmask.inference.loaded import load
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.tasks.rank import judge
from unmask.tasks.retrieval import folder_embedder, rerank, score, search
from unmask.tasks.run import finetune
from unmask.tasks.saved import TaskModel


def new_weights(model: Path, folder: Path) -> Path:
    """The same encoder as if it had never read anything."""
    loaded = load_model(model)
    encoder = Encoder(loaded.config)
    initialise(encoder, loaded.config, torch.Generator().manual_seed(0))
    save_model(folder, encoder, None, tokenizer_folder=model, about={})
    return folder


def ours(row: Row, files: Path, model: Path, seed: int, threads: int, searched: Search | None) -> float:
    """Fine-tunes and measures."""
    out = files / "ours"
    shutil.rmtree(out, ignore_errors=True)
    run = FineTuning(
        model=str(model), train=str(files / "train.jsonl"), dev=str(files / "dev.jsonl") if row.select else "",
        task=row.task, max_length=row.max_length, examples=32, epochs=float(row.epochs), seed=seed, dropout=0.1,
        optimizer=AdamW(learning_rate=row.learning_rate, epsilon=1e-8), schedule=Linear(warmup=0.1),
        keeping=Keeping(evaluations=row.epochs, keep_last=1), machine=Machine(device="cpu", threads=threads, workers=0),
    )  # fmt: skip
    finetune(run, out, view=lambda record: None)
    if searched is not None:
        return _searched(row, out / "model", searched)
    best = TaskModel.load(out / "model")
    metrics = best.answer(best.features(best.job.read(str(files / "test.jsonl")).examples)).metrics
    return next(iter(metrics.values()))


def _searched(row: Row, model: Path, found: Search) -> float:
    if isinstance(row.task, Contrast):
        embed = folder_embedder(load(model))
        hits = search(embed(found.queries, "query"), embed(found.texts, "document"), 10)
    else:
        assert isinstance(row.task, Ranking)
        second = TaskModel.load(model)
        hits = rerank(found.hits, found.queries, found.texts, judge(second.encoder, second.objective, second.texts))
    return score(found.collection, found.asked, hits)["ndcg@10"]
