"""Settings between files, command lines and frozen dataclasses: TOML and JSON in, JSON out, dotted overrides, errors that teach.

A union of dataclasses is told apart by the `kind` field each member carries; where none is named, the kind that is there
already is meant (in a file, the default's), or the only one that has such fields. In a tuple of such members, a dotted path
may name the member by its kind: `objectives.mlm.mask_rate=0.3`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from unmask.errors import UnmaskError

T = TypeVar("T")
ELSEWHERE: Mapping[str, tuple[str, ...]] = {  # what other tools call a setting or a value, and our names for it
    "batch_size": ("batch", "examples"),
    "gpu": ("cuda",),
    "lr": ("learning_rate",),
    "num_epochs": ("epochs",),
}


def parse(kind: type[T], data: object, *, where: str = "settings") -> T:
    """Builds the dataclass `kind` from plain data (what TOML or JSON gives); UnmaskError on anything unknown or mistyped."""
    return typing.cast(T, _value(kind, data, "", where))


def plain(value: object) -> Any:
    """The plain data of a dataclass tree: what `parse` reads back equal and JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain data; UnmaskError with line and column when it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UnmaskError(
            f"cannot read the settings file: {error.strerror}", where=str(path), do="check the path"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UnmaskError("the settings file is not UTF-8", where=f"{path}:{line}", do="save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, and Python's own limits on digits and depth
        raise UnmaskError(f"not a TOML file: {error}", where=str(path), do="mend the line named above") from None


def override(kind: type[T], settings: T, assignments: Sequence[str]) -> T:
    """Applies `a.b=c` assignments, left to right, then checks the whole once.

    The right side is read as TOML (`3e-4`, `true`, `[0.9, 0.98]`); what is not TOML is a string (`hidden_act=gelu`), and
    so is everything where text is wanted (`corpus=2024`). A union's kind can be given alone (`schedule=cosine`), and
    `until.minutes=5` is enough to change what `until` counts.
    """
    data = plain(settings)
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UnmaskError(
                f"{text!r} is not an assignment",
                where="--set",
                do="write it as name=value, e.g. optimizer.learning_rate=3e-4",
            )
        data = _assign(kind, data, name.strip(), name.strip().split("."), value.strip())
    return parse(kind, data, where="--set")


def _literal(text: str, kind: Any) -> object:
    """What the right side of an assignment means where a value of type `kind` is wanted."""
    try:
        found = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):  # TOMLDecodeError, and Python's own limits on digits and depth
        return text
    return text if len(found) > 1 or (kind is str and not isinstance(found["x"], str)) else found["x"]


def _assign(kind: Any, data: Any, whole: str, path: list[str], value: str) -> Any:
    """A copy of the plain `data` of type `kind` in which the place `path` holds what `value` means there."""
    members = _members(kind)
    data = {"kind": data} if isinstance(data, str) and members else data
    if not path:
        return _with_kind(members, data, _literal(value, kind))
    head, rest = path[0], path[1:]
    prefix = whole[: len(whole) - len(".".join(path))]
    if isinstance(data, list):
        place = _place(data, head, prefix)
        return [*data[:place], _assign(get_args(kind)[0], data[place], whole, rest, value), *data[place + 1 :]]
    if not isinstance(data, dict):
        raise UnmaskError(
            f"{prefix.rstrip('.')} is a plain value", where=f"--set {whole}", do=f"set {prefix.rstrip('.')}=… instead"
        )
    here = _member(members, data) or kind
    hints = typing.get_type_hints(here)
    if head == "kind" and members and not rest:
        return _other_kind(members, data, value)
    if head in hints:
        return data | {head: _assign(hints[head], data.get(head), whole, rest, value)}
    others = [m for m in members if head in typing.get_type_hints(m)]
    if len(others) == 1 and not rest:
        other = _other_kind(members, data, _kind_of(others[0]))
        return other | {head: _literal(value, typing.get_type_hints(others[0])[head])}
    raise _unknown([prefix + head], [prefix + name for name in hints], "--set", here)


def _with_kind(members: Sequence[Any], data: Any, new: object) -> object:
    """A whole table that names no kind is of the kind that stands in its place, if it has such fields."""
    here = _member(members, data) if isinstance(data, dict) else None
    if here is None or not isinstance(new, dict) or not new or not set(new) <= set(typing.get_type_hints(here)):
        return new
    return {"kind": data["kind"]} | new


def _other_kind(members: Sequence[Any], data: dict[str, Any], kind: str) -> dict[str, Any]:
    """The table as another member of its union, which keeps the fields that both have."""
    kept = next((typing.get_type_hints(member).keys() for member in members if _kind_of(member) == kind), data.keys())
    return {name: value for name, value in data.items() if name in kept} | {"kind": kind}


def _place(items: list[Any], name: str, prefix: str) -> int:
    tables = [item if isinstance(item, dict) else {"kind": item} for item in items]
    kinds = [str(table.get("kind", place)) for place, table in enumerate(tables)]
    if name.isdecimal() and int(name) < len(items):
        return int(name)
    if name not in kinds:
        raise _unknown([prefix + name], [prefix + kind for kind in kinds], "--set")
    return kinds.index(name)


def _value(kind: Any, data: object, path: str, where: str, usual: object = None) -> Any:
    """One value of the annotated type, or an error that names its path; `usual` is what would be there without it."""
    members = _members(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data, path, where)
    if members and all(dataclasses.is_dataclass(m) for m in members):
        data = {"kind": data} if isinstance(data, str) else data
        return _dataclass(_choose(members, data, path, where, usual), data, path, where)
    if get_origin(kind) is Literal:
        if data in get_args(kind) and not isinstance(data, bool):
            return data
        raise _unknown([f"{path} = {_shown(data)}"], [str(a) for a in get_args(kind)], where)
    if get_origin(kind) is tuple:
        if not isinstance(data, list | tuple):
            raise _mistyped(path, data, "a list", where)
        kinds = [_kind_of(member) for member in _members(get_args(kind)[0])]
        told = [item.get("kind") if isinstance(item, dict) else None for item in data]
        names = [name if name in kinds else place for place, name in enumerate(told)]
        return tuple(
            _value(get_args(kind)[0], item, f"{path}.{name}", where) for name, item in zip(names, data, strict=True)
        )
    return _scalar(kind, data, path, where)


def _scalar(kind: Any, data: object, path: str, where: str) -> Any:
    if kind in (int, float) and isinstance(data, int) and not -(2**63) <= data < 2**63:
        raise _mistyped(path, data, "a number of at most 64 bits", where)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind is not bool and isinstance(data, bool)):
        words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
        raise _mistyped(path, data, words.get(kind, str(kind)), where)
    if isinstance(data, float) and not math.isfinite(data):
        raise _mistyped(path, data, "a finite number", where)
    return data


