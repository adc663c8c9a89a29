"""Texts and pairs of texts with a label, several labels or a number, from any table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from unmask.errors import UnmaskError
from unmask.labelled.columns import check_mapping, find_column, no_column, spoken, text_value, used, value_of
from unmask.labelled.records import Read, TextExample
from unmask.labelled.rows import Doubts, Row, Table, read_table

Kind = Literal["label", "labels", "number"]
Value = str | tuple[str, ...] | float
LARGEST = 1e15  # of a number to be learned, and of a teacher's score: fp32 must hold its square
ROLES = ("text", "pair", "label")
PAIRS = (
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("claim", "evidence"),
    ("query", "passage"),
    ("query", "document"),
    ("text", "text_pair"),
    ("text", "pair"),
)
TEXTS = (
    *(
        "text",
        "sentence",
        "content",
        "review",
        "comment",
        "comment_text",
        "document",
        "body",
        "message",
        "tweet",
        "sms",
    ),
    *("utterance", "review_body", "review_text", "text_a", "sentence1", "question", "query", "文本", "内容"),
)
NAMED = ("label", "class", "category", "intent", "sentiment", "gold_label", "target", "标签")
LABELS: Mapping[Kind, tuple[str, ...]] = {
    "label": (*NAMED, "labels"),
    "labels": ("labels", "label", "categories", "classes", "intents", "tags", "genres"),
    "number": (
        *("score", "similarity", "similarity_score", "relatedness_score", "label", "labels", "target", "value"),
        *("rating", "stars"),
    ),
}
FLAGS: Mapping[object, bool] = {"0": False, "1": True, 0: False, 1: True}  # True and 1.0 are found as 1
NUMBERS = ("id", "_id", "idx", "index", "unnamed: 0", "")  # columns that count the rows: never labels of 0 and 1


def read_texts(
    source: str, *, columns: Mapping[str, str] = {}, kind: Kind = "label", asked: bool = False
) -> Read[TextExample]:
    """Every record of a file as a text, or a pair of texts, and its label.

    `columns` maps text, pair and label to the file's own names; what it leaves out is found by its usual name. With kind
    "labels" a record has a list of strings, or the file one column of 0 and 1 for each label, some of which may be named
    as "label": "first,second". With "number" every label must be finite. `asked`: labels are not looked at.
    White space around a label is not part of it.
    """
    table = read_table(source)
    doubts = Doubts()
    text, pair = _text_columns(table, columns)
    said = {"text": text, "second text": pair}
    label: Callable[[Row], Value] | None = None
    if not asked:
        label, found = _labels(table, columns, kind, {text, pair})
        said |= found
    examples = []
    for row in table.rows:
        first = text_value(row, text)
        second = None if pair is None else text_value(row, pair)
        if not first or second == "":
            doubts.add("empty texts", row.place)
        examples.append(TextExample(first, second, label(row) if label else None, row.place))
    understood, warnings = (*table.understood, *used(table, said)), (*table.warnings, *doubts.warnings)
    return Read(examples, understood, warnings, target=said.get("number") or "")


def _text_columns(table: Table, columns: Mapping[str, str]) -> tuple[str, str | None]:
    check_mapping(table, {role: name for role, name in columns.items() if role != "label"}, ROLES)
    if "text" in columns:
        return columns["text"], columns.get("pair")
    if "pair" not in columns:
        for one, other in PAIRS:
            first, second = find_column(table, "text", [one], {}), find_column(table, "pair", [other], {})
            if first is not None and second is not None:
                return first, second
    taken = {columns.get("pair"), columns.get("label")}
    text = next((c for name in TEXTS if (c := find_column(table, "text", [name], {})) and c not in taken), None)
    text = text or _only_text(table, taken)
    if text is None:
        raise no_column(table, "none of the columns is known to hold the text", "text")
    return text, columns.get("pair")


def _only_text(table: Table, taken: set[str | None]) -> str | None:
    """The only column, besides one of labels, that holds strings which are not numbers."""
    known = {name for names in LABELS.values() for name in names} | {*NUMBERS}
    sample = [row.values for row in table.rows[:20]]
    texts = [
        name
        for name in table.columns
        if name not in taken and name.casefold() not in known and any(_is_text(values.get(name)) for values in sample)
    ]
    return texts[0] if len(texts) == 1 else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != "" and _number(value) is None


def _labels(
    table: Table, columns: Mapping[str, str], kind: Kind, taken: set[str | None]
) -> tuple[Callable[[Row], Value], dict[str, str | None]]:
    """How to read a record's label, and which columns say it."""
    if kind == "labels" and (named := _flag_columns(table, columns.get("label"), taken)):
        return (lambda row: _flags(row, named)), {f"label {name!r}": name for name in named}
    check_mapping(table, {role: name for role, name in columns.items() if role == "label"}, ROLES)
    usual = LABELS[kind]
    label = find_column(table, "label", [name for name in usual if name not in taken], columns)
    if label is None:
        raise no_column(table, "none of the columns is known to hold the label", "label")
    names = table.names.get(label, ())
    match kind:
        case "number":
            return (lambda row: _finite(row, label)), {"number": label}
        case "labels":
            return (lambda row: _several(row, label, names)), {"labels": label}
        case "label":
            return (lambda row: one_label(value_of(row, label), label, row, names)), {"label": label}


