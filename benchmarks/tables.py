"""Results as Markdown: measured numbers beside their bars, a mark where one is missed."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from unmask.train.machine import describe

PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "tokenizers", "numpy")


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def at_least(value: float | None, bar: float | None, unit: str = "×") -> str:
    """The value with its bar, in bold and with a mark where it is below."""
    return _against(value, bar, unit, "≥", missed=bool(bar) and value is not None and value < (bar or 0))


def at_most(value: float | None, bar: float | None, unit: str = "×") -> str:
    """The value with its bar, in bold and with a mark where it is above."""
    return _against(value, bar, unit, "≤", missed=bool(bar) and value is not None and value > (bar or 0))


def _against(value: float | None, bar: float | None, unit: str, sign: str, missed: bool) -> str:
    if value is None:
        return "–"
    shown = f"{100 * value:.0f} %" if unit == "%" else f"{value:.2f}{unit}"
    if not bar:
        return shown
    goal = f"{100 * bar:.0f} %" if unit == "%" else f"{bar:g}"
    return f"**{shown}** (bar {sign} {goal}, **missed**)" if missed else f"{shown} (bar {sign} {goal})"


def machine() -> dict[str, Any]:
    """What the numbers belong to."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    about = {k: v for k, v in describe(torch.device("cpu")).items() if k != "threads"}
    return {**about, "python": platform.python_version(), "versions": versions, "date": f"{datetime.now(UTC):%Y-%m-%d}"}


def arguments(doc: str | None, rounds: int = 5) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    ask = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=rounds, help="turns of each side; medians are over these")
    ask.add_argument("--threads", type=int, default=2, help="computing threads of every side")
    ask.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a busy machine, with --threads 1"
    )
    ask.add_argument("--text", help="a text file or python-docs (default: Wikipedia articles beside the repository)")
    ask.add_argument("--cache", type=Path, help="where tokenizers and tokens are kept")
    ask.add_argument("--tiny", action="store_true", help="only see that it runs: small sizes, the numbers mean nothing")
    ask.add_argument("--json", type=Path, help="write the results here as well")
    return ask


def write_json(path: Path | None, kind: str, results: Any) -> None:
    """Results with machine and options, for `all.py`."""
    if path is not None:
        words = [word for before, word in pairwise(["", *sys.argv[1:]]) if "--json" not in (before, word)]
        data = {"kind": kind, "options": " ".join(words), "machine": machine(), "results": results}
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def megabytes(size: float) -> str:
    return f"{size / 2**20:,.0f}"
