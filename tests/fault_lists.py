"""Lists of faults in test files: a line for each fault, and below it the tests that keep it out."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


def listed(faults: str) -> dict[str, list[str]]:
    """The tests of each fault by its name: lines "NAME what must hold instead", and below each, further in, FILE::test_name.

    No name is there twice, and no line is anything else.
    """
    found = re.findall(r"^(\S+) .+\n((?:  \S+::test_\w+\n)+)", faults, re.MULTILINE)
    tests = {name: rows.split() for name, rows in found}
    assert len(tests) == len(found), "a fault is listed twice"
    assert len(tests) + sum(map(len, tests.values())) == len(faults.strip().splitlines()), "a line belongs nowhere"
    return tests


def require_tests(tests: Sequence[str]) -> None:
    """That the tests named as FILE::test_name are there, at least one, each named once."""
    assert tests and len(set(tests)) == len(tests)
    for test in tests:
        file, name = test.split("::")
        assert name in _named_in(file), test


@cache
def _named_in(file: str) -> frozenset[str]:
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
