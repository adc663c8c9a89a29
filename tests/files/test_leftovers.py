"""What dead writers left is removed, what live ones write is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from whole_folders import fill, names

import unmask.files.leftovers as leftovers
from unmask.files import remove_folder, remove_leftovers


def dead_owner() -> str:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    owner = f"{child.pid}-{leftovers._start_time(child.pid)}-{leftovers._host()}"
    child.kill()
    child.wait()
    return owner


def test_what_dead_writers_left_is_removed_and_what_live_ones_write_is_not(tmp_path: Path) -> None:
    dead, mine = dead_owner(), leftovers._owner()
    pid, start, host = mine.split("-")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        alive = f"{other.pid}-{leftovers._start_time(other.pid)}-{host}"
        kept = [f".tmp-a-{mine}-00000001", f".tmp-a-{alive}-00000002", f".tmp-a-{dead[:-8]}ffffffff-00000003",
                ".tmp-a", ".tmp-a-b", "a", ".hidden"]  # fmt: skip
        gone = [
            f".tmp-a-{dead}-00000004",
            f".tmp-a-b-c-{dead}-00000005",
            f".tmp-a-{pid}-{int(start) + 1}-{host}-00000006",
        ]
        for name in (*kept, *gone):
            (tmp_path / name).mkdir()
            (tmp_path / name / "x").write_text("x")
        (tmp_path / f".tmp-f-{dead}-00000007").write_text("x")
        (tmp_path / f".tmp-l-{dead}-00000008").symlink_to(tmp_path / "a")
        removed = [path.name for path in remove_leftovers(tmp_path)]
        assert names(tmp_path) == sorted(kept) and len(removed) == 5 and set(gone) < set(removed)
        assert (tmp_path / "a" / "x").exists()
        remove_leftovers(tmp_path, alone=True)
        assert names(tmp_path) == sorted([kept[0], *kept[3:]])
        other.communicate(b"\n")
    assert remove_leftovers(tmp_path / "not there") == []


def test_a_zombie_writes_no_more(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    name = f".tmp-a-{child.pid}-{leftovers._start_time(child.pid)}-{leftovers._host()}-00000000"
    (tmp_path / name).mkdir()
    assert remove_leftovers(tmp_path) == []
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert [path.name for path in remove_leftovers(tmp_path)] == [name]
    child.wait()


def test_a_swap_that_died_between_its_renames_is_undone(tmp_path: Path) -> None:
    dead = dead_owner()
    fill(tmp_path / "out", "old")
    (tmp_path / "out").rename(tmp_path / f".old-out-{dead}-00000001")
    (tmp_path / f".tmp-out-{dead}-00000002").mkdir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "old"
    (tmp_path / f".old-out-{dead}-00000003").mkdir()  # died after the second rename
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "old"


def test_a_folder_is_deleted_under_another_name_so_that_nobody_reads_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "out", "x")
    monkeypatch.setattr(leftovers, "remove", lambda path: None)  # as if killed just there
    remove_folder(tmp_path / "out")
    assert not (tmp_path / "out").exists() and names(tmp_path)[0].startswith(".tmp-out-")
    remove_folder(tmp_path / "out")
