"""The test score of a model that sentence-transformers fine-tunes: a bi-encoder or a cross-encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import transformers
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer, util
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.training_args import SentenceTransformerTrainingArguments

from benchmarks.quality.rows import Row, Search
from unmask.config import Contrast
from unmask.tasks.retrieval import rerank, score, search


def theirs_search(row: Row, files: Path, model: Path, seed: int, found: Search) -> float:
    """Fine-tunes and measures nDCG@10."""
    transformers.set_seed(seed)
    rows = [json.loads(x) for x in (files / "train.jsonl").read_text("utf-8").splitlines()]
    common = {
        "num_train_epochs": row.epochs, "learning_rate": row.learning_rate, "weight_decay": 0.01, "warmup_steps": 0.1,
        "lr_scheduler_type": "linear", "seed": seed, "report_to": [], "disable_tqdm": True, "use_cpu": True,
        "logging_strategy": "no", "save_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    if isinstance(row.task, Contrast):
        return _bi_encoder(row, files, model, rows, common, found)
    return _cross_encoder(row, files, model, rows, common, found)


def _bi_encoder(row: Row, files: Path, model: Path, rows: list[dict], common: dict, found: Search) -> float:
    net = SentenceTransformer(str(model), device="cpu")
    net.max_seq_length = row.max_length
    data = Dataset.from_list([{"anchor": r["query"], "positive": r["positive"]} for r in rows])
    arguments = SentenceTransformerTrainingArguments(
        str(files / "theirs"), per_device_train_batch_size=32, batch_sampler="no_duplicates", **common
    )
    loss = MultipleNegativesRankingLoss(net, scale=20.0, similarity_fct=util.cos_sim)
    SentenceTransformerTrainer(net, arguments, train_dataset=data, loss=loss).train()
    queries, documents = (net.encode(t, normalize_embeddings=True) for t in (found.queries, found.texts))
    return score(found.collection, found.asked, search(queries, documents, 10))["ndcg@10"]


def _cross_encoder(row: Row, files: Path, model: Path, rows: list[dict], common: dict, found: Search) -> float:
    net = CrossEncoder(str(model), num_labels=1, max_length=row.max_length, device="cpu")
    pairs = [
        {"query": r["query"], "text": text, "label": float(name == "positive")}
        for r in rows
        for name, text in r.items()
        if name != "query"
    ]
    size = 32 * len(pairs) // len(rows)  # as many pairs as ours has in 32 queries
    arguments = CrossEncoderTrainingArguments(str(files / "theirs"), per_device_train_batch_size=size, **common)
    loss = BinaryCrossEntropyLoss(net)
    CrossEncoderTrainer(net, arguments, train_dataset=Dataset.from_list(pairs), loss=loss).train()

    def judge(queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.floating]:
        return np.asarray(net.predict(list(zip(queries, documents, strict=True)), convert_to_numpy=True))

    return score(found.collection, found.asked, rerank(found.hits, found.queries, found.texts, judge))["ndcg@10"]
