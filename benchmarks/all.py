"""Runs every benchmark and writes docs/benchmarks.md and docs/benchmarks.json: `make bench`, about 25 minutes on two cores.

    python -m benchmarks.all [--rounds 5] [--threads 2] [--only pretrain,embed] [--tiny]

Each is a command of its own, so that none leaves memory or threads behind for the next.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.text import REPOSITORY

DOCS = REPOSITORY / "docs"
TITLES = {
    "pretrain": "Pre-training",
    "finetune": "Fine-tuning",
    "embed": "Embedding",
    "attention": "Attention alone",
    "loader": "Loading",
}
NEEDS = {"embed": "sentence_transformers", "loader": "datasets"}  # packages of the peers, beside transformers
# What fits half an hour: fewer tokens a step than by default, and one step a turn.
FITTED = {"pretrain": ["--tokens", "2048", "--steps", "1"]}

INTRODUCTION = """# Benchmarks

Every number here was measured in one run on one machine, ours and today's tool in turns: each side in a process of its own
(attention alone: in one) with the same threads, and one step of each after the other, so that a machine that slows down does
so for both. Ratios are medians of the rounds' ratios. Tokens are real ones: padding never counts. A ratio means nothing
without its peer, so each table names it. Where a bar of the project is missed, the cell says so.

On a page of its own: [what fine-tuned models reach](benchmarks-quality.md), beside those of today's tools.
"""


def main() -> None:
    given = _options()
    names = given.only.split(",") if given.only else list(TITLES)
    start, sections, results = time.monotonic(), [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(f"--- {name}", flush=True)
            if importlib.util.find_spec(NEEDS.get(name, "torch")) is None:
                sections.append(f"## {TITLES[name]}\n\nNot measured: the package `{NEEDS[name]}` is not installed.")
                continue
            text, data = _run(name, given, Path(folder))
            sections.append(f"## {TITLES[name]}\n\n{text}")
            results[name] = data
    minutes = (time.monotonic() - start) / 60
    given.out.mkdir(parents=True, exist_ok=True)
    page = "\n\n".join([INTRODUCTION.strip(), _about(given, minutes), *sections]) + "\n"
    (given.out / "benchmarks.md").write_text(page, encoding="utf-8")
    (given.out / "benchmarks.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(f"{minutes:.1f} minutes; written: {given.out / 'benchmarks.md'}")


def _options() -> Any:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--only", help=f"names, with commas, of: {', '.join(TITLES)}")
    ask.add_argument("--tiny", action="store_true", help="only see that all run")
    ask.add_argument("--text", help="the text of all benchmarks")
    ask.add_argument("--cache", help="where tokenizers and tokens are kept")
    ask.add_argument("--out", type=Path, default=DOCS, help="folder of benchmarks.md and benchmarks.json")
    return ask.parse_args()


def _run(name: str, given: Any, folder: Path) -> tuple[str, Any]:
    """The benchmark's tables (what it prints after its last line of progress), and its JSON."""
    file = folder / f"{name}.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file)]
    command += ["--rounds", str(given.rounds), "--threads", str(given.threads)]
    command += [] if given.tiny else FITTED.get(name, [])
    command += ["--tiny"] if given.tiny else []
    for option in ("text", "cache"):
        value = getattr(given, option)
        command += [f"--{option}", value] if value else []
    lines = []
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode:
        sys.exit(f"{name} failed")
    first = next((i for i, line in enumerate(lines) if line.startswith(("|", "- **"))), 0)
    return "\n".join(lines[first:]), json.loads(file.read_text(encoding="utf-8"))


def _about(given: Any, minutes: float) -> str:
    about = tables.machine()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        f"Measured on {about['date']}: {about['name']}, {about['cores']} cores, {about['memory_gib']} GiB, "
        f"{given.threads} threads; Python {about['python']}, {versions}; {minutes:.0f} minutes in all.",
        "Again: `make bench` (needs the dev extra), or one of them: `python -m benchmarks.pretrain --rows bert-mini-8k-128`; "
        "each tells its options with `--help`. All numbers, round by round, are in `benchmarks.json`.",
        f"Pre-training ran with `{' '.join(FITTED['pretrain'])}`, by itself it takes larger steps: a peer's batch holds "
        "that many places, or its row's own number where that is less, or where memory is compared.",
    ]
    return "\n\n".join(lines)


if __name__ == "__main__":
    main()
