"""Labelled files for the commands of tasks, and settings with which they are fast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FAST = [
    word
    for setting in (
        "machine.threads=1",
        "machine.device=cpu",
        "examples=8",
        "max_length=48",
        "optimizer.learning_rate=3e-3",
    )
    for word in ("--set", setting)
]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def answers(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def beir_folder(here: Path, text: str = "about number") -> Path:
    """Twelve documents, four queries, one judged document each."""
    beir = here / "beir"
    (beir / "qrels").mkdir(parents=True)
    lines(beir / "corpus.jsonl", [{"_id": f"d{n}", "title": "", "text": f"{text} {n}"} for n in range(12)])
    lines(beir / "queries.jsonl", [{"_id": f"q{n}", "text": f"number {n}"} for n in range(4)])
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(4))
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged, encoding="utf-8")
    return beir
