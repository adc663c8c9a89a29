"""Two runs never share a folder, and a crash never keeps one closed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import unmask.train.lock as lock
from unmask.errors import CannotWriteError
from unmask.train.lock import lock_run

HOLDER = """
import os, sys
from pathlib import Path
from unmask.train.lock import lock_run
fork = sys.argv[2:] == ["fork"]
with lock_run(Path(sys.argv[1])):
    if fork:
        if os.fork() == 0:
            print(os.getpid(), flush=True)  # by the child, which has let go of the lock when it comes here
            os.close(1)
            sys.stdin.read()
            os._exit(0)
    else:
        print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder), *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_second_run_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    first = holder(tmp_path / "run")
    try:
        assert line(first) == "held"
        about = json.loads((tmp_path / "run" / "run.lock").read_text())
        with pytest.raises(CannotWriteError) as caught, lock_run(tmp_path / "run"):
            pytest.fail("taken twice")
    finally:
        end(first)
    assert caught.value.exit_code == 73 and caught.value.where == str(tmp_path / "run")
    expected = f"process {first.pid} on {socket.gethostname()}, started {about['started']}"
    assert expected in caught.value.what and about["command"] in caught.value.what


def test_B031_a_run_killed_a_moment_ago_can_start_again_at_once(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert line(first) == "held"
    end(first)
    assert json.loads((tmp_path / "run.lock").read_text())["pid"] == first.pid
    with lock_run(tmp_path):
        assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()


def test_B031_a_worker_that_outlives_its_killed_run_does_not_hold_the_folder(tmp_path: Path) -> None:
    first = holder(tmp_path, "fork")
    child = int(line(first))
    first.send_signal(signal.SIGKILL)
    first.wait()
    try:
        os.kill(child, 0)
        with lock_run(tmp_path):
            pass
    finally:
        first.communicate()


def test_the_folder_is_created_held_once_and_let_go(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "new"
    with lock_run(folder):
        with pytest.raises(CannotWriteError, match=f"process {os.getpid()}"), lock_run(folder):
            pytest.fail("taken twice by one process")
    with pytest.raises(KeyError), lock_run(folder):
        raise KeyError
    with lock_run(folder):
        pass
    assert os.listdir(folder) == ["run.lock"] and lock._held == set()


def test_of_many_starts_at_one_moment_one_wins(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from unmask.errors import CannotWriteError
from unmask.train.lock import lock_run
print("ready", flush=True)
sys.stdin.readline()
try:
    with lock_run(Path(sys.argv[1])):
        print("won", flush=True)
        sys.stdin.readline()
except CannotWriteError:
    print("refused", flush=True)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    starts = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for start in starts:
        assert line(start) == "ready"
    for start in starts:
        assert start.stdin is not None
        start.stdin.write("go\n")
        start.stdin.flush()
    answers = sorted(line(start) for start in starts)
    for start in starts:
        end(start)
    assert answers == ["refused"] * 5 + ["won"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\0" * 10])
def test_a_lock_whose_holder_cannot_be_read_still_holds(tmp_path: Path, text: str) -> None:
    with lock_run(tmp_path):
        (tmp_path / "run.lock").write_text(text)
        with pytest.raises(CannotWriteError, match="only just started"), lock_run(tmp_path):
            pytest.fail("taken twice")


def test_a_lock_file_that_is_a_link_is_refused_and_what_it_leads_to_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").symlink_to("../other")
    with pytest.raises(CannotWriteError), lock_run(tmp_path / "run"):
        pytest.fail("followed a link")
    assert (tmp_path / "other").read_text() == "precious"


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with pytest.raises(CannotWriteError, match="can't lock files"), lock_run(tmp_path):
        pytest.fail("not locked")
