"""Rows of a file of records, whatever its format: names and values, each row with its place.

JSON Lines, a JSON list, CSV and TSV with a header row, lines of text (each also .gz or .zst), Parquet, folders that the
`datasets` library saved or that hold a file or more for each split, and "-", JSON Lines on standard input. Cells of CSV and
TSV are strings, whatever they spell: "NA", "null" and "nan" are words.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from unmask.errors import UnmaskError
from unmask.labelled.records import Place, counted
from unmask.labelled.splits import split_files
from unmask.text import formats
from unmask.text.documents import DamagedInputError, Reading, ReadOptions, ReadReport
from unmask.text.sources import find_sources
from unmask.text.streams import Compression, file_chunks, lines, plain_text

Form = Literal["jsonl", "json", "csv", "tsv", "txt", "parquet", "folder", "other"]
FORMS: dict[str, Form] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "txt",
    ".parquet": "parquet",
}
SPOKEN: dict[Form, str] = {
    "jsonl": "JSON lines",
    "json": "JSON",
    "csv": "columns parted by commas",
    "tsv": "columns parted by tabs, quotes being ordinary characters",
    "txt": "lines of text",
    "parquet": "Parquet",
    "folder": "a saved data set",
}
LONGEST_LINE = 2**30
STDIN = "-"


class Row(NamedTuple):
    """One record as it stands in the file."""

    place: Place
    values: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """All rows of a file. `names` says what the numbers of a column stand for, where the file knows (`ClassLabel`)."""

    name: str
    columns: tuple[str, ...]
    rows: list[Row]
    names: Mapping[str, tuple[str, ...]]
    understood: tuple[str, ...]
    warnings: tuple[str, ...]


class Strict(Reading):
    """A pass over a labelled file: whatever is bad in it ends it."""

    def __init__(self) -> None:
        super().__init__(ReadOptions(max_bytes=LONGEST_LINE), ReadReport())

    def bad(self, why: str, *, where: str, do: str, count: int = 1) -> NoReturn:
        raise UnmaskError(why, where=where, do=do)


class Doubts:
    """What is odd but can be read, counted, each kind with its first place; becomes the warnings of a reading."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, str]] = {}

    def add(self, what: str, where: object) -> None:
        """Counts one more of a kind."""
        count, first = self.found.get(what, (0, str(where)))
        self.found[what] = count + 1, first

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each kind."""
        return tuple(f"{what}: {count:,} (first: {first})" for what, (count, first) in self.found.items())


def read_table(source: str) -> Table:
    """All rows of a file or folder. UnmaskError names the place of what cannot be read, and says when there is none."""
    if files := [] if source == STDIN else split_files(source):
        return _joined(source, [read_table(file) for file in files])
    form, compression = form_of(source)
    reading, doubts, names = Strict(), Doubts(), dict[str, tuple[str, ...]]()
    try:
        rows = list(_rows(source, form, compression, reading, names))
    except DamagedInputError as error:
        raise UnmaskError(error.why, where=source, do=error.do) from error
    if not rows and source == STDIN:
        do = (
            "pipe records into it; it can be read once, so name a file for what is read again (a dev set, several runs)"
        )
        raise UnmaskError("there is no record, or none is left, on standard input", where=source, do=do)
    if not rows:
        do = "the first row is taken as the names of the columns" if form in ("csv", "tsv") else "give at least one"
        raise UnmaskError("there is no record in it", where=source, do=do)
    if form == "tsv":
        _doubt_quotes(rows, doubts)
    understood = [f"{source}: {counted(len(rows), 'record')}, {SPOKEN[form]}"]
    if reading.report.boms:
        understood.append("a byte order mark was removed")
    columns = tuple(dict.fromkeys(name for row in rows for name in row.values))
    return Table(source, columns, rows, names, tuple(understood), doubts.warnings)


def _joined(source: str, tables: list[Table]) -> Table:
    """The files of a split as one, its records counted through."""
    first = tables[0]
    if other := next((table for table in tables if table.names != first.names), None):
        what = f"the files name the numbers of labels differently than {first.name}"
        raise UnmaskError(what, where=other.name, do="use files of one version of the data set")
    rows = [row for table in tables for row in table.rows]
    rows = [Row(Place(source, 0, record), row.values) for record, row in enumerate(rows, 1)]
    columns = tuple(dict.fromkeys(name for table in tables for name in table.columns))
    understood = tuple(line for table in tables for line in table.understood)
    return Table(source, columns, rows, first.names, understood, tuple(w for table in tables for w in table.warnings))


def form_of(source: str) -> tuple[Form, Compression]:
    """Format and compression by the name; UnmaskError where there is no such file."""
    if source == STDIN:
        return "jsonl", ""
    if split_files(source):
        return "folder", ""
    if not os.path.exists(source):
        find_sources([source], Strict())  # its error says what is near
        raise UnmaskError("this is not the name of a file", where=source, do="name one file")
    if os.path.isdir(source):
        return "folder", ""
    stem, last = os.path.splitext(source.lower())
    compression: Compression = "gz" if last == ".gz" else "zst" if last == ".zst" else ""
    return FORMS.get(os.path.splitext(stem)[1] if compression else last, "other"), compression


def text_of_file(source: str, compression: Compression, reading: Reading) -> Iterator[bytes]:
    """Its decompressed bytes without a byte order mark, with LF line ends."""
    if source == STDIN:
        return plain_text(iter(lambda: sys.stdin.buffer.read(1 << 20), b""), reading)
    return plain_text(file_chunks(Path(source), compression, reading), reading)


def text_lines(name: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line; only LF ends one."""
    for number, data in lines(chunks, LONGEST_LINE):
        text = formats._decoded(data, name, number, reading)
        assert text is not None, "Strict raises"
        yield number, text


