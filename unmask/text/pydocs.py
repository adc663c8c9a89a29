"""Python's own documentation as installed, as English documents: a corpus that every machine already has.

It is read from files and nothing is imported or run. `pydoc_data.topics` and every docstring of the standard library
and of the installed packages come out of `ast.parse`, with the longer comments of the same sources; .rst, .md and .txt
guides and the packages' descriptions are text. Tests, licences and what does not parse are left out. Order depends on
names only, never on the disk.
"""

from __future__ import annotations

import ast
import email.message
import email.parser
import email.policy
import hashlib
import os
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from unmask.text.documents import Document
from unmask.text.prose import paragraphs, sentences

LARGEST = 4 * 2**20  # bytes; larger sources are generated tables
LONGEST = 8_000  # characters; a longer document is parted between docstrings
SHORTEST = 200  # characters; less says too little to be a document
SKIPPED_FOLDERS = frozenset(
    ["test", "tests", "testing", "idle_test", "__pycache__", "site-packages", "data", "turtledemo"]
)
NOT_PROSE = ("license", "licence", "copying", "notice", "authors", "requirements", "vocab", "top_level", "entry_points")
NOTE = re.compile(r"^[ \t]*#.*(?:\n[ \t]*#.*){2,}", re.M)
CODE, GUIDES = (".py", ".pyi"), (".rst", ".md", ".txt")


@dataclass(frozen=True, slots=True)
class DocFile:
    """A file that holds documentation, and the module (or "package/guide.rst") it documents."""

    path: Path
    module: str


@dataclass
class DocCounts:
    """What became of the files: how many were read, did not parse or were too large, and repeated paragraphs."""

    files: int = 0
    unreadable: int = 0
    too_large: int = 0
    repeated: int = 0


def python_docs(counts: DocCounts | None = None) -> Iterator[Document]:
    """The documentation of this Python and the packages beside it; the same paragraph never comes twice."""
    counts = counts if counts is not None else DocCounts()
    texts = ((file.module, text) for file in doc_files() for text in file_texts(file, counts))
    return without_repeats(texts, counts)


def doc_files() -> list[DocFile]:
    """Every file that may hold documentation: the standard library's by module name, then the packages'."""
    standard, *sites = dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    found: list[DocFile] = []
    for root in (standard, *sites):
        inside = [DocFile(path, _module(path.relative_to(root))) for path in _walk(Path(root))]
        found += sorted(inside, key=lambda file: (file.module, file.path.suffix))
    return found


def file_texts(file: DocFile, counts: DocCounts) -> list[str]:
    """The documents of one file, paragraphs parted by blank lines; pure, so files may be read in any process."""
    counts.files += 1
    try:
        if file.path.stat().st_size > LARGEST:
            counts.too_large += 1
            return []
        if file.path.suffix in CODE:
            source = _source(file.path)
            return _packed([*_passages(_parsed(source)), _cleaned(_notes(source))])
        return _packed([paragraphs(_guide(file.path))])
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):  # ValueError: NUL bytes, not UTF-8
        counts.unreadable += 1
        return []


def without_repeats(texts: Iterable[tuple[str, str]], counts: DocCounts) -> Iterator[Document]:
    """Documents from (module, text) without the paragraphs seen before: inherited docstrings, aliases, copies."""
    seen: set[bytes] = set()
    number: dict[str, int] = {}
    for module, text in texts:
        fresh = []
        for paragraph in text.split("\n\n"):
            key = hashlib.blake2b(paragraph.encode(errors="replace"), digest_size=16).digest()
            if key in seen:
                counts.repeated += 1
            else:
                seen.add(key)
                fresh.append(paragraph)
        joined = "\n\n".join(fresh)
        if len(joined) >= SHORTEST and sentences(joined) >= 2:
            number[module] = number.get(module, 0) + 1
            yield Document(joined, f"python-docs:{module}", number[module])


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name.lower() not in SKIPPED_FOLDERS and not name.startswith(".")]
        for name in names:
            stem, suffix = os.path.splitext(name.lower())
            guide = suffix in GUIDES and not stem.startswith(NOT_PROSE) and ".dist-info" not in folder
            if suffix in CODE or guide or name == "METADATA":
                yield Path(folder, name)


