"""Hostile names go nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.files import safe_join

HOSTILE = [
    "", ".", "..", "/", "//", "/etc/passwd", "../x", "a/../../x", "a/..", "a/./b", "./a", "a//b", "a/", "/a", "..\\x",
    "a\\b", "\\\\server\\share", "C:", "C:x", "c:/x", "C:\\x", "a\0b", "\0", "a\nb", "a\rb", "a\x1b[2Jb", "a\x7fb",
    "a\u202eb", "a\u200bb", "\ud800", "x" * 256, "a/" + "x" * 300, "a/" * 3000 + "b", "..\u2028", "../" * 40 + "etc/passwd",
    "out/x", "out", "loop/x", "loop", None, 3, 1.5, b"a", ["a"], {"a": 1}, True,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_a_hostile_name_leads_nowhere(tmp_path: Path, name: object) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    with pytest.raises(UnmaskError, match="not the name of a file inside"):
        safe_join(root, name)


@pytest.mark.parametrize(
    "name", ["a", "a.b", "a/b/c.txt", "...", "..a", "a..b", "~", "-rf", "$HOME", "模型/词表.json", "a b"]
)
def test_an_ordinary_name_stays_inside(tmp_path: Path, name: str) -> None:
    assert safe_join(tmp_path, name) == tmp_path.resolve() / name


@given(st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "a", "", "/", "\\", "C:"])).map("/".join))
def test_no_name_ever_leaves_the_folder(name: str) -> None:
    root = Path("/nowhere/root")
    try:
        path = safe_join(root, name)
    except UnmaskError:
        return
    assert root in path.parents
