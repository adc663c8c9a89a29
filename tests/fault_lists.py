"""Lists of faults in test files: a line for each fault, and below it the tests that keep it out."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


def require_tests(tests: Sequence[str]) -> None:
    """That the tests named as FILE::test_name are there, at least one, each named once."""
    assert tests and len(set(tests)) == len(tests)
    for test in tests:
        file, name = test.split("::")
        assert name.startswith("test_") and name in _named_in(file), test


@cache
def _named_in(file: str) -> frozenset[str]:
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
