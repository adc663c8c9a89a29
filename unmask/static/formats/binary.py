"""Vectors in word2vec's binary format: a header line, then for each word its bytes, a space, D floats, maybe a line feed.

Words have different lengths, so the floats of such a file have no common stride and can't be mapped into memory as one
array: what is to be opened at once is converted to a folder of ours once. Legend: R rows of a block, D dimension.
"""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from unmask.errors import UnmaskError
from unmask.static.formats.report import VectorReport
from unmask.static.formats.rows import Rows
from unmask.static.formats.source import Source, Start

_LONGEST_WORD = 2**16  # bytes
_NO_WORD = re.compile(rb"[\x00-\x08\x0a-\x1f]")


def read_binary(source: Source, start: Start, report: VectorReport, limit: int) -> Rows:
    """Reads records until the file ends or `limit` are kept. UnmaskError names record and byte of what is damaged."""
    rows = Rows(start.dimension, report, limit)
    place, held = start.body, b""
    for chunk in source.chunks(start.body):
        held += chunk
        while used := _read_block(source, held, rows, report, place):
            place, held = place + used, held[used:]
            if rows.full:
                report.whole = False
                return rows
        if len(held) > _LONGEST_WORD + 4 * start.dimension:
            _refuse(source, report.rows, place, "no word is found here")
    promised = report.promised or 0
    if held.strip() or report.rows < promised:
        raise UnmaskError(
            f"the file ends after {report.rows:,} of {promised:,} vectors: it was cut off",
            where=f"{source.path}, record {report.rows + 1:,}, byte {place:,}",
            do="get it again (files of 16-bit floats can't be read), or read what is whole with a limit",
        )
    return rows


def _read_block(source: Source, block: bytes, rows: Rows, report: VectorReport, place: int) -> int:
    """Takes the whole records of a block, which begins at byte `place` of the file; how many bytes they are."""
    from unmask.static.formats import loops

    width = rows.dimension * 4
    most = len(block) // (width + 1)
    most = min(most, rows.left) if rows.left else most
    out_RD = rows.room(most, source.size / (width + 8) if not source.compressed else 0)
    places_R2 = np.empty((most, 2), np.int64)
    data = np.frombuffer(block, np.uint8)
    number, used = loops.binary_rows(data, out_RD.view(np.uint8), places_R2)
    if not number:
        return 0
    names = loops.words(data, places_R2[:number]).tobytes()
    finite_R = np.all(np.isfinite(out_RD[:number]), axis=1)
    if names.count(b"\n") != number - 1 or _NO_WORD.search(names.replace(b"\n", b"")) or not finite_R.all():
        for row, (begin, end) in enumerate(places_R2[:number].tolist()):
            if _NO_WORD.search(block[begin:end]):
                _refuse(source, report.rows + row, place + begin, f"{block[begin:end][:40]!r} is no word")
            if not finite_R[row]:
                _refuse(source, report.rows + row, place + end + 1, "the vector holds NaN or infinity")
    rows.add(names, number)
    return used


def _refuse(source: Source, row: int, place: int, why: str) -> NoReturn:
    raise UnmaskError(
        f"the file is damaged: {why}",
        where=f"{source.path}, record {row + 1:,}, byte {place:,}",
        do="get it again; or its header tells a wrong number of floats, or they are not 32-bit floats",
    )
