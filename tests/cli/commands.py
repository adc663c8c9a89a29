"""Runs the command line inside the test's own process, through the same `main` as the console script."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from unmask.cli.main import main

TINY = [
    word
    for setting in (
        "encoder.hidden_size=32", "encoder.num_attention_heads=2", "encoder.intermediate_size=64",
        "batch.tokens=256", "keeping.evaluations=2", "keeping.evaluation_tokens=300",
        "machine.threads=1", "machine.workers=0",
    )
    for word in ("--set", setting)
]  # fmt: skip


@dataclass(frozen=True)
class Road:
    """What the commands made, one after the other."""

    text: Path
    tokenizer: Path
    corpus: Path
    run: Path
    model: Path


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def error(self) -> list[str]:
        """The lines of our own error message."""
        lines = self.err.splitlines()
        first = next((place for place, line in enumerate(lines) if line.startswith("error: ")), len(lines))
        return lines[first:]


def unmask(*words: object) -> Answer:
    """`unmask word …`: exit code and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with mock.patch.object(sys, "argv", ["unmask", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())


def pretrain(road: Road, out: Path, *words: object) -> tuple[object, ...]:
    """The words of a tiny run on the road's corpus."""
    return ("pretrain", "bert", "-c", road.corpus, "-p", "bert_tiny", "-o", out, *TINY, *words)