def _rows(
    source: str, form: Form, compression: Compression, reading: Reading, names: dict[str, tuple[str, ...]]
) -> Iterator[Row]:
    if form == "folder":
        return _arrow_rows(source, _saved_batches(Path(source)), names)
    if form == "parquet" and not compression:
        return _arrow_rows(source, _parquet_batches(source), names)
    chunks = text_of_file(source, compression, reading)
    match form:
        case "jsonl":
            return _json_lines(source, chunks, reading)
        case "json":
            return _json(source, b"".join(chunks), reading)
        case "csv":
            return _separated(source, chunks, ",", csv.QUOTE_MINIMAL, reading)
        case "tsv":
            return _separated(source, chunks, "\t", csv.QUOTE_NONE, reading)
        case "txt":
            numbered = text_lines(source, chunks, reading)
            return (Row(Place(source, line, n), {"text": text}) for n, (line, text) in enumerate(numbered, 1))
    do = f"known are {' '.join(FORMS)} (text formats also .gz or .zst) and folders saved by `datasets`"
    raise UnmaskError("the file's extension does not say what it is", where=source, do=do)


def _json_lines(name: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[Row]:
    record = 0
    for line, text in text_lines(name, chunks, reading):
        if text.strip():
            record += 1
            place = Place(name, line, record)
            values = formats._json_object(text, str(place), reading)
            assert values is not None, "Strict raises"
            if "\\u" in text:
                _refuse_half_surrogates(values, place)
            yield Row(place, values)


def _json(name: str, data: bytes, reading: Reading) -> Iterator[Row]:
    """One JSON value, or JSON lines under the name .json, which are as common."""
    text = formats._decoded(data, name, 1, reading) or ""
    try:
        value = json.loads(text) if text.strip() else []
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            yield from _json_lines(name, [data], reading)
            return
        where = f"{name}, line {error.lineno}, column {error.colno}"
        raise UnmaskError(f"not JSON: {error.msg}", where=where, do="repair the file or write it again") from error
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, lists in lists without end
        raise UnmaskError(f"not JSON that can be read: {error}", where=name, do="write the file again") from error
    for record, values in enumerate(value if isinstance(value, list) else [value], 1):
        place = Place(name, 0, record)
        if not isinstance(values, dict):
            raise UnmaskError(f"a JSON {type(values).__name__}, not an object", where=str(place), do='write {"…": …}')
        _refuse_half_surrogates(values, place)
        yield Row(place, values)


def _refuse_half_surrogates(values: dict[str, Any], place: Place) -> None:
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half, before = ord(error.object[error.start]), error.object[max(error.start - 30, 0) : error.start]
        why = f"half a surrogate pair (\\u{half:04x}) after {before!r}"
        raise UnmaskError(why, where=str(place), do="repair the record: no tool can read this character") from None


def _separated(name: str, chunks: Iterable[bytes], delimiter: str, quoting: int, reading: Reading) -> Iterator[Row]:
    rows = formats._rows(name, chunks, delimiter, quoting, reading)
    header = [cell.strip() for cell in next(rows, (1, []))[1]]
    _check_header(header, delimiter, f"{name}, line 1")
    for record, (line, cells) in enumerate(rows, 1):
        place = Place(name, line, record)
        if len(cells) != len(header):
            do = "quotes are ordinary characters in .tsv" if delimiter == "\t" else "quote fields that hold a comma"
            why = f"{len(cells)} fields, but the header has {len(header)}"
            raise UnmaskError(why, where=str(place), do=do)
        yield Row(place, dict(zip(header, cells, strict=True)))


def _check_header(header: list[str], delimiter: str, where: str) -> None:
    if len(header) == 1 and (other := next((d for d in ",;\t|" if d in header[0] and d != delimiter), None)):
        do = f"part columns with {delimiter!r}, not {other!r}, or name the file {'.tsv' if other == chr(9) else '.csv'}"
        raise UnmaskError(f"the header has one column, {header[0]!r}", where=where, do=do)
    if twice := next((cell for cell in header if cell and header.count(cell) > 1), None):
        raise UnmaskError(f"{header.count(twice)} columns are called {twice!r}", where=where, do="rename one")


def _doubt_quotes(rows: Iterable[Row], doubts: Doubts) -> None:
    """A doubled quote between quotes was hardly meant as it stands: another tool wrote the file by the rules of CSV."""
    for row in rows:
        for cell in row.values.values():
            if cell[:1] == cell[-1:] == '"' and '""' in cell[1:-1]:
                doubts.add("fields quoted as in CSV, whose quotes were kept (save as .csv with commas)", row.place)


def _parquet_batches(source: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source, pre_buffer=False) as table:
            yield from table.iter_batches(1024, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        why = f"cannot read this parquet file: {(str(error).splitlines() or ['?'])[0]}"
        raise DamagedInputError(why, "get the file again") from error


def _saved_batches(folder: Path) -> Iterator[Any]:
    """What `Dataset.save_to_disk` wrote: streams of Arrow, which need nothing of `datasets` to be read."""
    import pyarrow as pa

    try:
        if (folder / "dataset_dict.json").exists():
            splits = json.loads((folder / "dataset_dict.json").read_bytes())["splits"]
            do = f"name one, e.g. {folder / splits[0] if splits else folder}"
            raise UnmaskError(f"the folder holds several splits: {', '.join(splits)}", where=str(folder), do=do)
        if not (folder / "state.json").exists():
            do = "name a file; folders are read that save_to_disk of the `datasets` library wrote, or with train.jsonl, …"
            raise UnmaskError("the folder is not a saved data set: it has no state.json", where=str(folder), do=do)
        for file in json.loads((folder / "state.json").read_bytes())["_data_files"]:
            with pa.memory_map(str(folder / file["filename"])) as mapped:
                yield from pa.ipc.open_stream(mapped)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        why = f"cannot read this saved data set: {(str(error).splitlines() or ['?'])[0]}"
        raise DamagedInputError(why, "save it again with save_to_disk") from error


def _arrow_rows(name: str, batches: Iterable[Any], names: dict[str, tuple[str, ...]]) -> Iterator[Row]:
    record = 0
    for batch in batches:
        names.update(_class_names(batch.schema))
        for at in range(batch.num_rows):
            record += 1
            place = Place(name, 0, record)
            try:
                yield Row(place, {column: batch[column][at].as_py() for column in batch.schema.names})
            except UnicodeDecodeError as error:
                why = f"not UTF-8 at byte {error.start + 1} of a value"
                raise UnmaskError(why, where=str(place), do="write the file again as UTF-8") from error


def _class_names(schema: Any) -> dict[str, tuple[str, ...]]:
    """The names that `datasets` writes beside columns of class numbers, also where these stand in lists."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    found = {}
    for column, kind in (about.get("info", {}).get("features") or {}).items():
        while isinstance(kind, dict) and "feature" in kind or isinstance(kind, list) and kind:
            kind = kind[0] if isinstance(kind, list) else kind["feature"]
        if isinstance(kind, dict) and kind.get("_type") == "ClassLabel":
            found[column] = tuple(kind["names"])
    return found