def one_label(value: object, column: str, row: Row, names: tuple[str, ...] = ()) -> str:
    """The one label of a cell: a string, a whole number (by its name where there are names) or true or false."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() if value.strip():
            return value.strip()
        case int() if names:
            if 0 <= value < len(names):
                return names[value]
            why = f"{column!r} is {value}, and the file names the numbers 0 to {len(names) - 1}"
            raise UnmaskError(why, where=str(row.place), do="leave out records without a label")
        case int():
            return str(value)
        case float() if value.is_integer():
            return str(int(value))
        case str():
            what = "empty"
        case float() if not math.isnan(value):
            what = f"the number {value}"
        case _:
            what = spoken(value)
    do = "give each record one label: a string or a whole number; numbers are learned as such by a regression"
    raise UnmaskError(f"{column!r} is {what}, not a label", where=str(row.place), do=do)


def _finite(row: Row, column: str) -> float:
    """A number whose square, summed over a large batch, is still finite in fp32."""
    value = value_of(row, column)
    number = _number(value)
    if number is None:
        shown = repr(value) if isinstance(value, str) else spoken(value)
        raise UnmaskError(f"{column!r} is {shown}, not a finite number", where=str(row.place), do="write it as 3.8")
    if abs(number) > LARGEST:
        what = f"{column!r} is {number:.3g}, and numbers beyond {LARGEST:.0e} can't be learned"
        raise UnmaskError(what, where=str(row.place), do="divide all numbers, or learn their logarithms")
    return number


def _number(value: object) -> float | None:
    """The finite number a value is or spells."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or (isinstance(value, str) and "_" in value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _several(row: Row, column: str, names: tuple[str, ...]) -> tuple[str, ...]:
    value: Any = value_of(row, column)
    if not isinstance(value, list):
        shown = f"the string {value!r}" if isinstance(value, str) else spoken(value)
        do = "write a list of strings (JSON, Parquet), or one column of 0 and 1 for each label"
        raise UnmaskError(f"{column!r} is {shown}, not a list of labels", where=str(row.place), do=do)
    return tuple(dict.fromkeys(one_label(one, column, row, names) for one in value))


def _flag_columns(table: Table, mapped: str | None, taken: set[str | None]) -> list[str]:
    """The columns of 0 and 1: those a person named, else, where no column holds lists of labels, all there are."""
    if mapped is not None:
        named = [mapped] if mapped in table.columns else [name.strip() for name in mapped.split(",")]
        for name in named:
            check_mapping(table, {"label": name}, ROLES)
        return [] if len(named) == 1 and not _is_flag_column(table, named[0]) else named
    if find_column(table, "label", LABELS["labels"], {}) is not None:
        return []
    others = [name for name in table.columns if name not in taken and name.casefold() not in NUMBERS]
    return [name for name in others if _is_flag_column(table, name)]


def _is_flag_column(table: Table, column: str) -> bool:
    return all(_flag(row.values.get(column)) is not None for row in table.rows)


def _flag(value: object) -> bool | None:
    return FLAGS.get(value) if isinstance(value, int | float | str) else None


def _flags(row: Row, columns: list[str]) -> tuple[str, ...]:
    taken = []
    for column in columns:
        flag = _flag(value_of(row, column))
        if flag is None:
            shown = repr(row.values[column])
            raise UnmaskError(f"{column!r} is {shown}, not 0 or 1", where=str(row.place), do="write 1 where it applies")
        if flag:
            taken.append(column)
    return tuple(taken)
