"""Which column of a table is what: the one a person named, else one with a usual name; and its values, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from unmask.errors import UnmaskError
from unmask.labelled.rows import Row, Table

SPOKEN = {str: "a string", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}


def check_mapping(table: Table, columns: Mapping[str, str], roles: Sequence[str]) -> None:
    """UnmaskError where a person maps what there is not: a role nobody asks for, or a column the file lacks."""
    for role, column in columns.items():
        if role not in roles:
            raise UnmaskError(f"{role!r} cannot be mapped", where=table.name, do=f"map {', '.join(roles)}")
        if column not in table.columns:
            raise no_column(table, f"no column {column!r}", role, near=column)


def find_column(table: Table, role: str, usual: Sequence[str], columns: Mapping[str, str]) -> str | None:
    """The column of a role: mapped, else the first of the usual names there is, in upper or lower case."""
    if role in columns:
        return columns[role]
    lower = {name.casefold(): name for name in reversed(table.columns)}
    return next((lower[name] for name in usual if name in lower), None)


def no_column(table: Table, what: str, role: str, *, near: str = "") -> UnmaskError:
    """The error of a column that is missing: says which there are, and how to name one."""
    close = get_close_matches(near, table.columns, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    hint += "a column that is mapped must be in every file of the command; " if near else ""
    listed = ", ".join(repr(name) for name in table.columns) or "none"
    do = f'{hint}the columns are: {listed}; say which it is: --map {role}=COLUMN, columns={{"{role}": …}} in Python'
    return UnmaskError(what, where=table.name, do=do)


def value_of(row: Row, column: str) -> Any:
    """The value of a column, which a record of JSON may lack."""
    if column not in row.values:
        raise UnmaskError(f"no {column!r}", where=str(row.place), do=f"this record has: {', '.join(row.values) or '-'}")
    return row.values[column]


def text_value(row: Row, column: str) -> str:
    """The value of a column that must be a string."""
    return text_in(value_of(row, column), column, row)


def text_in(value: object, what: str, row: Row) -> str:
    """A value that must be a string, named by `what` in the error."""
    if not isinstance(value, str):
        raise UnmaskError(f"{what!r} is {spoken(value)}, not a string", where=str(row.place), do="give a text")
    return value


def list_value(row: Row, column: str) -> list[Any]:
    """The value of a column that must be a list."""
    value = value_of(row, column)
    if not isinstance(value, list):
        raise UnmaskError(f"{column!r} is {spoken(value)}, not a list", where=str(row.place), do="give a list")
    return value


def spoken(value: object) -> str:
    """What a value is, for an error."""
    if value is None:
        return "null"
    if isinstance(value, float) and value != value:
        return "NaN"
    return SPOKEN.get(type(value), f"a {type(value).__name__}")


def used(table: Table, taken: Mapping[str, str | None]) -> tuple[str, ...]:
    """One sentence for each role and its column, and one for the columns nobody reads."""
    said = [f"column {column!r} holds the {role}" for role, column in taken.items() if column is not None]
    rest = [repr(name) for name in table.columns if name not in taken.values()]
    return (*said, *([f"not used: {', '.join(rest)}"] if rest else []))
