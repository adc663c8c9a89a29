"""The formats of plain files: text, JSON Lines, CSV and TSV. Each reads a stream of bytes and yields documents."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any

from unmask.errors import UnmaskError
from unmask.text.documents import Document, Format, Reading
from unmask.text.streams import lines, pieces, plain_text

LOOK_AHEAD = 20  # rows of a table that show which columns hold text and which numbers
FOREIGN = {  # what a file that is not UTF-8 begins with, and what it is then
    b"\x1f\x8b": ("gzip data", "name it .gz"),
    b"\x28\xb5\x2f\xfd": ("zstd data", "name it .zst"),
    b"PK\x03\x04": ("a zip archive (or an office document)", "name it .zip, or export it as plain text"),
    b"PAR1": ("a parquet file", "name it .parquet"),
    b"%PDF": ("a PDF", "export it as plain text"),
    b"\xff\xfe": ("UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
}


def parse(name: str, chunks: Iterable[bytes], kind: Format, reading: Reading) -> Iterator[Document]:
    """The documents of one stream; `name` is what errors and documents call it."""
    reading.report.files += 1
    clean = plain_text(chunks, reading)
    match kind:
        case "txt":
            return _text(name, clean, reading)
        case "jsonl":
            return _json_lines(name, clean, reading)
        case "csv":
            return _table(name, clean, ",", csv.QUOTE_MINIMAL, reading)
        case "tsv":
            return _table(name, clean, "\t", csv.QUOTE_NONE, reading)


def choose_field(wanted: str | None, names: Sequence[str], texts: Sequence[str], *, where: str) -> str:
    """Which of a record's fields is the text: the wanted one, else "text", else the only one that holds text."""
    if wanted is not None and wanted in names:
        return wanted
    listed = f"the fields are: {', '.join(names) or 'none'}"
    if wanted is not None:
        near = get_close_matches(wanted, names, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnmaskError(f"no field {wanted!r}", where=where, do=hint + listed)
    if "text" in names:
        return "text"
    if len(texts) == 1:
        return texts[0]
    raise UnmaskError(
        f"{len(texts)} fields hold text, and none is called 'text'",
        where=where,
        do=f"choose one with --field; {listed}",
    )


def text_of(record: dict[str, Any], key: str, where: str, reading: Reading) -> str | None:
    """The text of a record; a missing field, another type or half a surrogate pair makes it bad."""
    if key not in record:
        reading.bad(
            f"no field {key!r}", where=where, do=f"choose --field; this record has: {', '.join(record) or 'none'}"
        )
        return None
    value = record[key]
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        reading.bad(f"field {key!r} is {kind}, not a string", where=where, do="choose a --field that holds text")
        return None
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(value[error.start]):04x}"
        reading.bad(f"field {key!r} holds half a surrogate pair ({half})", where=where, do="repair the record")
        return None
    return value


