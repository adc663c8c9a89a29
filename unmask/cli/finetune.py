"""`unmask finetune`: a model folder and labelled files to a model folder that knows a task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.options import command

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.config import FineTuning
    from unmask.tasks.data import Unchanged
    from unmask.train.journal import View

TASKS = {
    "classify": "a text or a pair to a label, or several (--set task.multi_label=true)",
    "regress": "a text or a pair to a number",
    "tag": "each word to a tag (names, parts of speech)",
    "answer": "a question to a piece of its context",
    "contrast": "texts to vectors for search (bi-encoder)",
    "rank": "a query and a text to how well it answers (cross-encoder)",
}


def finetune(
    task: Annotated[str, typer.Argument(help="; ".join(f"{name}: {what}" for name, what in TASKS.items()))] = "",
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="Model folder to begin with: ours or Hugging Face's.", show_default=False),
    ] = "",
    train: Annotated[str, typer.Option("--train", "-t", help="Labelled file to learn from.", show_default=False)] = "",
    dev: Annotated[
        str, typer.Option("--dev", "-d", help="Labelled file that chooses the best checkpoint.", show_default=False)
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")] = Path("runs/finetune"),
    epochs: Annotated[float | None, typer.Option("--epochs", help="Passes over the data.", show_default="3")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="So many runs, for mean and deviation.")] = 1,
    search: Annotated[
        int, typer.Option("--search", min=0, help="So many trials with other learning rates, epochs, batches; 0: none.")
    ] = 0,
    search_minutes: Annotated[
        float, typer.Option("--search-minutes", min=0, help="As many trials as fit; 0: no end.")
    ] = 0.0,
    per_label: Annotated[
        int, typer.Option("--per-label", min=0, help="Learn from so many records of each label; 0: from all.")
    ] = 0,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="FIELD=COLUMN", help="Which column is what, e.g. text=review.", show_default=False
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, with its settings.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change any setting, e.g. optimizer.learning_rate=3e-5. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fine-tune an encoder on labelled data. Ctrl-C saves and leaves; --resume goes on.

    Example: unmask finetune classify --model runs/demo/run/model --train train.jsonl --dev dev.jsonl
    """
    from unmask.cli.console import Console

    columns = columns_of(map_ or [])
    with Console() as console:
        if resume:
            given = (task, model, train, dev, columns, set_, seeds > 1, search, search_minutes, per_label)
            _refuse_changes(any(given) or epochs is not None)
            _resume(console, out)
            return
        named = {"model": model, "train": train, "dev": dev, "epochs": epochs, "per_label": per_label}
        run = _settings(task, named, set_ or [])
        if search or search_minutes:
            _search(console, run, out, columns, search, search_minutes, seeds)
        elif seeds == 1:
            _finish(console, out, _one(console, run, out, columns))
        else:
            _several(console, run, out, columns, seeds)


def _search(
    console: Console, run: FineTuning, out: Path, columns: dict[str, str], trials: int, minutes: float, seeds: int
) -> None:
    from unmask.cli.search import search
    from unmask.errors import UnmaskError

    if seeds > 1:
        do = "search first, then give the best trial's settings and --seeds"
        raise UnmaskError("a search tries every setting with one seed", where="--seeds", do=do)
    search(console, run, out, columns, trials, minutes)


def _refuse_changes(changed: bool) -> None:
    if changed:
        from unmask.errors import UnmaskError

        raise UnmaskError(
            "a resumed run keeps the settings it began with",
            where="--resume",
            do="drop the other options, or begin a new run with --model RUN/model",
        )


def columns_of(given: list[str]) -> dict[str, str]:
    """FIELD=COLUMN as a table."""
    from unmask.errors import UnmaskError

    for word in given:
        if not all(word.partition("=")):
            raise UnmaskError(
                f"{word!r} names no column", where="--map", do="give it as FIELD=COLUMN, e.g. text=review"
            )
    return {name: column for name, _, column in (word.partition("=") for word in given)}


def _settings(task: str, given: Mapping[str, Any], changes: list[str]) -> FineTuning:
    from unmask import settings
    from unmask.config import FineTuning
    from unmask.errors import UnmaskError
    from unmask.tasks.export import model_folder

    if task not in TASKS:
        what = f"unknown task {task!r}" if task else "no task is given"
        raise UnmaskError(what, where="TASK", do=f"give one of {', '.join(TASKS)}")
    for name in ("model", "train"):
        if not given[name]:
            raise UnmaskError(f"no --{name} is given", do=f"give --{name}; `unmask finetune --help` has an example")
    chosen = {name: value for name, value in given.items() if value not in (None, "")}
    chosen["model"] = str(model_folder(Path(chosen["model"])))
    _require_own(task, changes)
    try:
        run = settings.parse(FineTuning, {**chosen, "task": {"kind": task}})
    except UnmaskError as error:
        option = error.what.partition(" ")[0]
        where = f"--{option.replace('_', '-')}" if option in chosen else error.where
        raise UnmaskError(error.what, where=where, do=error.do) from None
    run = settings.override(FineTuning, run, changes)
    if run.task.kind != task:
        raise UnmaskError(
            f"this would make {run.task.kind} of {task}", where="--set task", do=f"give {task}'s settings"
        )
    return run


