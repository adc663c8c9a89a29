"""From what a person names (files, folders, globs, "-", hf:…, python-docs) to the files that are read, in a fixed order."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from unmask.errors import UnmaskError
from unmask.text.documents import Format, Reading
from unmask.text.streams import Compression

Kind = Literal["txt", "jsonl", "csv", "tsv", "parquet", "zip", "hf", "python-docs"]
EXTENSIONS: dict[str, Kind] = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".zip": "zip",
}
KNOWN = ".txt .jsonl .ndjson .csv .tsv (each also .gz or .zst), .parquet, .zip"
PYTHON_DOCS: Literal["python-docs"] = "python-docs"


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read: a file ("-" is standard input), a hub data set, or Python's own documentation."""

    name: str
    kind: Kind
    compression: Compression = ""


def find_sources(names: Sequence[str], reading: Reading) -> list[Source]:
    """Every source, in the order named (folders and globs sorted), each once; nothing is opened.

    A missing file, an empty glob or a folder without text is an error that names what is near.
    """
    found: list[Source] = []
    seen: set[str] = set()
    for name in names:
        for source in _expand(name, reading):
            key = (
                source.name
                if source.kind in ("hf", PYTHON_DOCS) or source.name == "-"
                else os.path.realpath(source.name)
            )
            if key in seen:
                reading.report.repeated += 1
            else:
                seen.add(key)
                found.append(source)
    return found


def kind_of(name: str) -> tuple[Kind, Compression] | None:
    """Format and compression by a file's name; None when it is not a text we know."""
    stem, compression = _uncompressed(name.lower())
    kind = EXTENSIONS.get(os.path.splitext(stem)[1])
    if kind is None or (compression and kind in ("parquet", "zip")):
        return None
    return kind, compression


def _uncompressed(name: str) -> tuple[str, Compression]:
    if name.endswith(".gz"):
        return name[:-3], "gz"
    if name.endswith(".zst"):
        return name[:-4], "zst"
    return name, ""


def is_hidden(name: str) -> bool:
    """Whether a file is not meant to be seen: ".git/…", or the "__MACOSX/._x.txt" twins in zips made on a Mac."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def ignore(name: str, reading: Reading) -> None:
    """Counts a file in a folder, glob or zip that is not read."""
    label = "hidden" if is_hidden(name) else os.path.splitext(name.lower())[1] or "no extension"
    reading.report.ignored[label] = reading.report.ignored.get(label, 0) + 1


def _expand(name: str, reading: Reading) -> Iterator[Source]:
    if name == "-":
        yield Source(name, reading.options.format or "txt")
    elif name == PYTHON_DOCS:
        yield Source(name, PYTHON_DOCS)
    elif name.startswith("hf:"):
        yield Source(name, "hf")
    elif os.path.isdir(name):
        yield from _some(name, _folder(name, reading))
    elif os.path.exists(name):
        yield _named_file(name, reading.options.format)
    elif glob.has_magic(name):
        yield from _some(name, _matches(name, reading))
    else:
        raise UnmaskError("no such file or folder", where=name, do=_nearest(name))


def _named_file(name: str, given: Format | None) -> Source:
    if known := kind_of(name):
        return Source(name, *known)
    stem, compression = _uncompressed(name.lower())
    if given is None or stem.endswith((".parquet", ".zip")):
        do = f"known are {KNOWN}; rename it, or give plain text on standard input ('-')"
        raise UnmaskError("the file's extension does not say what it is", where=name, do=do)
    return Source(name, given, compression)


def _folder(name: str, reading: Reading) -> Iterator[Source]:
    """The text files below a folder, sorted by their path; links are followed, loops are not."""
    paths: list[tuple[str, ...]] = []
    visited: set[str] = set()

    def refuse(error: OSError) -> None:
        raise UnmaskError(
            f"cannot list the folder: {error.strerror}", where=str(error.filename), do="check permissions"
        )

    for folder, folders, files in os.walk(name, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        here = os.path.relpath(folder, name)
        paths += [tuple(Path(here, file).parts) for file in files]
    for parts in sorted(paths):
        yield from _if_known(os.path.join(name, *parts), "/".join(parts), reading)


def _matches(pattern: str, reading: Reading) -> Iterator[Source]:
    for path in sorted(glob.glob(pattern, recursive=True)):
        if os.path.isdir(path):
            if not pattern.endswith("**"):  # "**" gives folders and all that is in them
                yield from _folder(path, reading)
        else:
            yield from _if_known(path, os.path.basename(path), reading)


def _if_known(path: str, name: str, reading: Reading) -> Iterator[Source]:
    known = None if is_hidden(name) or not os.path.isfile(path) else kind_of(name)
    if known:
        yield Source(path, *known)
    else:
        ignore(name, reading)


def _some(name: str, found: Iterator[Source]) -> Iterator[Source]:
    """The same sources, of which there must be at least one."""
    listed = list(found)
    if not listed:
        what = "no text file in this folder" if os.path.isdir(name) else "nothing that can be read matches this pattern"
        raise UnmaskError(what, where=name, do=f"{_nearest(name)}; known are {KNOWN}")
    yield from listed


def _nearest(name: str) -> str:
    """What the nearest existing folder holds that looks like the name."""
    folder = Path(name)
    while not (parent := folder.parent).is_dir() and parent != folder:
        folder = parent
    place = Path(name) if os.path.isdir(name) else parent
    try:
        entries = sorted(entry.name for entry in place.iterdir())
    except OSError:
        return f"check that {place} can be read"
    near = [] if place == Path(name) else get_close_matches(folder.name, entries, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(str(place / n) for n in near)}?"
    kinds = Counter(os.path.splitext(entry)[1] or "no extension" for entry in entries)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5))
    return f"{place} holds {listed or 'nothing'}"