def _text(name: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[Document]:
    for number, data in pieces(chunks, reading.options.separator, reading.options.max_bytes):
        text = _decoded(data, name, number, reading)
        if text is not None and (document := reading.accept(text, name, number)):
            yield document


def _decoded(data: bytes | None, name: str, number: int, reading: Reading) -> str | None:
    """The text of bytes that begin on line `number` and must be UTF-8 and within the cap; None: counted as bad."""
    if data is None:
        cap = f"{reading.options.max_bytes:,} bytes"
        do = "part the text into documents (--separator blank, line or a string), or raise --max-document-megabytes"
        reading.bad(f"a line or document of more than {cap}", where=f"{name}:{number}", do=do)
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        what, do = _what_it_is(data) if number == 1 else ("", "")
        at = number + data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        place = f"{name}:{at}, byte {column} of the line (0x{data[error.start]:02x})"
        do = do or "convert the file to UTF-8, e.g. iconv -f LATIN1 (or GB18030, CP1252) -t UTF-8"
        reading.bad(f"not UTF-8{': this is ' + what if what else ''}", where=place, do=do)
        return None


def _what_it_is(data: bytes) -> tuple[str, str]:
    return next((known for magic, known in FOREIGN.items() if data.startswith(magic)), ("", ""))


def _json_lines(name: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[Document]:
    taken = None
    for number, data in lines(chunks, reading.options.max_bytes):
        where = f"{name}:{number}"
        if data is not None and not data.strip():
            reading.report.blank_lines += 1
            continue
        line = _decoded(data, name, number, reading)
        record = None if line is None else _json_object(line, where, reading)
        if record is None:
            continue
        if taken is None:
            texts = [key for key, value in record.items() if isinstance(value, str)]
            taken = reading.options.field or choose_field(None, list(record), texts, where=where)
            reading.take_field(taken)
        text = text_of(record, taken, where, reading)
        if text is not None and (document := reading.accept(text, name, number)):
            yield document


def _json_object(line: str, where: str, reading: Reading) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # ValueError also for a number of 5,000 digits
        at = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        reading.bad(f"not a JSON record: {why}", where=where + at, do="one complete JSON object on each line")
        return None
    if not isinstance(record, dict):
        reading.bad(
            f"the line holds a JSON {type(record).__name__}, not an object", where=where, do='write {"text": …} lines'
        )
        return None
    return record


class _Rows:
    """Lines for the csv module, one by one: it counts them, and keeps the first line of a record that cannot be text."""

    def __init__(self, chunks: Iterable[bytes], max_bytes: int):
        self.lines = lines(chunks, max_bytes)
        self.number = 0
        self.broken: tuple[int, bytes | None] | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, data = next(self.lines)
        try:
            return self._break(data) if data is None else data.decode() + "\n"
        except UnicodeDecodeError:
            return self._break(data)

    def begin_record(self) -> int:
        """The line the next record begins on; forgets what was wrong with the one before."""
        self.broken = None
        return self.number + 1

    def _break(self, data: bytes | None) -> str:
        self.broken = self.broken or (self.number, data)
        return (data or b"").decode(errors="replace") + "\n"  # never yielded: it only keeps the quotes in step


def _table(name: str, chunks: Iterable[bytes], delimiter: str, quoting: int, reading: Reading) -> Iterator[Document]:
    rows = _rows(name, chunks, delimiter, quoting, reading)
    bad_before = reading.report.bad_count
    _, header = next(rows, (1, None))
    if reading.report.bad_count > bad_before:
        raise UnmaskError("the header row is damaged", where=reading.report.bad[-1], do="repair the first row")
    if header is None:
        return
    begun = list(islice(rows, LOOK_AHEAD))
    at = _column(header, [row for _, row in begun], f"{name}:1", delimiter, reading)
    for number, row in chain(begun, rows):
        if len(row) != len(header):
            why = f"{len(row)} fields, but the header has {len(header)}"
            do = "quotes are ordinary characters in .tsv" if delimiter == "\t" else "quote fields that hold a comma"
            reading.bad(why, where=f"{name}:{number}", do=do)
        elif document := reading.accept(row[at], name, number):
            yield document


def _rows(
    name: str, chunks: Iterable[bytes], delimiter: str, quoting: int, reading: Reading
) -> Iterator[tuple[int, list[str]]]:
    """(line it begins on, fields) of every row that is whole and UTF-8."""
    cap = reading.options.max_bytes
    csv.field_size_limit(max(csv.field_size_limit(), cap))  # the module's own limit is 128 KiB, for the whole process
    feed = _Rows(chunks, cap)
    table = csv.reader(feed, delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]  # the module's constants
    while True:
        begin = feed.begin_record()
        try:
            row = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            _bad_row(str(error), f"{name}:{begin}", feed.number - begin + 1, reading)
            continue
        if feed.broken is not None:
            _decoded(feed.broken[1], name, feed.broken[0], reading)
        elif not row:
            reading.report.blank_lines += 1
        else:
            yield begin, row


def _bad_row(why: str, where: str, held: int, reading: Reading) -> None:
    """A row the csv module refuses. A quote that is never closed takes every line after it: all of them count as bad."""
    if held > 1:
        why = f"{why}: the quote opened in this record is not closed properly; {held} lines lie inside it"
    do = 'write a quote inside a quoted field twice ("")'
    reading.bad(f"not a CSV row: {why}", where=where, do=do, count=held)


def _column(header: list[str], sample: list[list[str]], where: str, delimiter: str, reading: Reading) -> int:
    """The place of the text column, from the header and, where no column is called "text", from the first rows."""
    if len(header) == 1 and (other := next((d for d in ";\t|" if d in header[0]), None)):
        raise UnmaskError(
            f"the header has one column, {header[0]!r}",
            where=where,
            do=f"part columns with {delimiter!r}, not {other!r}",
        )
    if reading.options.field is None and any(len(cell) > 80 or len(cell.split()) > 4 for cell in header):
        raise UnmaskError(
            "the first row does not look like column names", where=where, do="add a header row, e.g. text"
        )
    whole = [row for row in sample if len(row) == len(header)]
    texts = [cell for i, cell in enumerate(header) if not _numbers([row[i] for row in whole])]
    taken = choose_field(reading.options.field, header, texts, where=where)
    if header.count(taken) > 1:
        raise UnmaskError(f"{header.count(taken)} columns are called {taken!r}", where=where, do="rename one")
    reading.take_field(taken)
    return header.index(taken)


def _numbers(cells: list[str]) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    return bool(filled) and all(_is_number(cell) for cell in filled)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip().lower() not in ("nan", "inf", "infinity", "-inf")