def _require_own(task: str, changes: list[str]) -> None:
    """UnmaskError for a setting that other tasks have and this one has not: taken, it would change the task."""
    from dataclasses import fields
    from typing import get_args

    from unmask.config import Task
    from unmask.errors import UnmaskError

    having = {str(kind.kind): {field.name for field in fields(kind)} for kind in get_args(Task)}
    for change in changes:
        table, _, name = change.partition("=")[0].strip().partition(".")
        others = [kind for kind, names in having.items() if name in names]
        if table == "task" and others and task not in others:
            what = (
                f"the task {task} has no setting {name} ({', '.join(others)} {'has' if len(others) == 1 else 'have'})"
            )
            do = f"its settings are: {', '.join(sorted(having[task] - {'kind'}))}"
            raise UnmaskError(what, where=f"--set task.{name}", do=do)


def _one(
    console: Console, run: FineTuning, out: Path, columns: dict[str, str], watch: View | None = None
) -> Mapping[str, float]:
    from unmask.errors import UnmaskError
    from unmask.train.journal import read_run

    if read_run(out):
        raise UnmaskError("there is a run in this folder", where=str(out), do="give another --out, or --resume")
    if (out / "search.json").exists():
        raise UnmaskError("there is a search in this folder", where=str(out), do="give another --out")
    return _train(console, run, out, columns, watch)


def _train(
    console: Console, run: FineTuning, out: Path, columns: dict[str, str], watch: View | None = None
) -> Mapping[str, float]:
    """Begins a run or goes on with it; leaves where it was stopped. `watch` gets every record and may raise."""
    from unmask.tasks.run import finetune as train

    with console.training(str(out)) as view:

        def see(record: dict[str, Any]) -> None:
            view.record(record)
            if watch is not None:
                watch(record)

        tuned = train(run, out, columns=columns, view=see, progress=console)
    if not tuned.outcome.finished:
        console.say(f"Stopped and saved. Go on with: {command('finetune', '--resume', '--out', out)}")
        raise typer.Exit(tuned.outcome.exit_code)
    return tuned.metrics


def _resume(console: Console, out: Path) -> None:
    from unmask import settings
    from unmask.config import FineTuning
    from unmask.errors import UnmaskError
    from unmask.train.journal import read_run

    data = read_run(out)
    if "run" not in data:
        raise UnmaskError("there is no run in this folder", where=str(out), do="check the path")
    run = settings.parse(FineTuning, data["run"], where=str(out / "run.json"))
    _finish(console, out, _train(console, run, out, data.get("columns", {})))


def _several(console: Console, run: FineTuning, out: Path, columns: dict[str, str], seeds: int) -> None:
    """The same run from several seeds, each in a folder of its own, and what they have in common."""
    from dataclasses import replace

    from unmask.tasks.data import Unchanged

    require_files(run, "--seeds", "every seed")
    files = Unchanged(columns)
    runs = [(replace(run, seed=run.seed + number), out / f"seed{run.seed + number}") for number in range(seeds)]
    found = [again(console, each, folder, files) for each, folder in runs]
    names = [name for name in found[0] if all(math.isfinite(metrics.get(name, math.nan)) for metrics in found)]
    scores = {name: [metrics[name] for metrics in found] for name in names}
    rows: list[list[object]] = [
        [name, round(statistics.mean(values), 4), round(statistics.stdev(values), 4)] for name, values in scores.items()
    ]
    console.table(f"{seeds} seeds, dev set", rows, ["metric", "mean", "deviation"])
    console.say(f"\nModels: {out}/seed*/model")


def require_files(run: FineTuning, option: str, who: str) -> None:
    """UnmaskError where several runs would read what can be read once."""
    from unmask.errors import UnmaskError
    from unmask.labelled.rows import STDIN

    if STDIN in (run.train, run.dev):
        do = "write the records into a file and name that"
        raise UnmaskError(f"{who} reads the records, and standard input can be read once", where=option, do=do)


def again(
    console: Console, run: FineTuning, out: Path, files: Unchanged, watch: View | None = None
) -> Mapping[str, float]:
    """One of several runs; those that were there before a stop are taken as they are, or go on."""
    from unmask import settings
    from unmask.train.journal import read_run

    data = read_run(out)
    if data.get("run") != settings.plain(run):
        return _one(console, run, out, files.columns, watch)
    if data["result"]["status"] == "finished":
        files.require(run, out)
        found: dict[str, float] = data["result"]["metrics"]
        return found
    return _train(console, run, out, files.columns, watch)


def _finish(console: Console, out: Path, metrics: Mapping[str, float]) -> None:
    from unmask.train.journal import read_run

    if metrics:
        step = read_run(out)["result"]["best"]
        rows: list[list[object]] = [[name, round(value, 4)] for name, value in metrics.items()]
        console.table(f"Best checkpoint, step {step:,}, dev set", rows)
    console.say(f"\nModel: {out / 'model'}   Report: {out / 'report.html'}")
    vectors = (out / "model" / "modules.json").exists()
    words = ("embed", out / "model", "FILE", "--out", "vectors.npy") if vectors else ("predict", out / "model", "FILE")
    console.say(f"Next: {command(*words)}")
