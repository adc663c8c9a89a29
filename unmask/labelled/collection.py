"""Retrieval test sets: a BEIR folder of documents, queries and judgements becomes one value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.labelled.columns import find_column, no_column, spoken, text_in, text_value
from unmask.labelled.records import Collection, Place, RankedExample, Read
from unmask.labelled.rows import Doubts, Row, Strict, Table, form_of, read_table, text_lines, text_of_file
from unmask.text.documents import DamagedInputError

TABLES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
TEXTS = ("text", "document", "passage", "contents", "content", "body")
JUDGEMENTS = (".tsv", ".txt", ".trec", ".qrels", ".tsv.gz", ".txt.gz", ".tsv.zst")


def is_collection(source: str) -> bool:
    """Whether it is a folder with documents to search."""
    return any((Path(source) / f"corpus{ending}").is_file() for ending in TABLES)


def read_collection(folder: str, split: str) -> Collection:
    """corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv of a folder; only the queries that are judged in the split.

    Judgements are BEIR's three columns, with a header, or TREC's four (query, iteration, document, relevance) without one.
    Those that name documents or queries that are not there are left out and counted.
    """
    doubts = Doubts()
    corpus, asked = read_table(_file(folder, "corpus", TABLES)), read_table(_file(folder, "queries", TABLES))
    documents, titles = _documents(corpus, doubts)
    texts = {_id(row): text_in(row.values.get("text"), "text", row) for row in _unique(asked)}
    source = _judgements(folder, split)
    relevant: dict[str, dict[str, int]] = {}
    for place, query, document, grade in _read_judgements(source):
        if query not in texts:
            doubts.add("judgements left out whose query is not among the queries", f"{place}, query {query!r}")
        elif document not in documents:
            doubts.add("judgements left out whose document is not in the corpus", f"{place}, document {document!r}")
        elif relevant.setdefault(query, {}).setdefault(document, grade) != grade:
            what = f"document {document!r} is judged twice for query {query!r}, and not alike"
            raise UnmaskError(what, where=str(place), do="keep one of the two judgements")
    if not relevant:
        raise UnmaskError(
            "no judgement is about a query and a document that are there", where=source, do="check the ids"
        )
    queries = {query: texts[query] for query in relevant}
    pairs = sum(map(len, relevant.values()))
    said = f"{source}: {pairs:,} judgements of {len(queries):,} queries over {len(documents):,} documents"
    warnings = (*corpus.warnings, *asked.warnings, *doubts.warnings)
    return Collection(documents, queries, relevant, titles, source, (said,), warnings)


def collection_named(source: str) -> tuple[str, str] | None:
    """Folder and split of a collection: FOLDER/SPLIT, or FOLDER where it has one split only; None for what is none.

    UnmaskError where the folder has several.
    """
    path = Path(source)
    if not is_collection(source):
        return (str(path.parent), path.name) if not path.exists() and is_collection(str(path.parent)) else None
    found = (path / "qrels").iterdir() if (path / "qrels").is_dir() else ()
    splits = sorted({file.name.partition(".")[0] for file in found if file.name.endswith(JUDGEMENTS)})
    if len(splits) == 1:
        return source, splits[0]
    do = f"name one, e.g. {path / splits[0]}" if splits else "put judgements into qrels/train.tsv"
    raise UnmaskError(f"the folder has {len(splits)} splits of judgements: {', '.join(splits)}", where=source, do=do)


def read_documents(source: str) -> Collection:
    """Documents alone, without queries: those of a BEIR folder, or the records of a file, which are numbered from 1.

    A file has a column `text` (or document, passage, contents, content, body) and may have a `title`; .txt: a line each.
    """
    doubts = Doubts()
    if is_collection(source):
        table = read_table(_file(source, "corpus", TABLES))
        documents, titles = _documents(table, doubts)
        return Collection(documents, {}, {}, titles, source, table.understood, (*table.warnings, *doubts.warnings))
    table = read_table(source)
    column = find_column(table, "text", TEXTS, {})
    if column is None:
        raise no_column(table, "none of the columns is known to hold the text", "text")
    documents = {}
    for row in table.rows:
        title = text_in(row.values.get("title") or "", "title", row)
        documents[str(row.place.record)] = f"{title} {text_value(row, column)}".strip()
    return Collection(documents, {}, {}, {}, source, table.understood, table.warnings)


def ranked_from_collection(collection: Collection) -> Read[RankedExample]:
    """Each judged query with its relevant documents (judged above 0), and those judged 0 as negatives, for training."""
    doubts, examples = Doubts(), []
    for record, (query, judged) in enumerate(collection.relevant.items(), 1):
        place = Place(collection.source, 0, record)
        positives = tuple(collection.documents[document] for document, grade in judged.items() if grade > 0)
        negatives = tuple(collection.documents[document] for document, grade in judged.items() if grade <= 0)
        if positives:
            examples.append(RankedExample(collection.queries[query], positives, negatives, place))
        else:
            doubts.add("queries left out without a relevant document", f"{place}, query {query!r}")
    if not examples:
        raise UnmaskError("no query has a relevant document", where=collection.source, do="judge one above 0")
    said = f"{len(examples):,} queries, each with its relevant documents"
    return Read(examples, (*collection.understood, said), (*collection.warnings, *doubts.warnings))


def _file(folder: str, name: str, endings: tuple[str, ...]) -> str:
    """The one file of a folder with this name and a known ending."""
    for ending in endings:
        if (path := Path(folder) / f"{name}{ending}").is_file():
            return str(path)
    do = f"a BEIR folder has corpus.jsonl, queries.jsonl and qrels/; this one has {_listed(Path(folder))}"
    raise UnmaskError(f"no {name}{endings[0]} (nor {', '.join(endings[1:])})", where=folder, do=do)


def _judgements(folder: str, split: str) -> str:
    for ending in JUDGEMENTS:
        if (path := Path(folder) / "qrels" / f"{split}{ending}").is_file():
            return str(path)
    do = f"the splits there are: {_listed(Path(folder) / 'qrels')}"
    raise UnmaskError(f"no qrels/{split}{JUDGEMENTS[0]}", where=folder, do=do)


def _listed(folder: Path) -> str:
    return ", ".join(sorted(os.listdir(folder))) if folder.is_dir() else "nothing: there is no such folder"


def _documents(table: Table, doubts: Doubts) -> tuple[dict[str, str], dict[str, str]]:
    documents, titles = {}, {}
    for row in _unique(table):
        key, title = _id(row), row.values.get("title") or ""
        text = text_in(row.values.get("text"), "text", row)
        documents[key] = f"{text_in(title, 'title', row)} {text}".strip()
        if title:
            titles[key] = title
        if not documents[key]:
            doubts.add("empty documents", row.place)
    return documents, titles


def _unique(table: Table) -> Iterator[Row]:
    """The rows, whose ids must differ."""
    seen: dict[str, Place] = {}
    for row in table.rows:
        if (key := _id(row)) in seen:
            what = f"the id {key!r} is there twice, first at {seen[key]}"
            raise UnmaskError(what, where=str(row.place), do="give every record an id of its own")
        seen[key] = row.place
        yield row


def _id(row: Row) -> str:
    value = row.values.get("_id", row.values.get("id"))
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        do = "give every record an _id: a string or a whole number"
        raise UnmaskError(f"the _id is {spoken(value) if value != '' else 'empty'}", where=str(row.place), do=do)
    return str(value)


def _read_judgements(source: str) -> Iterator[tuple[Place, str, str, int]]:
    """(place, query, document, relevance) of each line, with or without a header."""
    record, reading = 0, Strict()
    try:
        for line, text in text_lines(source, text_of_file(source, form_of(source)[1], reading), reading):
            cells = text.split("\t") if "\t" in text else text.split()
            if not any(cells) or (line == 1 and not re.search(r"\d", cells[-1])):
                continue  # blank, or the header
            record += 1
            place = Place(source, line, record)
            if len(cells) not in (3, 4) or not _grade(cells[-1]):
                do = "write query, document and a whole number, parted by tabs (TREC: query, 0, document, number)"
                raise UnmaskError(f"not a judgement: {text[:80]!r}", where=str(place), do=do)
            yield place, cells[0].strip(), cells[-2].strip(), int(cells[-1])
    except DamagedInputError as error:
        raise UnmaskError(error.why, where=source, do=error.do) from error


def _grade(cell: str) -> bool:
    digits = cell.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit()
