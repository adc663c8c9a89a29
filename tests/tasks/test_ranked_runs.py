"""Bi-encoders and cross-encoders from file to folder: they learn, and sentence-transformers answers as we do."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import WORDS, toy_model, write

from unmask.config import AdamW, Contrast, FineTuning, Keeping, Machine, Ranking, Task
from unmask.inference.loaded import load
from unmask.tasks.run import finetune

NOUNS = ["cat", "dog", "bird", "river", "garden", "letter", "teacher", "doctor"]


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(small_corpus, tmp_path_factory.mktemp("toy") / "model")


def records(count: int, seed: int) -> list[dict[str, Any]]:
    """What answers speaks of the same thing."""
    draw = random.Random(seed)

    def text(noun: str) -> str:
        words = [noun, *(draw.choice(WORDS) for _ in range(draw.randint(0, 3)))]
        return " ".join(draw.sample(words, len(words)))

    rows = []
    for _ in range(count):
        noun, *others = draw.sample(NOUNS, 3)
        rows.append({"query": text(noun), "positive": text(noun), "negative": [text(other) for other in others]})
    return rows


def tuned(model: Path, folder: Path, task: Task, **changes: Any) -> tuple[Path, dict[str, float]]:
    train, dev = write(folder / "train.jsonl", records(160, 0)), write(folder / "dev.jsonl", records(30, 1))
    run = FineTuning(
        model=str(model), train=str(train), dev=str(dev), task=task, examples=16, epochs=3, max_length=32,
        optimizer=AdamW(learning_rate=3e-3), keeping=Keeping(evaluations=1, keep_last=1),
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    found = finetune(replace(run, **changes), folder / "run", view=lambda record: None)
    assert found.outcome.finished
    return folder / "run" / "model", dict(found.metrics)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # importing their library takes seconds
@pytest.mark.parametrize("pooling", ["mean", "cls", "weighted"])
def test_a_bi_encoder_is_learned_and_its_folder_gives_their_vectors(model: Path, tmp_path: Path, pooling: Any) -> None:
    library = pytest.importorskip("sentence_transformers")
    task = Contrast(pooling=pooling, chunk_tokens=400, query_prompt="the ", document_prompt="of ", dimensions=(16,))
    folder, metrics = tuned(model, tmp_path, task)
    assert next(iter(metrics)) == "ndcg@10" and metrics["hit@1"] > 0.8
    theirs, ours = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True), load(folder)
    asked = [row["query"] for row in records(20, 2)]
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        assert np.abs(ours.encode(asked, prompt=ours.prompt_named(role)) - encode(asked)).max() < 1e-5
