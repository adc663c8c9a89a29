"""Reads a file of vectors, whichever format it has."""

from __future__ import annotations

from pathlib import Path

from unmask.errors import UnmaskError
from unmask.progress import Progress, quiet
from unmask.static.formats.binary import read_binary
from unmask.static.formats.report import VectorReport
from unmask.static.formats.source import look, opened
from unmask.static.formats.text import read_text
from unmask.static.vectors import Vectors


def read_file(path: Path, *, limit: int = 0, progress: Progress = quiet) -> tuple[Vectors, VectorReport]:
    """The vectors of a file, plain or .gz or .zst, and what was odd in it; with `limit`, those of the first words only.

    The format is found by the content. Memory is that of the vectors and their words. UnmaskError names the line (text)
    or the record and byte (binary) of what is no row, and refuses pickles.
    """
    if limit < 0:
        raise UnmaskError(f"the limit is {limit}", where=str(path), do="give a number of words; 0 takes all")
    report = VectorReport()
    with opened(path, progress) as source:
        start = look(source)
        report.dimension, report.promised = start.dimension, start.promised
        report.format = "word2vec-binary" if start.binary else "glove" if start.promised is None else "word2vec"
        rows = (read_binary if start.binary else read_text)(source, start, report, limit)
    vectors = rows.vectors()
    if not len(vectors.words):
        raise UnmaskError("there is no vector in it", where=str(path), do="name a file with vectors")
    return vectors, report
