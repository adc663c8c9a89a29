"""Reads a corpus: files, folders, globs, standard input, hub data sets and Python's own documentation become documents.

Everything streams, so memory does not depend on the size of the corpus, and nothing is written anywhere. What is not
turned into a document (blank, bad, ignored, repeated) is counted in the report; nothing else is left out. Texts are
given as they are, except that a byte order mark and NULs are removed and CRLF and lone CR become LF in plain files.
"""

from __future__ import annotations

import os
import stat
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath

from unmask.text import pydocs, tables
from unmask.text.documents import DamagedInputError, Document, Format, Reading, ReadOptions, ReadReport
from unmask.text.formats import parse
from unmask.text.sources import Source, find_sources, ignore, is_hidden, kind_of
from unmask.text.streams import DO_UNPACK, Compression, decompressed, file_chunks, member_chunks

__all__ = ["Document", "ReadOptions", "ReadReport", "Source", "find_sources", "read_documents", "read_source"]


def read_documents(sources: Sequence[str], options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of all sources, in order. Missing sources are an error at once, before anything is read."""
    reading = Reading(options, report)
    found = find_sources(sources, reading)
    return (document for source in found for document in read_source(source, reading))


def read_source(source: Source, reading: Reading) -> Iterator[Document]:
    """The documents of one source; what breaks in the middle is one bad record after the documents before it."""
    try:
        yield from _documents(source, reading)
    except DamagedInputError as error:
        reading.bad(error.why, where=source.name, do=error.do)


def _documents(source: Source, reading: Reading) -> Iterator[Document]:
    match source.kind:
        case "hf":
            return tables.hub_dataset(source.name, reading)
        case "python-docs":
            return _python_docs(reading)
        case "parquet":
            return tables.parquet(source.name, Path(source.name), reading)
        case "zip":
            return _zip(source.name, reading)
        case kind if source.name == "-":
            return parse("-", decompressed(sys.stdin.buffer, ""), kind, reading)
        case kind:
            return parse(source.name, file_chunks(Path(source.name), source.compression, reading), kind, reading)


def _python_docs(reading: Reading) -> Iterator[Document]:
    counts = pydocs.DocCounts()
    for document in pydocs.python_docs(counts):
        if accepted := reading.accept(document.text, document.source, document.record):
            yield accepted
    report = reading.report
    report.files += counts.files
    for label, count in (("does not parse", counts.unreadable), ("too large to be prose", counts.too_large)):
        if count:
            report.ignored[label] = report.ignored.get(label, 0) + count


def _zip(name: str, reading: Reading) -> Iterator[Document]:
    """The text members of a zip file, sorted by name, one stream after another; nothing is unpacked to disk."""
    try:
        archive = zipfile.ZipFile(name)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise DamagedInputError(f"cannot read this zip file: {error}", DO_UNPACK) from error
    with archive:
        for member in sorted(archive.infolist(), key=lambda info: info.filename):
            known = _member_kind(member, name, reading)
            if known is None:
                continue
            inner = f"{name}/{member.filename}"
            try:
                yield from parse(inner, member_chunks(archive, member, known[1], reading), known[0], reading)
            except DamagedInputError as error:
                reading.bad(error.why, where=inner, do=error.do)


def _member_kind(member: zipfile.ZipInfo, name: str, reading: Reading) -> tuple[Format, Compression] | None:
    """Format and compression of a member that is text; None for what is not, counted as ignored or bad."""
    inner = member.filename
    if member.is_dir():
        return None
    if not _is_safe(inner):
        why = f"the zip member {inner!r} has a name that leaves its folder"
        reading.bad(why, where=name, do="do not trust this file; make the archive again from its folder")
        return None
    link = stat.S_ISLNK(member.external_attr >> 16)
    known = None if link or is_hidden(inner) else kind_of(inner)
    if known is None or known[0] not in ("txt", "jsonl", "csv", "tsv"):
        ignore(inner, reading)
        return None
    return known[0], known[1]


def _is_safe(inner: str) -> bool:
    """Relative, without "..", drive letters, backslashes or control characters."""
    parts = inner.split("/")
    windows = PureWindowsPath(inner)
    return not (
        ".." in parts
        or os.path.isabs(inner)
        or windows.drive
        or windows.root
        or "\\" in inner
        or not inner.isprintable()
    )
