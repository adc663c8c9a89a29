"""Small run folders as a training run leaves them, for the report's tests."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>document.title='broken out'</script>",
    "<!--<script>",
    "\u202egnitirw desrever",
    "x" * 10_000,
    "\ud800",
    "\x1b[31mred",
    "&amp;\"'`",
    "{{ 7 * 7 }}",
]


def step(number: int, **changes: Any) -> dict[str, Any]:
    mlm = 5 + 4 * math.exp(-number / 20)
    return {
        "kind": "step",
        "step": number,
        "tokens": 4096 * number,
        "seconds": 0.25 * number,
        "loss": mlm + 0.69,
        "losses": {"mlm": mlm, "nsp": 0.69},
        "learning_rate": 1e-4,
        "grad_norm": 1.2,
        "tokens_per_second": 16384.0,
        "padding": 0.02,
        "loader_wait": 0.003,
        "peak_share": None,
    } | changes


def evaluation(number: int, mlm: float) -> dict[str, Any]:
    return {
        "kind": "evaluation",
        "step": number,
        "loss": mlm + 0.6,
        "losses": {"mlm": mlm, "nsp": 0.6},
        "perplexity": math.exp(mlm),
        "accuracy": {"mlm": 0.25, "nsp": 0.75},
    }


def sample(number: int, tokens: list[str], masked: list[int], guesses: list[list[list[Any]]]) -> dict[str, Any]:
    shown = ["[MASK]" if place in masked else token for place, token in enumerate(tokens)]
    return {"kind": "sample", "step": number, "tokens": tokens, "shown": shown, "masked": masked, "guesses": guesses}


def write_run(folder: Path, records: list[dict[str, Any]], **run: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def ordinary_run(folder: Path) -> Path:
    records = [{"kind": "plan", "step": 0, "total_steps": 100, "reason": "5 minutes"}, evaluation(0, 9.0)]
    records += [step(number) for number in range(1, 101)] + [evaluation(100, 5.0)]
    for number, chance in ((0, 0.01), (100, 0.8)):
        guesses = [[["cat", chance], ["dog", 0.05]]]
        records.append(sample(number, ["[CLS]", "the", "cat", "sat", "[SEP]"], [2], guesses))
    records.append({"kind": "checkpoint", "step": 100, "path": "steps/0000000100"})
    return write_run(
        folder,
        records,
        run={"seed": 7, "encoder": {"hidden_size": 256}, "objectives": [{"kind": "mlm", "mask_rate": 0.15}]},
        versions={"torch": "2.13.0"},
        machine={"cores": 2},
        model={"parameters": 5_432_832},
        corpus={
            "splits": {"train": {"documents": 21_034, "sentences": 180_210, "tokens": 4_923_112}},
            "report": {"duplicates": {"exact": 1804}, "lengths": {"1": 3, "2-3": 40}},
            "sources": ["python-docs"],
        },
        result={"status": "finished", "why": "all steps done", "unigram_entropy": 6.52},
    )


def phased_run(folder: Path) -> Path:
    """Two phases; where the second begins, the same weights are measured in both ways; the encoder judges tokens (RTD)."""
    records: list[dict[str, Any]] = [{"kind": "phase", "step": 0, "phase": 0}, evaluation(0, 9.0)]
    records += [step(number) for number in range(1, 51)] + [evaluation(50, 5.0)]
    records += [{"kind": "phase", "step": 50, "phase": 1}, evaluation(50, 4.5)]
    records += [step(number) for number in range(51, 81)] + [evaluation(80, 4.0)]
    judged = sample(80, ["[CLS]", "the", "cat", "sat"], [2, 3], [[["dog", 0.5]], [["sat", 0.9]]])
    records.append(judged | {"filled": ["[CLS]", "the", "dog", "ran"], "doubts": [0.1, 0.7, 0.8, 0.2]})
    later = [{"until": {"kind": "tokens", "tokens": 3000}, "changes": ["examples.max_length=8192"]}]
    return write_run(folder, records, run={"until": {"kind": "steps", "steps": 50}, "phases": later})


def hostile_run(folder: Path) -> Path:
    """Every place of the page that shows somebody's text holds text that tries to be more."""
    everywhere = {name: HOSTILE for name in HOSTILE} | {"nested": dict(zip(HOSTILE, reversed(HOSTILE), strict=True))}
    tokens = ["[CLS]", *HOSTILE, "[SEP]"]
    guesses = [[[text, 0.5], [HOSTILE[0], 0.25]] for text in reversed(HOSTILE)]
    records = [step(1, losses={"mlm": 1.0, **dict.fromkeys(HOSTILE, 1.0)}), evaluation(1, 9.0)]
    records += [sample(1, tokens, list(range(1, len(HOSTILE) + 1)), guesses)]
    records += [{"kind": "plan", "step": 1, "total_steps": HOSTILE[0], "reason": text} for text in HOSTILE]
    records += [{"kind": "checkpoint", "step": 1, "path": text} for text in HOSTILE]
    result = {"status": HOSTILE[0], "why": HOSTILE[1], "unigram_entropy": 6.5}
    splits = {text: {"documents": text, "tokens": 3} for text in HOSTILE}
    corpus = {"splits": splits, "sources": HOSTILE, "report": {"lengths": dict.fromkeys(HOSTILE, 2), **everywhere}}
    parts = {"run": everywhere, "versions": everywhere, "machine": everywhere, "model": everywhere}
    return write_run(folder, records, **parts, corpus=corpus, result=result)
