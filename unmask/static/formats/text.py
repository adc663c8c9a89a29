"""Vectors in text: word2vec text, GloVe, fastText .vec. A line is a word, whatever is in it, and its last D numbers.

Legend: R rows of a block, D dimension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.static.formats.report import VectorReport
from unmask.static.formats.rows import Rows
from unmask.static.formats.source import BLANKS, LONGEST_LINE, NUMBER, Source, Start

_FIELD = re.compile(rb"[^ \t]+")


class RowError(Exception):
    """Why a line is no row."""


def read_text(source: Source, start: Start, report: VectorReport, limit: int) -> Rows:
    """Reads rows until the file ends or `limit` are kept. UnmaskError names the line of what isn't a row."""
    rows = Rows(start.dimension, report, limit)
    line, complete = 1 if start.promised is None else 2, True
    for block in _blocks(source, start.body, line):
        complete = block.endswith(b"\n")
        while block:
            part, block = _first_lines(block, rows.left)
            lines = part.count(b"\n") + (not part.endswith(b"\n"))
            expected = 0.0 if source.compressed else source.size * lines / len(part)
            names, kept = _block_rows(source, part, rows.room(lines, expected), line)
            if kept:
                rows.add(names, kept)
            line += lines
            if rows.full:
                report.whole = False
                return rows
    if not complete and report.rows < (report.promised or 0):
        raise UnmaskError(
            f"the file ends within a line, after {report.rows:,} of {report.promised:,} rows: it was cut off",
            where=f"{source.path}:{line - 1}",
            do="get it again",
        )
    return rows


def plain_row(line: bytes, dimension: int) -> tuple[bytes, NDArray[np.float32]]:
    """The word and the numbers [D] of a line. RowError says what is wrong with it."""
    fields = list(_FIELD.finditer(line.rstrip(b"\r")))
    if len(fields) < dimension + (not line.startswith((b" ", b"\t"))):
        raise RowError(f"{max(len(fields) - 1, 0)} numbers instead of {dimension}")
    numbers = [field[0] for field in fields[-dimension:]]
    for number in numbers:
        if not NUMBER.fullmatch(number):
            raise RowError(f"{_shown(number)} is not a number")
    inner = [field[0] for field in fields[1:-dimension]]
    if any(b"." in field and NUMBER.fullmatch(field) for field in inner):
        raise RowError(f"more than {dimension} numbers")
    word = line[: fields[-dimension].start()].strip(BLANKS)
    with np.errstate(over="ignore"):
        values = np.array([float(number) for number in numbers]).astype(np.float32)
    if not np.isfinite(values).all():
        bad = numbers[int(np.argmin(np.isfinite(values)))]
        raise RowError(f"the vector of {_shown(word)} holds {_shown(bad)}, which is no finite float32")
    return word, values


def _blocks(source: Source, body: int, line: int) -> Iterator[bytes]:
    """The text in pieces of whole lines; the last may lack its line feed."""
    held = b""
    for chunk in source.chunks(body):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield held + chunk[:end]
            line += held.count(b"\n") + chunk.count(b"\n")
            held = b""
        held += chunk[end:]
        if len(held) > LONGEST_LINE:
            raise UnmaskError(
                f"a line of more than {LONGEST_LINE:,} bytes", where=f"{source.path}:{line}", do="get it again"
            )
    if held:
        yield held


def _first_lines(block: bytes, number: int) -> tuple[bytes, bytes]:
    """So many lines, and the rest; 0: all."""
    if not number:
        return block, b""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
    at = int(ends[number - 1]) + 1 if number <= len(ends) else len(block)
    return block[:at], block[at:]


def _block_rows(source: Source, block: bytes, out_RD: NDArray[np.float32], line: int) -> tuple[bytes, int]:
    """Fills in the numbers of a block's lines; the words, parted by line feeds, and how many rows there are."""
    from unmask.static.formats import loops

    places_R4 = np.empty((len(out_RD), 4), np.int64)
    data = np.frombuffer(block, np.uint8)
    loops.text_rows(data, out_RD.shape[1], loops.POWERS, out_RD, places_R4)
    if places_R4[:, 3].all():
        return loops.words(data, places_R4).tobytes(), len(out_RD)
    names, kept = list[bytes](), 0
    for row, (begin, word_end, end, sure) in enumerate(places_R4.tolist()):
        if sure:
            out_RD[kept] = out_RD[row]
            word = block[begin:word_end]
        elif not block[begin:end].strip():
            continue
        else:
            try:
                word, out_RD[kept] = plain_row(block[begin:end], out_RD.shape[1])
            except RowError as error:
                _refuse(source, line + row, str(error), ends=end == len(block))
        names.append(word)
        kept += 1
    return b"\n".join(names), kept


def _refuse(source: Source, line: int, why: str, *, ends: bool) -> NoReturn:
    do = "the file may have been cut off: get it again" if ends else "correct or remove this line"
    raise UnmaskError(f"this line is no row of vectors: {why}", where=f"{source.path}:{line}", do=do)


def _shown(field: bytes) -> str:
    text = field.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
