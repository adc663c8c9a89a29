"""Words with tags, from columns (CoNLL), from records of words, or from running text with spans of characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from unmask.config.tasks import Repair, Scheme
from unmask.errors import UnmaskError
from unmask.labelled.columns import (
    check_mapping,
    find_column,
    list_value,
    no_column,
    spoken,
    text_in,
    text_value,
    used,
    value_of,
)
from unmask.labelled.conll import Sentence, read_columns
from unmask.labelled.records import Place, Read, TaggedExample
from unmask.labelled.rows import Doubts, Row, Table, form_of, read_table
from unmask.labelled.schemes import repaired, spans_to_tags
from unmask.labelled.spans import lay_over_words, read_spans
from unmask.labelled.texts import TEXTS
from unmask.text.running_text import Parting, has_segments

ROLES = ("words", "tags", "text", "spans")
WORDS = ("tokens", "words", "token", "word")
TAGS = ("labels", "tags", "ner_tags", "ner", "bio_tags", "label", "pos_tags", "upos", "pos")
PARTED = (
    "words that a span begins or ends in, read as parts here, but as whole words in a text without spans: scores may be"
    " better than predictions"
)
SEGMENTS = "Chinese texts, cut into single characters, though the model learned words of several: better give it words"
SHOWN = 20  # names of numbers that a sentence lists
SPANS = ("spans", "entities", "label", "labels", "annotations")


def read_tagged(
    source: str,
    *,
    columns: Mapping[str, str] = {},
    word_column: int = 0,
    tag_column: int = -1,
    names: Sequence[str] = (),
    repair: Repair = "begin",
    scheme: Scheme = "bio",
    parting: Parting = "runs",
    asked: bool = False,
) -> Read[TaggedExample]:
    """Every sentence of a file.

    JSON, Parquet and saved data sets hold lists of words and of tags, or a text with spans: [[begin, end, type]], objects,
    or CLUENER's {type: {surface: [[begin, last]]}}. `columns` maps words, tags, text and spans to the file's own names.
    Any other file has a word a line (CoNLL), with `word_column` and `tag_column` counted from 0, or from the end below 0;
    `columns` may map words and tags to such numbers.
    `names` are what tags that are numbers stand for, where the file does not know it. `scheme` is the one of the tags;
    spans become tags of it. A broken entity begins where it is, is dropped (`repair`), both counted, or is an error. A
    text is cut into words by `parting`.
    `asked`: tags are not looked at.
    """
    if repair not in get_args(Repair) or scheme not in get_args(Scheme):
        do = f"repair is {', '.join(get_args(Repair))}; scheme {', '.join(get_args(Scheme))}"
        raise UnmaskError(f"unknown repair {repair!r} or scheme {scheme!r}", do=do)
    form, compression = form_of(source)
    if form == "csv":
        do = "save it with a word and its tag on each line, parted by a tab (.tsv), or as JSON lines of words and tags"
        raise UnmaskError("tagged words are not read from .csv", where=source, do=do)
    doubts = Doubts()
    if form in ("tsv", "txt", "other"):
        word_column, tag_column = _column_numbers(source, columns, word_column, tag_column)
        sentences, understood = read_columns(source, compression, word_column, None if asked else tag_column)
        made = [_from_sentence(one, scheme, repair, doubts) for one in sentences]
        return Read(made, understood, doubts.warnings)
    table = read_table(source)
    check_mapping(table, columns, ROLES)
    make, said = _reader(table, columns, tuple(names), scheme, repair, parting, asked, doubts)
    made = [make(row) for row in table.rows]
    numbered = _numbered(table, said.get("list of tags"), names)
    return Read(made, (*table.understood, *used(table, said), *numbered), (*table.warnings, *doubts.warnings))


def _numbered(table: Table, tags: str | None, names: Sequence[str]) -> list[str]:
    """A sentence on what tags that are numbers were taken for, where the file does not say it."""
    if tags is None or tags in table.names or not names:
        return []
    first = next((found for row in table.rows if (found := row.values.get(tags))), None)
    if not isinstance(first, list) or not isinstance(first[0], int):
        return []
    return [f"tags are numbers: {', '.join(f'{at} is {name}' for at, name in enumerate(names[:SHOWN]))}"]


def _column_numbers(source: str, columns: Mapping[str, str], word: int, tag: int) -> tuple[int, int]:
    """The columns of word and tag, where a person mapped them to numbers."""
    found = {"words": word, "tags": tag}
    for role, column in columns.items():
        if role not in found or not re.fullmatch(r"-?[0-9]+", column):
            do = "map words and tags to numbers of columns, e.g. --map words=0 --map tags=3; -1 is the last"
            raise UnmaskError(f"{role}={column} is no column of a file with a word a line", where=source, do=do)
        found[role] = int(column)
    return found["words"], found["tags"]


def _from_sentence(sentence: Sentence, scheme: Scheme, repair: Repair, doubts: Doubts) -> TaggedExample:
    def where(at: int) -> str:
        place = Place(sentence.place.file, sentence.lines[at], sentence.place.record)
        return f"{place}, word {at + 1} {sentence.words[at]!r}"

    tags = None if sentence.tags is None else repaired(sentence.tags, scheme, repair, where, doubts)
    return TaggedExample(sentence.words, tags, sentence.place)


def _reader(
    table: Table,
    columns: Mapping[str, str],
    names: tuple[str, ...],
    scheme: Scheme,
    repair: Repair,
    parting: Parting,
    asked: bool,
    doubts: Doubts,
) -> tuple[Callable[[Row], TaggedExample], dict[str, str | None]]:
    """How to make an example of a record, and which columns say it."""
    words = find_column(table, "words", WORDS, columns)
    text = find_column(table, "text", TEXTS, columns)
    if words is not None and ("words" in columns or text is None or _is_words(table.rows[0].values.get(words))):
        tags = None if asked else find_column(table, "tags", TAGS, columns)
        if tags is None and not asked:
            raise no_column(table, "none of the columns is known to hold the tags", "tags")
        known = table.names.get(tags or "", ()) or names
        said = {"list of words": words, "list of tags": tags}
        return (lambda row: _from_words(row, words, tags, known, scheme, repair, doubts)), said
    if text is None:
        raise no_column(table, "none of the columns is known to hold words, or a text with spans", "words")
    spans = None if asked else find_column(table, "spans", SPANS, columns)
    if spans is None and not asked:
        raise no_column(table, "none of the columns is known to hold the spans of the text", "spans")
    return (lambda row: _from_text(row, text, spans, scheme, parting, doubts)), {"text": text, "list of spans": spans}


def _is_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _from_words(
    row: Row,
    column: str,
    tag_column: str | None,
    names: tuple[str, ...],
    scheme: Scheme,
    repair: Repair,
    doubts: Doubts,
) -> TaggedExample:
    words = tuple(text_in(word, column, row) for word in list_value(row, column))
    if not words:
        doubts.add("sentences without a word", row.place)
    if tag_column is None:
        return TaggedExample(words, None, row.place)
    given = list_value(row, tag_column)
    if len(given) != len(words):
        what = f"{len(words)} words, but {len(given)} tags"
        raise UnmaskError(what, where=str(row.place), do="give every word one tag")

    def where(at: int) -> str:
        return f"{row.place}, word {at + 1} {words[at]!r}"

    tags = [_tag(tag, names, where(at)) for at, tag in enumerate(given)]
    return TaggedExample(words, repaired(tags, scheme, repair, where, doubts), row.place)


def _tag(value: object, names: tuple[str, ...], where: str) -> str:
    match value:
        case str() if value.strip():
            return value.strip()
        case int() if not isinstance(value, bool) and 0 <= value < len(names):
            return names[value]
        case int() if not isinstance(value, bool):
            what = f"the tag is {value}, and " + (f"there are {len(names)} names" if names else "no names are given")
            do = (
                "write the tags as words, or name what the numbers stand for, in their order: "
                """--set task.labels='["O", "B-PER", …]'"""
            )
        case _:
            what = f"the tag is {'empty' if isinstance(value, str) else spoken(value)}"
            do = "give every word one tag"
    raise UnmaskError(what, where=where, do=do)


def _spans_in(row: Row, column: str) -> object:
    """What a column that was taken for spans holds; the label of a whole text is none."""
    value = value_of(row, column)
    if isinstance(value, str | int | float) or value is None:
        do = "give spans, [[begin, end, type], …], or words with a tag each; labels of whole texts are learned by classify"
        what = f"column {column!r} was taken for the spans of the text, but it is {spoken(value)}"
        raise UnmaskError(what, where=str(row.place), do=do)
    return value


def _from_text(
    row: Row, column: str, span_column: str | None, scheme: Scheme, parting: Parting, doubts: Doubts
) -> TaggedExample:
    text = text_value(row, column)
    spans = [] if span_column is None else read_spans(_spans_in(row, span_column), text, row.place)
    offsets, counted, parted = lay_over_words(text, spans, row.place, parting)
    if parting == "segments" and has_segments(text):
        doubts.add(SEGMENTS, row.place)
    for _ in range(parted):
        doubts.add(PARTED, row.place)
    words = tuple(text[begin:end] for begin, end in offsets)
    tags = None if span_column is None else spans_to_tags(counted, len(words), scheme)
    return TaggedExample(words, tags, row.place, text, tuple(offsets))
