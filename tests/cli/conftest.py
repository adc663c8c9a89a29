from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import TINY, Road, unmask
from made_up import english_documents
from task_files import FAST, lines


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Text, tokenizer, corpus and a run of four steps, all made by commands."""
    here = tmp_path_factory.mktemp("a road")  # with a space, as in many people's folders
    made = Road(here / "text.txt", here / "tokenizer", here / "corpus", here / "run", here / "run" / "model")
    made.text.write_text("\n\n".join(english_documents(120)), encoding="utf-8")
    blank = ("--separator", "blank")
    for words in (
        ("tokenizer", "train", made.text, "-o", made.tokenizer, "--vocab-size", 120, "--lowercase", *blank),
        ("corpus", "build", made.text, "-t", made.tokenizer, "-o", made.corpus, "--heldout", 0.1, "--workers", 1)
        + ("--duplicates", "exact", *blank),
        ("pretrain", "bert", "-c", made.corpus, "-p", "bert_tiny", "--steps", 4, "-o", made.run, *TINY),
    ):
        answer = unmask(*words)
        assert answer.code == 0, answer.err
    return made


@pytest.fixture(scope="session")
def tuned(road: Road, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of two labels, one of which has a space and one is Chinese."""
    here = tmp_path_factory.mktemp("tuned")
    rows = [
        {"review": f"the {'good' if n % 2 else 'bad'} one", "label": "is good" if n % 2 else "不好"} for n in range(40)
    ]
    data = lines(here / "data.jsonl", rows)
    answer = unmask(
        "finetune", "classify", "-m", road.model, "-t", data, "-d", data, "-o", here / "run", "--epochs", 6,
        "--map", "text=review", *FAST,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "accuracy" in answer.out and "unmask predict" in answer.out
    assert re.search(r"Best checkpoint, step \d+, dev set", answer.out)
    return here
