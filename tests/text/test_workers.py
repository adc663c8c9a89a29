"""Worker processes: every job is done once, few are in memory, and nobody stays behind."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from unmask.errors import UnmaskError
from unmask.text.workers import work


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


@pytest.mark.parametrize(("count", "jobs"), [(1, 5), (3, 20), (4, 2), (2, 0)])
def test_every_job_is_done_once(tmp_path, count, jobs):
    results = list(work(math.factorial, range(jobs), count=count, log=tmp_path / "log"))
    assert sorted(results) == sorted(map(math.factorial, range(jobs)))
    assert not children()


def test_jobs_are_taken_only_as_workers_get_free(tmp_path):
    taken = done = 0

    def jobs():
        nonlocal taken
        for number in range(30):
            taken += 1
            assert taken - done <= 3
            yield number

    for _ in work(math.factorial, jobs(), count=2, log=tmp_path / "log"):
        done += 1
    assert taken == done == 30


def test_stopping_early_does_not_wait_for_long_jobs(tmp_path):
    with closing(work(time.sleep, [0, 60, 0, 60], count=2, log=tmp_path / "log")) as results:
        next(results)
        next(results)  # of the third job: so a worker is at the second
        assert children()
        begin = time.monotonic()
    assert time.monotonic() - begin < 5
    assert not children()


def test_ctrl_c_is_the_parents_business(tmp_path):
    results = work(time.sleep, [0, 1, 0], count=1, log=tmp_path / "log")
    next(results)

    def interrupt() -> None:
        for child in children():
            os.kill(child, signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    assert list(results) == [None, None]
    timer.join()


def test_an_error_in_a_worker_is_raised_here_with_its_cause(tmp_path):
    with pytest.raises(RuntimeError, match="ValueError"):
        list(work(math.sqrt, [4, -1], count=1, log=tmp_path / "log"))
    assert not children()


def test_a_worker_that_dies_is_an_error_that_quotes_its_last_words(tmp_path):
    (tmp_path / "log").write_text("words of another run\n")
    with pytest.raises(UnmaskError, match=r"ended with exit code 3\.\n"):
        list(work(os._exit, [3], count=1, log=tmp_path / "log"))
    with pytest.raises(UnmaskError, match="was killed by signal 9: bad memory"):
        list(work(os.system, ["echo bad memory >&2; kill -9 $PPID"], count=1, log=tmp_path / "log"))
    assert not children()


def test_workers_import_what_their_parent_imports(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # as in `python -c`
    from only_here import double  # type: ignore[import-not-found]

    assert list(work(double, [21], count=1, log=tmp_path / "log")) == [42]
