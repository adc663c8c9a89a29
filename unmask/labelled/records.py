"""Records of labelled data, whatever file they come from. Each knows its place, so that an error can name it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar


class Place(NamedTuple):
    """Where a record stands: `line` and `record` are counted from 1; a line of 0 is unknown (Parquet, `datasets`)."""

    file: str
    line: int
    record: int

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        return f"{self.file}{line}, record {self.record}"


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text or a pair of texts with what is to be said about it: a label, several, or a number; None where it is asked."""

    text: str
    pair: str | None
    label: str | tuple[str, ...] | float | None
    place: Place


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """Words with a tag each. `text` and `offsets` (a word's begin and end in it) where the file gave running text."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    place: Place
    text: str | None = None
    offsets: tuple[tuple[int, int], ...] | None = None


class Answer(NamedTuple):
    """A piece of the context; `start` in characters (code points)."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a context. No answers: there is none in the context; None: it is asked."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None
    place: Place
    title: str = ""


@dataclass(frozen=True, slots=True)
class RankedExample:
    """A query with texts that answer it and texts that do not; `scores` of a teacher, one for each, positives first."""

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    place: Place
    scores: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Collection:
    """A retrieval test set: documents and queries by id, and how relevant a document is to a query (above 0: it is)."""

    documents: dict[str, str]  # title and text joined by a space, as BEIR's own evaluation does
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]]
    titles: dict[str, str] = field(default_factory=dict)
    source: str = ""  # the file of the judgements
    understood: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


Record = TypeVar("Record")


def counted(number: int, what: str, many: str = "") -> str:
    """A number of things in words: 1 record, 2,000 records; `many`: the plural, where it does not end in s alone."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


@dataclass(frozen=True)
class Read(Generic[Record]):
    """The records of a source, what was understood of its form (one sentence each), doubts, counted, and what the column of
    their numbers is called, where they have one."""

    examples: list[Record]
    understood: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    target: str = ""
