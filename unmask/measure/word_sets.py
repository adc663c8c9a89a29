"""Test sets of static vectors: pairs of words that people judged, and analogies. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from unmask.errors import UnmaskError


class WordPair(NamedTuple):
    """Two words, and how alike people find them: higher is more."""

    one: str
    other: str
    score: float


class Analogy(NamedTuple):
    """`a` is to `b` as `c` is to `d`, of a section of the set."""

    section: str
    a: str
    b: str
    c: str
    d: str


def read_pairs(path: Path) -> list[WordPair]:
    """Pairs from a file: word, word, number a line, parted by tabs, commas or spaces; what follows them is not looked at.

    A first line without a number names the columns; lines with # are remarks. UnmaskError names the line of anything else.
    """
    rows, pairs = _rows(path), list[WordPair]()
    for line, fields in rows:
        score = _number(fields[2]) if len(fields) > 2 else math.nan
        if math.isfinite(score):
            pairs.append(WordPair(fields[0], fields[1], score))
        elif line > rows[0][0]:
            raise _wrong(path, line, "this is not two words and a number", "write word, word and score, parted by tabs")
    if not pairs:
        raise UnmaskError("there is no pair of words in it", where=str(path), do="write word, word and score a line")
    return pairs


def is_analogies(path: Path) -> bool:
    """Whether a file holds analogies rather than pairs: neither of its first two lines has a number in third place."""
    return not any(len(fields) > 2 and math.isfinite(_number(fields[2])) for _, fields in _rows(path)[:2])


def read_analogies(path: Path) -> list[Analogy]:
    """Analogies from a file: section, a, b, c, d parted by tabs under a line of these names, or as Google's set has them:
    four words a line under lines ": section". UnmaskError names the line of anything else."""
    rows, section, questions = _rows(path), "", list[Analogy]()
    if rows[0][1] == ["section", "a", "b", "c", "d"]:
        del rows[0]
        for line, fields in rows:
            if len(fields) != 5:
                raise _wrong(path, line, "this is not a section and four words", "part them by tabs")
            questions.append(Analogy(*fields))
        return questions
    for line, fields in rows:
        if fields[0].startswith(":"):
            section = " ".join(fields).removeprefix(":").strip()
        elif len(fields) != 4:
            raise _wrong(path, line, "this is not an analogy of four words", 'write "a b c d", or ": section"')
        else:
            questions.append(Analogy(section, *fields))
    if not questions:
        raise UnmaskError("there is no analogy in it", where=str(path), do="write four words a line")
    return questions


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """(line from 1, fields) of all lines that are no remarks."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnmaskError(f"cannot read: {error.strerror or error}", where=str(path), do="check the path") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise _wrong(path, line, "the file is not UTF-8", "save it as UTF-8") from error
    rows = list(_split(text))
    if not rows:
        raise UnmaskError("the file is empty", where=str(path), do="name a file with words")
    return rows


def _split(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            part = "\t" if "\t" in line else "," if "," in line else None
            yield number, [field.strip() for field in line.split(part)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _wrong(path: Path, line: int, what: str, do: str) -> UnmaskError:
    return UnmaskError(what, where=f"{path}:{line}", do=do)
