"""`unmask mine`: hard negatives for training, found among documents with a model's own vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.finetune import columns_of
from unmask.cli.options import command, cuts_told
from unmask.cli.predict import Map, require_other

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.labelled.records import Collection, RankedExample


def mine(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder that makes vectors, as for `embed`.")],
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Queries with texts that answer them, as for training; or a BEIR folder."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .jsonl file; replaced if there.", show_default=False)],
    corpus: Annotated[
        str,
        typer.Option(
            "--corpus",
            help="More documents: a file with a column text, or a BEIR folder.",
            show_default="FILE's own texts",
        ),
    ] = "",
    negatives: Annotated[int, typer.Option("--negatives", min=1, help="At most so many for each query.")] = 5,
    skip: Annotated[
        int, typer.Option("--skip", min=0, help="Leave out the first hits, which may be answers nobody marked.")
    ] = 0,
    depth: Annotated[int, typer.Option("--depth", min=1, help="Choose among so many hits.")] = 100,
    margin: Annotated[
        float, typer.Option("--margin", help="How much less alike (cosine) than every known answer they must be.")
    ] = 0.0,
    split: Annotated[str, typer.Option("--split", help="Of a BEIR folder as FILE: whose qrels.")] = "train",
    map_: Map = None,
) -> None:
    """Find hard negatives: texts that a model takes for answers to a query and that are not known to be.

    Example: unmask mine runs/finetune/model pairs.jsonl --corpus documents.jsonl --out mined.jsonl
    """
    from unmask.cli.console import Console
    from unmask.errors import UnmaskError
    from unmask.files import write_file
    from unmask.inference.loaded import load
    from unmask.tasks.contrast import Mining
    from unmask.tasks.contrast import mine as find
    from unmask.tasks.export import model_folder
    from unmask.tasks.retrieval import folder_embedder

    if skip >= depth:
        raise UnmaskError(f"all {depth:,} hits are left out", where="--skip", do="give a larger --depth, or skip fewer")
    for path in (source, corpus):
        require_other(out, path)
    with Console() as console, cuts_told(console):
        folder = model_folder(folder)
        embed = folder_embedder(load(folder), progress=console)
        collection = _collection(console, source, corpus, split, columns_of(map_ or []))
        if not any(grade > 0 for judged in collection.relevant.values() for grade in judged.values()):
            do = "judge one above 0, or name another --split"
            raise UnmaskError("no query has a text that answers it", where=source, do=do)
        chosen = Mining(count=negatives, skip=skip, depth=depth, margin=margin)
        found = find(collection, embed, chosen, progress=console)
        write_file(out, "".join(_line(record) for record in found))
        _show(console, out, found, folder, len(collection.documents))


def _collection(console: Console, source: str, corpus: str, split: str, columns: dict[str, str]) -> Collection:
    """Queries, what answers them, and every document to search; says what was understood."""
    from unmask.labelled.collection import is_collection, read_collection, read_documents
    from unmask.labelled.ranked import read_ranked
    from unmask.labelled.records import Read
    from unmask.tasks.contrast import collection_of, with_documents

    read: Collection | Read[RankedExample]
    if is_collection(source):
        read = collection = read_collection(source, split)
        given = len(collection.documents)
    else:
        read = read_ranked(source, columns=columns)
        collection = collection_of(read.examples)
        given = sum(len(example.positives) + len(example.negatives) for example in read.examples)
        if any(example.scores for example in read.examples):
            console.warn("a teacher's scores are not kept: the texts that are found have none")
    parts: list[Collection | Read[RankedExample]] = [read]
    if corpus:
        more = read_documents(corpus)
        collection = with_documents(collection, more.documents.values())
        parts.append(more)
        given += len(more.documents)
    for part in parts:
        for line in part.understood:
            console.note(line)
        for line in part.warnings:
            console.warn(line)
    if (different := len(collection.documents)) < given:
        console.note(
            f"{given:,} documents, {different:,} of them different: equal ones are searched once, empty ones never"
        )
    return collection


def _line(record: RankedExample) -> str:
    """As `unmask finetune` reads it."""
    row = {"query": record.query, "pos": list(record.positives), "neg": list(record.negatives)}
    return json.dumps(row, ensure_ascii=False) + "\n"


def _show(console: Console, out: Path, found: list[RankedExample], folder: Path, documents: int) -> None:
    count = sum(len(record.negatives) for record in found)
    rows: list[list[object]] = [["queries", len(found)], ["documents searched", documents], ["negatives", count]]
    console.table(f"Hard negatives in {out}", rows)
    if without := sum(not record.negatives for record in found):
        console.warn(
            f"queries without a negative: {without:,}; a larger --depth, a smaller --margin or more documents may find some"
        )
    console.say(f"Next: {command('finetune', 'contrast', '--model', folder, '--train', out)}")
