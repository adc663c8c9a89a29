"""Files with a word a line and columns beside it (CoNLL): sentences of words and tags, each word with its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from unmask.errors import UnmaskError
from unmask.labelled.records import Place
from unmask.labelled.rows import Strict, text_lines, text_of_file
from unmask.text.documents import DamagedInputError
from unmask.text.streams import Compression

BLANKS = " \t"  # of all white space only these part columns: a word may hold or be any other
DOCUMENT = "-DOCSTART-"
CONLL_U = 10  # columns, the first of which numbers the words
TAG = re.compile("O|[A-Z]-.+")
Split = Callable[[str], list[str]]


@dataclass(frozen=True)
class Sentence:
    """Words with their tags (None: asked), the place of the first, and the line of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    place: Place
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Columns:
    """What a file's lines look like: how they fall into columns, how many, and which of these are read."""

    split: Split
    tabs: bool
    width: int
    word: int
    tag: int | None


def read_columns(
    source: str, compression: Compression, word: int, tag: int | None
) -> tuple[list[Sentence], tuple[str, ...]]:
    """All sentences, and what was understood. Columns count from 0, or from the end below 0; no `tag`: words alone.

    Blank lines and -DOCSTART- end a sentence. A line that begins with # is a comment unless it has the columns of a word:
    as many as the others have and, where spaces part them, a tag that other words have too or that looks like one.
    """
    reading = Strict()
    try:
        numbered = list(text_lines(source, text_of_file(source, compression, reading), reading))
    except DamagedInputError as error:
        raise UnmaskError(error.why, where=source, do=error.do) from error
    columns = _columns(source, numbered, word, tag)
    words, comments = _without_comments(numbered, columns)
    sentences = list(_sentences(source, words, columns))
    if not sentences:
        raise UnmaskError("there is no sentence in it", where=source, do="write a word and its tag on each line")
    parted = "tabs" if columns.tabs else "spaces"
    said = [f"{source}: {len(sentences):,} sentences, a word a line, {columns.width} columns parted by {parted}"]
    said.append(f"the word is column {columns.word}" + ("" if tag is None else f", the tag column {columns.tag}"))
    said += [f"{comments:,} comment lines"] * bool(comments)
    return sentences, (*said, *["a byte order mark was removed"] * bool(reading.report.boms))


def _columns(source: str, numbered: list[tuple[int, str]], word: int, tag: int | None) -> Columns:
    lines = [(number, text) for number, text in numbered if _is_data(text)]
    plain = [(number, text) for number, text in lines if not text.startswith("#")] or lines
    if not plain:
        raise UnmaskError("there is no sentence in it", where=source, do="write a word and its tag on each line")
    tabs = sum("\t" in text for _, text in plain) * 2 > len(plain)
    split = _by_tabs if tabs else _by_blanks
    width = Counter(len(split(text)) for _, text in plain).most_common(1)[0][0]
    number, first = next((number, text) for number, text in plain if len(split(text)) == width)
    where, shown = f"{source}, line {number}", f"{width} columns: {split(first)}"
    places = []
    for name, column in (("word", word), ("tag", tag)):
        if column is not None and not -width <= column < width:
            raise UnmaskError(f"there is no column {column} for the {name}: the lines have {shown}", where=where)
        places.append(None if column is None else column % width)
    at, other = places
    assert at is not None
    if at == other:
        do = "part the word and its tag by a tab or a space, or choose other columns"
        raise UnmaskError(f"word and tag are both column {at}: the lines have {shown}", where=where, do=do)
    return Columns(split, tabs, width, at, other)


def _is_data(text: str) -> bool:
    return text.strip(BLANKS) != "" and not text.startswith(DOCUMENT)


def _by_tabs(text: str) -> list[str]:
    return text.rstrip(BLANKS).split("\t")


def _by_blanks(text: str) -> list[str]:
    return re.split(r"[ \t]+", text.strip(BLANKS))


def _without_comments(numbered: list[tuple[int, str]], columns: Columns) -> tuple[list[tuple[int, str]], int]:
    """The lines that are no comments, and how many are."""
    cells = [columns.split(text) for _, text in numbered if _is_data(text) and not text.startswith("#")]
    tags = {line[columns.tag] for line in cells if len(line) == columns.width} if columns.tag is not None else set()

    def is_comment(text: str) -> bool:
        if not text.startswith("#"):
            return False
        line = columns.split(text)
        if len(line) != columns.width:
            return True
        if columns.tabs or columns.tag is None:
            return False
        return line[columns.tag] not in tags and not TAG.fullmatch(line[columns.tag])

    kept = [(number, text) for number, text in numbered if not is_comment(text)]
    return kept, len(numbered) - len(kept)


def _sentences(source: str, numbered: list[tuple[int, str]], columns: Columns) -> Iterator[Sentence]:
    held: list[tuple[int, list[str]]] = []
    record = 1
    for number, text in [*numbered, (0, "")]:
        if _is_data(text):
            cells = columns.split(text)
            _check(cells, columns, f"{source}, line {number}, record {record}")
            if columns.width != CONLL_U or not re.fullmatch(r"\d+[-.]\d+", cells[0]):
                held.append((number, cells))  # else a word that is also given in its parts, or one that is not written
        elif held:
            yield _sentence(source, held, record, columns)
            held, record = [], record + 1


def _check(cells: list[str], columns: Columns, where: str) -> None:
    if len(cells) != columns.width:
        others = f"{columns.width} columns parted by {'tabs' if columns.tabs else 'spaces'}"
        do = "give every word all columns; sentences are parted by blank lines"
        raise UnmaskError(f"a line of {len(cells)} columns, where others have {others}: {cells}", where=where, do=do)
    if columns.tag is not None and not cells[columns.tag]:
        raise UnmaskError(f"the word {cells[columns.word]!r} has no tag", where=where, do="give every word a tag")


def _sentence(source: str, held: list[tuple[int, list[str]]], record: int, columns: Columns) -> Sentence:
    return Sentence(
        tuple(cells[columns.word] for _, cells in held),
        None if columns.tag is None else tuple(cells[columns.tag] for _, cells in held),
        Place(source, held[0][0], record),
        tuple(number for number, _ in held),
    )