def _dataclass(kind: Any, data: object, path: str, where: str) -> Any:
    if isinstance(data, kind):
        return data
    if not isinstance(data, dict):
        raise _mistyped(
            path, data, f"a table with the fields {', '.join(f.name for f in dataclasses.fields(kind))}", where
        )
    hints = typing.get_type_hints(kind)
    dot = f"{path}." if path else ""
    if unknown := [dot + str(name) for name in data if name not in hints]:
        raise _unknown(unknown, [dot + name for name in hints], where, kind)
    needed = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing := [dot + name for name in needed if name not in data]:
        raise UnmaskError(f"{', '.join(missing)} must be given", where=where, do=f"add {missing[0]} = …")
    usual = {f.name: _usual(f) for f in dataclasses.fields(kind)}
    values = {name: _value(hints[name], item, dot + name, where, usual[name]) for name, item in data.items()}
    try:
        return kind(**values)
    except ValueError as error:  # a dataclass checks its own ranges in __post_init__
        raise UnmaskError(
            f"{dot}{error}" if path else str(error), where=where, do="choose a value within the limits named"
        ) from None


def _usual(field: dataclasses.Field[Any]) -> object:
    """What stands in a field that nobody sets."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _choose(members: Sequence[Any], data: object, path: str, where: str, usual: object) -> Any:
    if any(isinstance(data, m) for m in members):
        return type(data)
    if not isinstance(data, dict):
        raise _mistyped(path, data, f"a table with kind = {' | '.join(_kind_of(m) for m in members)}", where)
    if "kind" in data:
        for member in members:
            if _kind_of(member) == data["kind"]:
                return member
        raise _unknown([f"{path}.kind = {_shown(data['kind'])}"], [_kind_of(m) for m in members], where)
    fitting = [m for m in members if set(data) <= set(typing.get_type_hints(m))]
    if data and type(usual) in fitting:
        return type(usual)
    if len(fitting) != 1:
        names = " | ".join(_kind_of(m) for m in members)
        raise UnmaskError(f"{path} does not say which kind it is", where=where, do=f'add kind = "…", one of {names}')
    return fitting[0]


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()


def _member(members: Sequence[Any], data: dict[str, Any]) -> Any:
    """The member of a union that a table names; None where it names none."""
    return next((member for member in members if _kind_of(member) == data.get("kind")), None)


def _kind_of(member: Any) -> str:
    return str(next(f.default for f in dataclasses.fields(member) if f.name == "kind"))


def _unknown(names: Sequence[str], valid: Sequence[str], where: str, kind: Any = None) -> UnmaskError:
    """Names the nearest valid names, and the place of a field of that name further down in the dataclass `kind`."""
    prefix, _, last = names[0].split(" = ")[-1].strip('"').rpartition(".")
    by_last = {name.rpartition(".")[2]: name for name in valid}
    last = next((ours for ours in ELSEWHERE.get(last, ()) if ours in by_last or _below(kind, ours)), last)
    near = [by_last[name] for name in difflib.get_close_matches(last, by_last, n=3, cutoff=0.55)]
    near = [by_last[last]] if last in by_last else near
    near = [f"{prefix}.{path}".lstrip(".") for path in _below(kind, last)][:3] or near
    advice = f"did you mean {' or '.join(near)}? " if near else ""
    shown = ", ".join(valid[:20]) + (" …" if len(valid) > 20 else "")
    return UnmaskError(f"unknown setting {', '.join(names)[:200]}", where=where, do=f"{advice}valid here: {shown}")


def _below(kind: Any, name: str) -> list[str]:
    """The different paths of the fields of that name."""
    return [*dict.fromkeys(path for path in _paths(kind) if path.rpartition(".")[2] == name)]


def _paths(kind: Any) -> Iterator[str]:
    """The dotted paths of all fields below a dataclass; members of a tuple go by their kind."""
    if dataclasses.is_dataclass(kind):
        for name, hint in typing.get_type_hints(kind).items():
            yield name
            many = get_origin(hint) is tuple
            for member in _members(get_args(hint)[0] if many else hint) or (hint,):
                yield from (
                    f"{name}.{_kind_of(member)}.{path}" if many else f"{name}.{path}" for path in _paths(member)
                )


def _mistyped(path: str, data: object, wanted: str, where: str) -> UnmaskError:
    return UnmaskError(
        f"{path or 'the whole'} must be {wanted}, not {_shown(data)}", where=where, do="correct its type"
    )


def _shown(data: object) -> str:
    try:
        return json.dumps(data, default=str, ensure_ascii=False)[:80]
    except (ValueError, RecursionError):  # thousands of digits or levels, which Python refuses to spell
        return f"a {type(data).__name__} too long to show"
