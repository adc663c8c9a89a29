"""`unmask finetune --search`: the same run with other settings, trial after trial, and which of them did best."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.finetune import again
from unmask.cli.options import command

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.config import FineTuning

ENDLESS = 1000  # trials at most where only minutes are given


@dataclass(frozen=True)
class _Trial:
    """One trial as it ended; only a finished one has metrics. `scores`: on the dev set, evaluation by evaluation."""

    folder: Path
    run: FineTuning
    status: str
    metrics: Mapping[str, float]
    scores: list[float]
    seconds: float


def search(
    console: Console, run: FineTuning, out: Path, columns: dict[str, str], trials: int = 0, minutes: float = 0.0
) -> None:
    """So many trials, or as many as fit into so many minutes, each in a folder of its own. Goes on where it was stopped."""
    from unmask.errors import UnmaskError
    from unmask.tasks.search import fits, trial

    if not run.dev:
        raise UnmaskError(
            "a search needs records to choose by", where="--search", do="give --dev, a labelled file of other records"
        )
    found: list[_Trial] = []
    for number in range(trials or ENDLESS):
        if not fits([one.seconds for one in found], minutes):
            break
        others = [one.scores for one in found]
        found.append(_try(console, trial(run, number), out / f"trial{number:02d}", columns, others))
        _write(out, found)
    _show(console, out, found)


def _try(console: Console, run: FineTuning, folder: Path, columns: dict[str, str], others: list[list[float]]) -> _Trial:
    """One trial. One that diverges or falls behind has lost, which is no reason to stop the search."""
    from unmask.tasks.search import Unpromising, unpromising
    from unmask.train.step import Diverged

    def watch(record: Mapping[str, Any]) -> None:
        if record["kind"] == "evaluation" and unpromising(_history(folder)[0], others, run.keeping.evaluations):
            raise Unpromising("behind the median of the trials before it")

    status, metrics = "finished", dict[str, float]()
    try:
        watch({"kind": "evaluation"})  # was it given up already, before the search was stopped?
        metrics = dict(again(console, run, folder, columns, watch))
    except Unpromising as error:
        status = "given up"
        console.note(f"{folder.name} is given up: {error.what}")
    except Diverged as error:
        status = "diverged"
        console.warn(f"{folder.name} is given up: {error.what}")
    return _Trial(folder, run, status, metrics, *_history(folder))


def _history(folder: Path) -> tuple[list[float], float]:
    """Scores and seconds of a run, from what it wrote down."""
    from unmask.train.report.data import read_history

    history = read_history(folder / "metrics.jsonl")
    return history.evaluations.curve("score").mean.tolist(), history.last_step.get("seconds", 0.0)


def _scores(found: list[_Trial]) -> tuple[str, list[float]]:
    from unmask.tasks.search import primary

    metric = primary([one.metrics for one in found])
    return metric, [one.metrics.get(metric, math.nan) for one in found]


def _row(one: _Trial, score: float) -> dict[str, Any]:
    return {
        "trial": one.folder.name,
        "learning_rate": one.run.optimizer.learning_rate,
        "epochs": one.run.epochs,
        "examples": one.run.examples,
        "score": score if math.isfinite(score) else None,
        "seconds": round(one.seconds, 1),
        "status": one.status,
    }


def _write(out: Path, found: list[_Trial]) -> None:
    """search.json: every trial so far, with all its metrics."""
    from unmask.files import write_file
    from unmask.tasks.search import best

    metric, scores = _scores(found)
    rows = [
        _row(one, score) | {"metrics": {name: value for name, value in one.metrics.items() if math.isfinite(value)}}
        for one, score in zip(found, scores, strict=True)
    ]
    data = {"metric": metric, "best": found[best(scores)].folder.name, "trials": rows}
    write_file(out / "search.json", json.dumps(data, indent=1) + "\n")


def _show(console: Console, out: Path, found: list[_Trial]) -> None:
    from unmask.errors import UnmaskError
    from unmask.tasks.search import best

    metric, scores = _scores(found)
    if not any(map(math.isfinite, scores)):
        do = "lower optimizer.learning_rate, and look at the dev file"
        raise UnmaskError("no trial has a score: each diverged, or its metric is undefined", where=str(out), do=do)
    order = sorted(range(len(found)), key=lambda at: (math.isnan(scores[at]), -scores[at], at))
    rows = [_row(found[at], round(scores[at], 4)) for at in order]
    cells: list[list[object]] = [["" if value is None else value for value in row.values()] for row in rows]
    console.table(
        f"{len(found)} trials, dev set, the best first", cells, [*list(rows[0])[:4], metric, "seconds", "status"]
    )
    winner = found[best(scores)].folder
    console.say(f"\nBest: {winner / 'model'}   All trials: {out / 'search.json'}")
    console.say("Its score was chosen as the highest of many: measure it on records that the search did not see.")
    console.say(f"Next: {command('evaluate', winner / 'model', 'TEST_FILE')}")