def _module(path: Path) -> str:
    """ "torch/nn/functional.py" -> "torch.nn.functional"; a guide keeps its path; METADATA is its package's name."""
    if path.name == "METADATA":
        return path.parent.name.partition("-")[0]
    if path.suffix not in CODE:
        return path.as_posix()
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _source(path: Path) -> str:
    with tokenize.open(path) as file:  # honours "# coding:" lines
        return file.read()


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        return ast.parse(source)


def _notes(source: str) -> Iterator[str]:
    """The explanations in comments: blocks of three lines and more."""
    for block in NOTE.findall(source):
        yield "\n".join(line.lstrip().lstrip("#:").removeprefix(" ") for line in block.split("\n"))


def _guide(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.name != "METADATA":
        return text
    message = email.parser.Parser(email.message.EmailMessage, policy=email.policy.compat32).parsestr(text)
    return str(message.get_payload() or message.get("Description", ""))


def _passages(module: ast.Module) -> list[list[str]]:
    """Docstrings for each document-to-be: the module with its functions, every class, every topic of pydoc."""
    own: list[str] = []
    others: list[list[str]] = []
    for node in _statements(module.body):
        match node:
            case ast.ClassDef():
                others.append(list(_strings(node)))
            case ast.Assign(targets=[ast.Name(id="topics")], value=ast.Dict(values=values)):
                others += [[_literal(value)] for value in values]
            case _:
                own += _strings(node)
    return [_cleaned(texts) for texts in (own, *others)]


def _cleaned(texts: Iterable[str]) -> list[str]:
    return [clean for text in texts if (clean := "\n\n".join(paragraphs(text)))]


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body and of the branches in it (`if`, `try`, `with`), whatever would run."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for name in ("body", "handlers", "orelse", "finalbody"):
                for part in getattr(node, name, ()):
                    yield from _statements(part.body if isinstance(part, ast.ExceptHandler) else [part])
        else:
            yield node


def _strings(node: ast.stmt) -> Iterator[str]:
    """The documentation in a statement: docstrings, attribute docs, add_newdoc(…, "…"), x.__doc__ = "…"."""
    match node:
        case ast.Expr(value=ast.Call(args=args)):
            yield from (text for argument in args if " " in (text := _literal(argument)))
        case ast.Expr(value=value):
            yield _literal(value)
        case ast.Assign(targets=[target], value=value) if "doc" in _name(target):
            yield _literal(value)
        case ast.ClassDef(body=body):
            for child in _statements(body):
                yield from _strings(child)
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            yield _literal(body[0].value) if isinstance(body[0], ast.Expr) else ""
            for child in _statements(body):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    yield from _strings(child)


def _name(target: ast.expr) -> str:
    return str(getattr(target, "id", getattr(target, "attr", ""))).lower()


def _literal(node: ast.expr) -> str:
    """The string an expression is made of, without running it: sums, .format(…), dedent(…); "" where there is none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_literal(part) or "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _literal(left)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return "\n\n".join(filter(None, map(_literal, parts)))
        case ast.Call(func=function, args=arguments):
            inner = _literal(function.value) if isinstance(function, ast.Attribute) else ""
            return inner or next(filter(None, map(_literal, arguments)), "")
    return ""


def _packed(passages: Iterable[list[str]]) -> list[str]:
    """One text for each passage, or several where its docstrings together are too long."""
    packed: list[str] = []
    for texts in passages:
        held, size = list[str](), 0
        for text in texts:
            if held and size + len(text) > LONGEST:
                packed.append("\n\n".join(held))
                held, size = [], 0
            held.append(text)
            size += len(text)
        if held:
            packed.append("\n\n".join(held))
    return packed
