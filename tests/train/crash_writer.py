"""A process that saves checkpoints and is hit by strace at every system call; started by test_checkpoint_crash.py.

Usage: crash_writer.py FOLDER next|same INJECTION SYSCALL[,SYSCALL...]   prints one JSON object of counts.
Each point: a child forked from this warm process saves version 2 after version 1 (as the next step, or as the same step
again) and is struck at the N-th call of one kind; then the newest checkpoint must be version 1 or version 2, whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from unmask.errors import CannotWriteError, DiskError
from unmask.files import remove_leftovers
from unmask.train.checkpoint import Checkpoints

OK, TOLD, UNTRACED, CRASHED = 0, 7, 8, 9


def content(version: int) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Everything in a checkpoint tells its version, so that a mixture shows."""
    names = ("encoder", "objective", "optimizer")
    tensors = {
        name: {"weight": torch.full((40,), version + 0.5), "bias": torch.full((3,), float(version))} for name in names
    }
    return tensors, {"version": version, "rng": [version] * 5, "loss": version / 3}


def save(folder: Path, version: int, mode: str) -> None:
    tensors, state = content(version)
    step = version if mode == "next" else 5
    Checkpoints(folder, keep_last=1, keep_best=False).save(step, tensors, state)


def found(folder: Path) -> int | str:
    """Which version resuming would start from; a word where that is wrong."""
    checkpoints = Checkpoints(folder)
    newest, messages = checkpoints.newest()
    if newest is None:
        return "lost"
    if messages:
        return "unreadable"
    tensors, state = checkpoints.load(newest)
    version: int = state["version"]
    expected, expected_state = content(version)
    same = all(
        torch.equal(tensors[group][name], expected[group][name]) for group in expected for name in expected[group]
    )
    return version if same and state == expected_state and tensors.keys() == expected.keys() else "mixed"


def struck(folder: Path, log: Path, mode: str, calls: str, inject: str | None) -> int:
    """Saves version 2 in a child under strace; the child's exit status as os.waitstatus_to_exitcode gives it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = UNTRACED
        try:
            os.write(writing, b"x")  # nothing that strace counts lies between this and the save
            wait_until_traced()
            code = CRASHED
            save(folder, 2, mode)
            code = OK
        except (DiskError, CannotWriteError):
            code = TOLD
        finally:
            os._exit(code)
    os.read(reading, 1)
    os.close(reading)
    os.close(writing)
    command = ["strace", "-f", "-qq", "-p", str(pid), "-o", str(log), "-e", f"trace={calls},getppid"]
    command += ["-e", "inject=getppid:retval=0"]  # what the child waits for
    command += ["-e", inject] if inject else []
    traced = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if traced.returncode:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if traced.returncode:
        sys.exit(f"cannot trace: {traced.stderr}")
    assert code != UNTRACED, "strace attached but never answered"
    return code


def wait_until_traced() -> None:
    """Returns once strace answers in place of the kernel, so that it counts all that follows: attached is not yet
    listening."""
    end = time.monotonic() + 60
    while os.getppid() != 0:
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.001)


def fresh(base: Path, work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work)


def points(base: Path, work: Path, log: Path, mode: str, calls: str) -> list[tuple[str, int]]:
    """Every call of an undisturbed save, as (system call, how manieth)."""
    fresh(base, work)
    assert struck(work, log, mode, calls, None) == OK and found(work) == 2, "an undisturbed save works"
    counts = Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))
    del counts["getppid"]
    return [(call, number) for call, count in sorted(counts.items()) for number in range(1, count + 1)]


def verdict(work: Path, mode: str, code: int, kill: bool) -> str:
    result = found(work)
    if not isinstance(result, int):
        return result
    if kill and code >= 0:
        return "not killed"
    if not kill and (code == CRASHED or code < 0):
        return "crash"
    if not kill and code == OK and result != 2:
        return "false success"
    save(work, 3, mode)
    remove_leftovers(work)
    if found(work) != 3 or [name for name in os.listdir(work) if name.startswith(".")]:
        return "stuck"
    return {1: "old", 2: "new"}[result]


def main(place: Path, mode: str, injection: str, calls: str) -> None:
    torch.set_num_threads(1)
    base, work, log = place / "base", place / "work", place / "log"
    save(base, 1, mode)
    results: Counter[str] = Counter()
    where: dict[str, list[str]] = {}
    for call, number in points(base, work, log, mode, calls):
        fresh(base, work)
        code = struck(work, log, mode, calls, f"inject={call}:{injection}:when={number}")
        result = verdict(work, mode, code, kill=injection.startswith("signal"))
        results[result] += 1
        where.setdefault(result, []).append(f"{call}#{number}")
    wrong = {result: at for result, at in where.items() if result not in ("old", "new")}
    sys.stdout.write(json.dumps({"results": results, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
