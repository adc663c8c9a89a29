"""What reading gives: documents, the choices that govern it, and an account in which nothing is missing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from unmask.errors import UnmaskError

Format = Literal["txt", "jsonl", "csv", "tsv"]
SHOWN = 20  # how many bad or empty records a report lists by place; all are counted


@dataclass(frozen=True, slots=True)
class Document:
    """One text and where it came from.

    `source` is the path as given (a zip member after a "/"), "-", "hf:…" or "python-docs:module".
    `record` counts from 1: the line the document begins on, or its row (parquet, hf) or number (python-docs).
    """

    text: str
    source: str
    record: int


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How sources become documents. All text is UTF-8."""

    field: str | None = None
    """Which field of a record is the text; None: "text", else the only field that holds text."""
    separator: str = "file"
    """What ends a document in .txt: "file", "blank" (blank lines), "line", or any other string, itself."""
    format: Format | None = None
    """Of standard input and of named files whose extension says nothing; None: standard input is "txt"."""
    skip_bad: int = 0
    """How many bad records (or files) may be left out, counted, before reading stops with an error."""
    max_bytes: int = 32 * 2**20
    """The longest document, in bytes of its line, record or file; a longer one is a bad record. Preparing one takes some 50
    times its size in memory."""
    max_expansion: int = 250
    """A compressed file that grows more than this many times (beyond 64 MiB) is taken for a bomb; text grows 3 to 20."""

    def __post_init__(self) -> None:
        if not self.separator:
            raise UnmaskError("the document separator is empty", do='give "file", "blank", "line" or a string')
        if self.format not in (None, "txt", "jsonl", "csv", "tsv"):
            raise UnmaskError(f"unknown format {self.format!r}", do="give txt, jsonl, csv or tsv")
        for name, least in (("skip_bad", 0), ("max_bytes", 1), ("max_expansion", 1)):
            if getattr(self, name) < least:
                raise UnmaskError(f"{name} is {getattr(self, name)}", do=f"give {least} or more")


@dataclass
class ReadReport:
    """What was read and what was left out, in counts; the first places of each kind by name."""

    files: int = 0
    documents: int = 0
    characters: int = 0
    longest: int = 0
    """Characters of the longest document."""
    empty: int = 0
    """Documents without a visible character: skipped."""
    empty_at: list[str] = field(default_factory=list)
    bad_count: int = 0
    """Records or files left out under `skip_bad`."""
    bad: list[str] = field(default_factory=list)
    boms: int = 0
    """Byte order marks removed, one at most at the start of a file."""
    nuls: int = 0
    """NUL characters removed from documents."""
    blank_lines: int = 0
    """Blank lines between records of .jsonl, .csv and .tsv files."""
    repeated: int = 0
    """Sources named more than once (or reached by two globs): read once."""
    ignored: dict[str, int] = field(default_factory=dict)
    """Files in folders, globs and zips that are not text we know, by extension."""
    fields: dict[str, int] = field(default_factory=dict)
    """Which field was taken as the text, and in how many files."""

    def as_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return asdict(self)

    def merge(self, other: ReadReport) -> None:
        """Adds the report of another part of the same reading (a worker's)."""
        for name in (f.name for f in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if name == "longest":
                self.longest = max(mine, theirs)
            elif isinstance(mine, int):
                setattr(self, name, mine + theirs)
            elif isinstance(mine, list):
                mine.extend(theirs[: SHOWN - len(mine)])
            else:
                for key, count in theirs.items():
                    mine[key] = mine.get(key, 0) + count


class DamagedInputError(Exception):
    """The bytes of a source end or break in the middle; becomes a bad record of its source."""

    def __init__(self, why: str, do: str):
        super().__init__(why)
        self.why, self.do = why, do


class Reading:
    """One pass over sources: the options, the report, and the one rule for what is bad or empty."""

    def __init__(self, options: ReadOptions, report: ReadReport):
        self.options, self.report = options, report

    def accept(self, text: str, source: str, record: int) -> Document | None:
        """Counts a text and makes it a document: NULs removed, line breaks at its ends dropped; None when blank."""
        report = self.report
        if "\0" in text:
            report.nuls += text.count("\0")
            text = text.replace("\0", "")
        text = text.strip("\n")
        if not text or text.isspace():
            report.empty += 1
            if len(report.empty_at) < SHOWN:
                report.empty_at.append(f"{source}:{record}")
            return None
        report.documents += 1
        report.characters += len(text)
        report.longest = max(report.longest, len(text))
        return Document(text, source, record)

    def bad(self, why: str, *, where: str, do: str, count: int = 1) -> None:
        """Leaves out a bad record while `skip_bad` allows it, else raises UnmaskError with its place."""
        report, allowed = self.report, self.options.skip_bad
        if not allowed:
            raise UnmaskError(why, where=where, do=f"{do}; or leave such records out with --skip-bad N")
        report.bad_count += count
        if len(report.bad) < SHOWN:
            report.bad.append(f"{where}: {why}")
        if report.bad_count > allowed:
            raise UnmaskError(
                f"{report.bad_count} bad records, but only {allowed} may be left out; the first are\n    "
                + "\n    ".join(report.bad),
                where=where,
                do=f"{do}; or raise --skip-bad",
            )

    def take_field(self, name: str) -> None:
        """Counts that one more file gives its texts from this field."""
        self.report.fields[name] = self.report.fields.get(name, 0) + 1
