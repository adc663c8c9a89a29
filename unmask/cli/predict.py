"""`unmask predict` and `unmask evaluate`: a fine-tuned model on files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.finetune import columns_of
from unmask.cli.options import cuts_told

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.tasks.job import Evaluation, Features
    from unmask.tasks.saved import TaskModel

_MOST_LABELS = 50  # of a table: a terminal is no place for thousands
_WORST = 100  # answers that --errors writes, unless --worst says otherwise

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A fine-tuned model folder: ours or Hugging Face's.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", help="Which column is what, e.g. text=review.", show_default=False),
]
MaxLength = Annotated[
    int, typer.Option("--max-length", min=0, help="Tokens of the longest text.", show_default="as it was trained")
]


def predict(
    folder: Model,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Records to answer, labels not needed; - for JSON lines on standard input."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A .jsonl file; replaced if there.", show_default="to the screen")
    ] = None,
    map_: Map = None,
    max_length: MaxLength = 0,
) -> None:
    """Answer every record of a file: one JSON object a line, in the file's order.

    Example: unmask predict runs/finetune/model new.jsonl --out answers.jsonl
    """
    from unmask.cli.console import Console
    from unmask.files import write_file
    from unmask.labelled.records import counted

    require_other(out, source)
    with Console() as console:
        model, features = _prepare(folder, source, map_, max_length, console, asked=True)
        found = model.answer(features, progress=console)
        said = zip(features.examples, found.predictions, strict=True)
        rows = ({"record": example.place.record, **_said(prediction)} for example, prediction in said)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        if out is None:
            typer.echo(lines, nl=False)
        else:
            write_file(out, lines)
            console.say(f"{counted(len(found.predictions), 'answer')} in {out}")


def evaluate(
    folder: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="Labelled records.")],
    errors: Annotated[
        Path | None,
        typer.Option(
            "--errors", help="Write the worst answers here (.jsonl); tables say where errors are.", show_default=False
        ),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst", min=1, help="How many of them at most; right answers are left out.", show_default="100"
        ),
    ] = None,
    repair: Annotated[
        str,
        typer.Option(
            "--repair", help="Entities whose tags break the scheme: begin, drop, error.", show_default="as in training"
        ),
    ] = "",
    split: Annotated[str, typer.Option("--split", help="Of a BEIR folder: whose qrels.", show_default="test")] = "",
    rerank: Annotated[
        Path | None,
        typer.Option("--rerank", help="With a BEIR folder: a cross-encoder for the best 100 hits.", show_default=False),
    ] = None,
    map_: Map = None,
    max_length: MaxLength = 0,
) -> None:
    """Measure a fine-tuned model on labelled records, or a model of vectors on a BEIR folder, beside BM25.

    Example: unmask evaluate runs/finetune/model test.jsonl --errors worst.jsonl
    """
    from unmask.cli.console import Console
    from unmask.config import Contrast
    from unmask.errors import UnmaskError
    from unmask.files import write_file
    from unmask.labelled.collection import collection_named, is_collection
    from unmask.labelled.records import counted

    require_other(errors, source)
    with Console() as console:
        told = {"--errors": errors, "--worst": worst, "--repair": repair, "--map": map_, "--max-length": max_length}
        named = (source, split or "test") if is_collection(source) else None if split else collection_named(source)
        if named:
            _refuse(told, "is for files of records, not for a BEIR folder")
            _search(console, folder, *named, rerank)
            return
        _refuse({"--rerank": rerank, "--split": split}, "is for a BEIR folder, not for a file of records")
        _refuse({"--worst": worst and errors is None}, "says how many answers --errors writes, which is not given")
        model, features = _prepare(folder, source, map_, max_length, console, asked=False, repair=repair)
        if errors is not None and isinstance(model.job.task, Contrast):
            raise UnmaskError("vectors are not right or wrong one by one", where="--errors", do="leave it away")
        found = model.answer(features, progress=console)
        rows: list[list[object]] = [[name, round(value, 4)] for name, value in found.metrics.items()]
        console.table(f"{counted(len(features.examples), 'record')} of {source}", rows)
        if errors is not None:
            _break_down(console, model, features, found)
            write_file(errors, _errors(found, features, worst or _WORST))
            console.say(f"\nThe worst answers: {errors}")


def _refuse(options: Mapping[str, object], why: str) -> None:
    """UnmaskError for an option that would change nothing."""
    from unmask.errors import UnmaskError

    for name, value in options.items():
        if value:
            raise UnmaskError(f"{name} {why}", where=name, do="leave it away")


def _break_down(console: Console, model: TaskModel, features: Features, found: Evaluation) -> None:
    """Two tables that say where the errors are: by the length of the records, and label by label."""
    from unmask.tasks.breakdown import by_label, by_length

    lengths = by_length(model.job.task, features, found)
    rows = [[row["tokens"], row["records"], _figure(row["score"]), _figure(row["cost"])] for row in lengths]
    console.table("By length", rows, ["tokens", "records", next(iter(found.metrics), ""), "mean cost"])
    labels = by_label(model.job.task, found)
    if labels:
        names = ("label", "support", "precision", "recall", "f1")
        rows = [[_figure(row[name]) for name in names] for row in labels[:_MOST_LABELS]]
        left = len(labels) - len(rows)
        console.table(f"By label{f', without the {left:,} rarest' if left else ''}", rows, names)


def _figure(value: object) -> object:
    """As a table shows it; what is undefined is no number."""
    return round(value, 4) if isinstance(value, float) else "–" if value is None else value


def require_other(out: Path | None, source: str) -> None:
    """UnmaskError for a file to write that is the one to read, or is not what will be in it."""
    from unmask.errors import UnmaskError

    if out is None:
        return
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise UnmaskError("this would overwrite the records that are read", where=str(out), do="give another file")
    if out.suffix != ".jsonl":
        raise UnmaskError("JSON lines are written", where=str(out), do="give a name that ends in .jsonl")


def _search(console: Console, folder: Path, source: str, split: str, rerank: Path | None) -> None:
    """Both stages of a search on a collection: by words, by vectors, and each reranked."""
    from unmask.inference.loaded import load
    from unmask.labelled.collection import read_collection
    from unmask.labelled.records import counted
    from unmask.tasks.export import model_folder
    from unmask.tasks.rank import judge
    from unmask.tasks.retrieval import METRICS, evaluate, folder_embedder
    from unmask.tasks.saved import TaskModel

    judging = None
    if rerank is not None:
        second = TaskModel.load(model_folder(rerank))
        _require_ranker(second, rerank)
        judging = judge(second.encoder, second.objective, second.texts)
    embed = folder_embedder(load(model_folder(folder)), progress=console)
    collection = read_collection(source, split)
    for line in collection.warnings:
        console.warn(line)
    with cuts_told(console):
        found = evaluate(collection, embed=embed, judge=judging, progress=console)
    rows: list[list[object]] = [[name, *(round(scores[m], 4) for m in METRICS)] for name, scores in found.items()]
    queries = counted(len(collection.queries), "query", "queries")
    console.table(f"{queries} of {source}", rows, ["", *METRICS])


def _require_ranker(model: TaskModel, folder: Path) -> None:
    from unmask.config import Ranking, Regression
    from unmask.errors import UnmaskError
    from unmask.tasks.jobs import ClassifyJob

    pairs = isinstance(model.job, ClassifyJob) and model.job.texts != 1  # 0: another library's, which does not say
    if not (isinstance(model.job.task, Ranking) or (isinstance(model.job.task, Regression) and pairs)):
        do = "train one with `unmask finetune rank`"
        raise UnmaskError("this is not a cross-encoder: it gives no score to a pair", where=str(folder), do=do)


def _prepare(
    folder: Path,
    source: str,
    map_: list[str] | None,
    max_length: int,
    console: Console,
    *,
    asked: bool,
    repair: str = "",
) -> tuple[TaskModel, Features]:
    from unmask import settings
    from unmask.config import Contrast
    from unmask.config.tasks import Tagging
    from unmask.errors import UnmaskError
    from unmask.tasks.export import model_folder
    from unmask.tasks.saved import TaskModel

    how = settings.parse(Tagging, {"repair": repair}, where="--repair").repair if repair else None
    folder = model_folder(folder)
    model = TaskModel.load(folder, columns=columns_of(map_ or []), max_length=max_length, repair=how)
    if asked and isinstance(model.job.task, Contrast):
        raise UnmaskError("this model makes vectors", where=str(folder), do="use `unmask embed`")
    read = model.job.read(source, asked=asked)
    if not asked:
        model.job.require(read.examples, source)
    features = model.features(read.examples)
    for line in read.understood:
        console.note(line)
    for line in (*read.warnings, *features.notes):
        console.warn(line)
    return model, features


def _plain(value: Any, number: Callable[[float], float] = float) -> Any:
    """Objects with names for whatever has some, and every fraction by `number`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(part, number) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, number) for part in value]
    return number(value) if isinstance(value, float) else value


def _said(prediction: Any) -> Any:
    """An answer as it is written, with as many digits as the network's numbers can bear."""
    return _plain(prediction, lambda value: float(f"{value:.6g}"))


def _errors(found: Evaluation, features: Features, worst: int) -> str:
    """The records whose truth the model finds least likely, the worst first, with what it says of them."""
    from unmask.tasks.errors import cost

    costs = [cost(p, e) for p, e in zip(found.predictions, features.examples, strict=True)]
    order = sorted(range(len(costs)), key=lambda at: -costs[at])
    rows = (
        {"cost": round(costs[at], 6), "record": _plain(features.examples[at]), "said": _said(found.predictions[at])}
        for at in order[:worst]
        if costs[at] > 0
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
