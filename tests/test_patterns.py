"""Every regular expression of the package against texts made to keep it busy."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import unmask

SOURCES = {path: path.read_text() for path in Path(unmask.__file__).parent.rglob("*.py")}
SIZE, LIMIT = 100_000, 1.0
FLOODS = [
    "a", "A", "aA", "a.", ". ", "a ", " ", "\t", "\n", "\n \n", "\n#", "1", "1.", "1-1", '"', "'", "中", "。", "中。", "(",
    "[", "(a", "[a", "`", "`a", "*", "*a", "<", "<a", "#", " #", ":", "a:", "-", "a-", "a,", "\\", "$", "/", "http://", "= ", "|",
    "é", "\u0301",
]  # fmt: skip


def patterns() -> dict[str, tuple[re.Pattern[Any], set[str]]]:
    """Every pattern given to `re` in the package, and the methods it is used with; none known: it finds or replaces all."""
    found: dict[str, tuple[re.Pattern[str], set[str]]] = {}
    for module in pkgutil.walk_packages(unmask.__path__, "unmask."):
        names = {**vars(importlib.import_module(module.name)), "self": SimpleNamespace(max_word_length=200)}
        source = SOURCES[Path(names["__file__"])]
        for call in ast.walk(ast.parse(source)):
            if not isinstance(call, ast.Call) or not re.fullmatch(r"re\.\w+", ast.unparse(call.func)):
                continue
            how = ast.unparse(call.func).removeprefix("re.")
            text, *flags = (eval(ast.unparse(node), names) for node in call.args[: 2 if how == "compile" else 1])
            home = re.search(rf"^(\w+) = {re.escape(ast.get_source_segment(source, call) or '')}", source, re.MULTILINE)
            used = {how} - {"compile"}
            if home:
                used = {use for other in SOURCES.values() for use in re.findall(rf"\b{home[1]}\.(\w+)\(", other)}
            found[f"{module.name}: {text}"] = (re.compile(text, *flags), used)
    return found


def run(pattern: re.Pattern[Any], used: set[str], text: str) -> None:
    """As the product does; whatever finds or replaces all is one walk over the text."""
    given = text.encode() if isinstance(pattern.pattern, bytes) else text
    for method in used & {"match", "fullmatch"}:
        getattr(pattern, method)(given)
    if not used <= {"match", "fullmatch"} or not used:
        for _ in pattern.finditer(given):
            pass


PATTERNS = patterns()


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_no_pattern_is_slow_on_any_flood(name: str) -> None:
    """100,000 characters in a second; a pattern that tries every place from every place takes minutes."""
    pattern, used = PATTERNS[name]
    for flood in FLOODS:
        text = (flood * SIZE)[:SIZE]
        for made in (text, text + "#"):
            began = time.perf_counter()
            run(pattern, used, made)
            assert time.perf_counter() - began < LIMIT, (flood, made[-1])


def test_the_patterns_were_found() -> None:
    assert len(PATTERNS) > 40 and any("prose" in name for name in PATTERNS)
    assert any(used == {"match"} for _, used in PATTERNS.values())
