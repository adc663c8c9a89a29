"""Bi-encoders and cross-encoders from file to folder: they learn, and sentence-transformers answers as we do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import WORDS, toy_model, write

from unmask.config import AdamW, Contrast, FineTuning, Keeping, Machine, Ranking, Task
from unmask.inference.loaded import load
from unmask.tasks.rank import judge, sigmoid
from unmask.tasks.run import finetune
from unmask.tasks.saved import TaskModel

NOUNS = ["cat", "dog", "bird", "river", "garden", "letter", "teacher", "doctor"]


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(small_corpus, tmp_path_factory.mktemp("toy") / "model")


def records(nouns: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """A query on each noun; what answers it speaks of the same thing."""
    draw = random.Random(seed)

    def text(noun: str) -> str:
        words = [noun, *(draw.choice(WORDS) for _ in range(draw.randint(0, 3)))]
        return " ".join(draw.sample(words, len(words)))

    rows = []
    for noun in nouns:
        others = draw.sample([other for other in NOUNS if other != noun], 2)
        rows.append({"query": text(noun), "positive": text(noun), "negative": [text(other) for other in others]})
    return rows


def tuned(model: Path, folder: Path, task: Task, **changes: Any) -> tuple[Path, dict[str, float]]:
    dev = [{**row, "negative": row["negative"] if isinstance(task, Ranking) else []} for row in records(NOUNS, 1)]
    files = write(folder / "train.jsonl", records(NOUNS * 20, 0)), write(folder / "dev.jsonl", dev)
    run = FineTuning(
        model=str(model), train=str(files[0]), dev=str(files[1]), task=task, examples=16, epochs=3, max_length=32,
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
    asked = [row["query"] for row in records(NOUNS, 2)]
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        assert np.abs(ours.encode(asked, prompt=ours.prompt_named(role)) - encode(asked)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("loss", ["pointwise", "listwise"])
def test_a_cross_encoder_s_folder_gives_their_scores(model: Path, tmp_path: Path, loss: Any) -> None:
    """sentence-transformers#1058, #1004, #1546: the folder says whether scores are probabilities."""
    library = pytest.importorskip("sentence_transformers")
    folder, metrics = tuned(model, tmp_path, Ranking(loss=loss))
    ours, theirs = TaskModel.load(folder), library.CrossEncoder(str(folder), device="cpu", local_files_only=True)
    pairs = [(row["query"], row["negative"][0]) for row in records(NOUNS, 2)]
    raw = judge(ours.encoder, ours.objective, ours.texts)(*zip(*pairs, strict=True))
    wanted = sigmoid(raw) if loss == "pointwise" else raw
    assert np.abs(theirs.predict(pairs) - wanted).max() < 1e-5
    read = ours.job.read(str(tmp_path / "dev.jsonl"))
    assert ours.answer(ours.features(read.examples)).metrics == pytest.approx(metrics)
