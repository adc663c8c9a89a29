"""A small model folder and a task that it can learn in seconds."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from small_models import SMALL

from unmask.config import FineTuning
from unmask.hub.files import save_model
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.tasks.run import finetune
from unmask.text.shards import Corpus

WORDS = "the a of and in to was is for on with as at by from that it his her which".split()


def toy_model(corpus: Path, folder: Path) -> Path:
    """New weights with the corpus' tokenizer."""
    vocabulary = Corpus.open(corpus, "train", verify=False).vocabulary
    config = replace(SMALL, vocab_size=vocabulary.size, max_position_embeddings=64, initializer_range=0.05)
    encoder = Encoder(config)
    initialise(encoder, config, torch.Generator().manual_seed(0))
    tokenizer = Corpus.open(corpus, "train", verify=False).tokenizer_folder
    save_model(folder, encoder, None, tokenizer_folder=tokenizer, about={})
    return folder


def texts(count: int, seed: int) -> list[dict[str, Any]]:
    """The label is whether "good" or "bad" stands in the text, the number how often "very" does."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = [draw.choice(WORDS) for _ in range(draw.randint(2, 9))]
        label, very = draw.choice(["good", "bad"]), draw.randint(0, 2)
        for word in [label] + ["very"] * very:
            words.insert(draw.randint(0, len(words)), word)
        rows.append({"text": " ".join(words), "label": f"{label} news", "score": float(very)})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def tune(run: FineTuning, folder: Path) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Trains to the end: the metrics of the dev set, and every record the run showed."""
    seen: list[dict[str, Any]] = []
    tuned = finetune(run, folder, view=seen.append)
    assert tuned.outcome.finished
    return dict(tuned.metrics), seen
