"""Every preset, shrunk to toy size, pre-trained on real text: does each recipe learn?

For each family a tokenizer of its own kind and a corpus are made from the same text; each preset then runs with its own
recipe (objectives, examples, optimizer, schedule) and an encoder of 64 numbers and 3 layers that keeps what makes the family
what it is. One picture shows all loss curves; a table tells the first and last held-out losses.

    python benchmarks/all_families.py [TEXT ...] [--steps 300] [--only NAME ...] [--out runs/families] [--segmenter jieba]

TEXT is whatever `unmask corpus build` reads; without it, Python's own documentation. A run that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from unmask import presets, recipes, road
from unmask.config import BatchSize, Keeping, Machine, RunConfig, Steps

LIKE = {  # which tokenizer a family's models were published with
    "albert": "albert", "camembert": "xlm-roberta", "deberta_base": "deberta", "deberta_large": "deberta",
    "deberta": "deberta-v3", "mdeberta": "deberta-v3", "electra": "electra", "ettin": "modernbert",
    "gpt2": "gpt2", "modernbert": "modernbert", "roberta": "roberta", "t5": "t5",
}  # fmt: skip
WIDE, HIGH, COLUMNS, LEFT, TOP = 168, 104, 6, 34, 22
COLOURS = {"mlm": "#3366cc", "rtd": "#cc5500", "nsp": "#999999", "sop": "#999999", "sbo": "#22aa77",
           "causal": "#3366cc", "infill": "#3366cc"}  # fmt: skip


def main() -> None:
    """Runs what is asked for and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*", default=["python-docs"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("runs/families"))
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--segmenter", default="")
    asked = parser.parse_args()
    names = [name for name in presets.names() if not asked.only or name in asked.only]
    for number, name in enumerate(names):
        if not (asked.out / name / "model").exists():
            corpus = _corpus(_like(name), asked.text, asked.out, asked.vocab_size, asked.segmenter)
            began = time.monotonic()
            _train(name, corpus, asked.out / name, asked.steps)
            print(f"{number + 1}/{len(names)} {name}: {time.monotonic() - began:.0f} s", flush=True)
    there = [name for name in names if (asked.out / name / "metrics.jsonl").exists()]
    (asked.out / "families.svg").write_text(_picture(there, asked.out), encoding="utf-8")
    print(_table(there, asked.out))
    print(f"picture: {asked.out / 'families.svg'}")


def _like(name: str) -> str:
    return next((like for begin, like in LIKE.items() if name.startswith(begin)), "bert")


def _corpus(like: str, text: Sequence[str], out: Path, vocab_size: int, segmenter: str) -> Path:
    """A corpus of `text` by a tokenizer of this kind; made once."""
    tokenizer, corpus = out / f"tokenizer-{like}", out / f"corpus-{like}"
    if not tokenizer.exists():
        _unmask("tokenizer", "train", *text, "--like", like, "--vocab-size", str(vocab_size), "--out", str(tokenizer))
    if not corpus.exists():
        words = ["--segmenter", segmenter] if segmenter else []
        _unmask("corpus", "build", *text, "--tokenizer", str(tokenizer), "--out", str(corpus), *words)
    return corpus


def _unmask(*words: str) -> None:
    subprocess.run([str(Path(sys.executable).with_name("unmask")), *words], check=True, stdout=subprocess.DEVNULL)


def _train(name: str, corpus: Path, folder: Path, steps: int) -> None:
    run = recipes.shrunk(recipes.recipe(preset=name))
    run = replace(
        run,
        corpus=str(corpus),
        until=Steps(steps=steps),
        phases=(),
        batch=BatchSize(tokens=2048),
        keeping=Keeping(evaluations=6, evaluation_tokens=16_384, keep_last=1, keep_best=False),
        machine=Machine(workers=0),
    )
    if (folder / "run.json").exists():  # it was interrupted
        road.resume(folder, view=lambda record: None)
    else:
        road.pretrain(_learnable(run), folder, view=lambda record: None)


def _learnable(run: RunConfig) -> RunConfig:
    """A few hundred steps need a higher rate than a published run's start."""
    return replace(run, optimizer=replace(run.optimizer, learning_rate=max(run.optimizer.learning_rate, 2e-3)))


# --- what came of it -------------------------------------------------------------------------------------------------
def _records(folder: Path, kind: str) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for line in lines if (record := json.loads(line)).get("kind") == kind]


def _table(names: Sequence[str], out: Path) -> str:
    rows = [f"{'preset':20} {'loss':8} {'first':>8} {'last':>8}   unigram entropy"]
    for name in names:
        found = _records(out / name, "evaluation")
        entropy = json.loads((out / name / "run.json").read_text(encoding="utf-8"))["result"]["unigram_entropy"]
        for loss in found[-1]["losses"]:
            first, last = found[0]["losses"][loss], found[-1]["losses"][loss]
            known = f"{entropy:.3f}" if loss in ("mlm", "causal", "sbo") else ""
            rows.append(f"{name:20} {loss:8} {first:8.3f} {last:8.3f}   {known}")
    return "\n".join(rows)


def _picture(names: Sequence[str], out: Path) -> str:
    """Small panels, one a preset, all on the same axes: losses over steps, each as a share of where it began."""
    rows = math.ceil(len(names) / COLUMNS)
    panels = "".join(
        f'<g transform="translate({(i % COLUMNS) * (WIDE + 20) + LEFT},{i // COLUMNS * (HIGH + 44) + TOP + 30})">'
        f"{_panel(name, out)}</g>"
        for i, name in enumerate(names)
    )
    legend = "".join(
        f'<rect x="{LEFT + 140 * i}" y="8" width="12" height="3" fill="{colour}"/>'
        f'<text x="{LEFT + 16 + 140 * i}" y="13">{escape(name)}</text>'
        for i, (name, colour) in enumerate({"MLM, causal, infill": "#3366cc", "RTD": "#cc5500", "SBO": "#22aa77",
                                            "NSP, SOP": "#999999"}.items())
    )  # fmt: skip
    size = f'width="{COLUMNS * (WIDE + 20) + LEFT}" height="{rows * (HIGH + 44) + TOP + 30}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{legend}{panels}</svg>\n'
    )


def _panel(name: str, out: Path) -> str:
    steps = _records(out / name, "step")
    last = steps[-1]["step"]
    steps = steps[:: max(1, len(steps) // 80)]
    lines = []
    for loss in steps[0]["losses"]:
        begin = steps[0]["losses"][loss]
        shares = [(r["step"] / last * WIDE, HIGH * (1 - min(r["losses"][loss] / begin, 1.2) / 1.2)) for r in steps]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shares)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[loss]}" stroke-width="1.2"/>')
    level = HIGH * (1 - 1 / 1.2)
    return (
        f'<text y="-6" font-weight="bold">{escape(name)}</text><rect width="{WIDE}" height="{HIGH}" fill="none" stroke="#ccc"/>'
        f'<line x2="{WIDE}" y1="{level}" y2="{level}" stroke="#ccc" stroke-dasharray="3 3"/>'
        f'<text x="-4" y="{level + 4}" text-anchor="end">1</text><text x="-4" y="{HIGH}" text-anchor="end">0</text>'
        f'<text x="{WIDE}" y="{HIGH + 13}" text-anchor="end">{last} steps</text>{"".join(lines)}'
    )


if __name__ == "__main__":
    main()
