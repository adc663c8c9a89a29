"""Small runs on a real corpus, for the tests of the loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from unmask import recipes, road
from unmask.config import BatchSize, EncoderConfig, Keeping, Machine, RunConfig, Steps
from unmask.train.journal import read_run


def small_run(corpus: Path, **changes: Any) -> RunConfig:
    """Two layers, 32 wide, dropout on (its random state must survive a resume), twelve steps."""
    run = replace(
        recipes.bert(),
        corpus=str(corpus),
        dropout=0.1,
        encoder=EncoderConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64),
        batch=BatchSize(tokens=256, accumulate=2),
        until=Steps(steps=12),
        keeping=Keeping(evaluations=3, evaluation_tokens=500, keep_last=2),
        machine=Machine(threads=1, workers=0),
    )
    return road.fit_to_corpus(replace(run, **changes))


def ignore(record: dict[str, Any]) -> None:
    """Watches nothing."""


def weights(folder: Path) -> dict[str, bytes]:
    """The exported weights, bit for bit."""
    return {name: value.tobytes() for name, value in load_file(folder / "model" / "model.safetensors").items()}


def losses(folder: Path) -> list[Any]:
    """What the run recorded, without times."""
    import json

    timed = {"seconds", "tokens_per_second", "loader_wait", "peak_share"}
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in r.items() if k not in timed} for r in records if r["kind"] in ("step", "evaluation", "sample")
    ]


def result(folder: Path) -> dict[str, Any]:
    """How the run says it ended."""
    found: dict[str, Any] = read_run(folder)["result"]
    return found


def stop_after(step: int, number: signal.Signals = signal.SIGTERM) -> Callable[[dict[str, Any]], None]:
    """Asks this process to stop when a step has been recorded."""

    def view(record: dict[str, Any]) -> None:
        if record["kind"] == "step" and record["step"] == step:
            os.kill(os.getpid(), number)

    return view
