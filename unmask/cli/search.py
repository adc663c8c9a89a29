"""`unmask finetune --search`: the same run with other settings, trial after trial, and which of them did best."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unmask.cli.finetune import again, require_files
from unmask.cli.options import command

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.config import FineTuning
    from unmask.tasks.data import Unchanged
    from unmask.train.report.data import History

ENDLESS = 1000  # trials at most where only minutes are given
ENDS = ("finished", "given up", "diverged")


@dataclass(frozen=True)
class _Trial:
    """One trial as it ended: finished, given up or diverged; only a finished one has metrics. `scores`: on the dev set,
    evaluation by evaluation. `seconds`: all it took, with reading, evaluating and saving."""

    folder: Path
    run: FineTuning
    status: str
    metrics: Mapping[str, float]
    scores: list[float]
    seconds: float

    @property
    def reached(self) -> float | None:
        """The best score that training saw, where there is one."""
        return max((score for score in self.scores[1:] if score >= -1), default=None)


def search(
    console: Console, run: FineTuning, out: Path, columns: dict[str, str], trials: int = 0, minutes: float = 0.0
) -> None:
    """So many trials, or as many as fit into so many minutes, each in a folder of its own. Goes on where it was stopped: a
    trial that is over is taken as it is, whatever the minutes."""
    from unmask.tasks.data import Unchanged
    from unmask.tasks.search import fits, trial

    _require_place(run, out)
    files = Unchanged(columns)
    found: list[_Trial] = []
    for number in range(trials or ENDLESS):
        chosen, folder = trial(run, number), out / f"trial{number:02d}"
        one = _ended(chosen, folder)
        if one is not None:
            files.require(chosen, folder)
        else:
            if not fits([(each.seconds, each.run.epochs) for each in found], chosen.epochs, minutes):
                break
            one = _try(console, chosen, folder, files, [each.scores for each in found])
        found.append(one)
        _write(out, found)
    _show(console, out, found)


def _require_place(run: FineTuning, out: Path) -> None:
    from unmask.errors import UnmaskError
    from unmask.train.journal import read_run

    if not run.dev:
        raise UnmaskError(
            "a search needs records to choose by", where="--search", do="give --dev, a labelled file of other records"
        )
    require_files(run, "--search", "every trial")
    if read_run(out):
        raise UnmaskError("there is a run in this folder", where=str(out), do="give the search another --out")


def _ended(run: FineTuning, folder: Path) -> _Trial | None:
    """The trial in a folder, if it is this one and over."""
    from unmask.train.journal import read_run

    if not _is_in(run, folder):
        return None
    data, history = read_run(folder), _history(folder)
    if data["result"]["status"] not in ENDS:
        return None
    result = data["result"]
    seconds = result.get("seconds", _seconds(history))  # a kill may have come before they were written
    return _Trial(folder, run, result["status"], result["metrics"], _dev_scores(history), seconds)


def _try(console: Console, run: FineTuning, folder: Path, files: Unchanged, others: list[list[float]]) -> _Trial:
    """One trial, or the rest of it. One that diverges or falls behind has lost, which is no reason to stop the search."""
    from unmask.tasks.search import Unpromising
    from unmask.train.step import Diverged

    began = time.monotonic() - _seconds(_history(folder))
    lost: dict[str, Any] = {}
    try:
        if _is_in(run, folder):
            _compare(run, folder, others)  # the search may have been stopped before this was written down
        again(console, run, folder, files, lambda record: _watch(record, run, folder, others))
    except Unpromising as error:
        lost = {"status": "given up", "why": error.what, "metrics": {}}
        console.note(f"{folder.name} is given up: {error.what}")
    except Diverged as error:
        lost = {"status": "diverged", "why": error.what, "metrics": {}}
        console.warn(f"{folder.name} has diverged: {error.what}")
    except typer.Exit:
        console.say("Or go on with the whole search: give its command again.")
        raise
    _note(folder, lost | {"seconds": round(time.monotonic() - began, 1)})
    ended = _ended(run, folder)
    assert ended is not None
    return ended


def _note(folder: Path, more: Mapping[str, Any]) -> None:
    """How the trial ended, in its own record and report, which said that it failed."""
    from unmask.train.journal import read_run, update_run
    from unmask.train.report.page import write_report

    update_run(folder, result={**read_run(folder)["result"], **more})
    write_report(folder)


def _is_in(run: FineTuning, folder: Path) -> bool:
    from unmask import settings
    from unmask.train.journal import read_run

    return bool(read_run(folder).get("run") == settings.plain(run))


def _watch(record: Mapping[str, Any], run: FineTuning, folder: Path, others: list[list[float]]) -> None:
    if record["kind"] == "evaluation":
        _compare(run, folder, others)


def _compare(run: FineTuning, folder: Path, others: list[list[float]]) -> None:
    """Raises Unpromising for a trial that falls behind."""
    from unmask.tasks.search import Unpromising, unpromising

    history = _history(folder)
    evaluations = min(run.keeping.evaluations, int(history.last_step.get("total_steps", 0)))  # one a step at most
    if unpromising(_dev_scores(history), others, evaluations):
        raise Unpromising("behind the median of the trials before it")


def _history(folder: Path) -> History:
    from unmask.train.report.data import read_history

    return read_history(folder / "metrics.jsonl")


def _dev_scores(history: History) -> list[float]:
    return history.evaluations.curve("score").mean.tolist()


def _seconds(history: History) -> float:
    return history.last_step.get("seconds", 0.0)


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
    """search.json: every trial so far, with all its metrics; and a page that shows them."""
    from unmask.files import write_file
    from unmask.tasks.search import best
    from unmask.train.report.trials import write_trials

    metric, scores = _scores(found)
    rows = [
        _row(one, score) | {"reached": one.reached, "metrics": dict(one.metrics)}
        for one, score in zip(found, scores, strict=True)
    ]
    scored = any(map(math.isfinite, scores))
    data = {"metric": metric, "best": found[best(scores)].folder.name if scored else None, "trials": rows}
    write_file(out / "search.json", json.dumps(data, indent=1) + "\n")
    write_trials(out, data)


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
    console.say(f"\nBest: {winner / 'model'}   All trials: {out / 'search.json'}   Report: {out / 'report.html'}")
    console.say("Its score was chosen as the highest of many: measure it on records that the search did not see.")
    console.say(f"Next: {command('evaluate', winner / 'model', 'TEST_FILE')}")
