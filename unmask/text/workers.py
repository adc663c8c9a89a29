"""Worker processes for long text work: few jobs in memory at a time, a clear error when one dies, none left behind.

A worker is a fresh interpreter that imports only what its function needs: neither the caller's script nor torch, and it
inherits no locks or threads. It talks through one socket, so it ends by itself when its parent is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Generic, TypeVar

from unmask.errors import UnmaskError

Job = TypeVar("Job")
Result = TypeVar("Result")
_PATIENCE = 10  # seconds for a worker to leave before it is killed


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def work(function: Callable[[Job], Result], jobs: Iterable[Job], *, count: int, log: Path) -> Generator[Result]:
    """Results of `function` for each job, in the order in which they get ready.

    `jobs` is read only as fast as workers get free, so at most `count` + 1 jobs are in memory. `function` is a public
    function of a module; jobs and results are pickled between our own processes. What workers print goes to `log`.
    Close the generator (`contextlib.closing`) to stop early: no worker outlives it. UnmaskErrors of a worker are raised
    here as they are; a worker that dies raises UnmaskError.
    """
    idle: list[_Worker[Job, Result]] = []
    busy: list[_Worker[Job, Result]] = []
    log.unlink(missing_ok=True)  # the words of an earlier run would be taken for those of this one
    try:
        for job in jobs:
            while not idle:
                if len(busy) < count:
                    busy.append(_Worker(function, log))
                yield from _collect(idle, busy)
            worker = idle.pop()
            busy.append(worker)
            worker.send(job)
        while busy:
            yield from _collect(idle, busy)
    finally:
        for worker in busy:
            worker.process.terminate()
        for worker in idle + busy:
            worker.stop()


@dataclass(frozen=True, slots=True)
class _Ready:
    """First message of a worker: a job sent before it has started would make the parent wait."""


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class _Worker(Generic[Job, Result]):
    def __init__(self, function: Callable[[Job], Result], log: Path) -> None:
        self.log = log
        self.connection, theirs = Pipe()
        code = f"from unmask.text.workers import serve; serve({theirs.fileno()})"
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with open(log, "ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                # One thread each: the workers themselves are the parallelism.
                env={**os.environ, "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},
            )
        theirs.close()
        self.send(function)

    def send(self, message: object) -> None:
        try:
            self.connection.send(message)
        except OSError as error:
            raise self._death() from error

    def receive(self) -> object:
        try:
            return self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error

    def stop(self) -> None:
        self.connection.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _death(self) -> UnmaskError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE)
        code = self.process.returncode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        said = self.log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        return UnmaskError(
            f"A worker process {how}" + (f": {said[0]}" if said else "."),
            do="Signal 9 is mostly the system running out of memory: use fewer workers. What is done is kept; "
            "the same command goes on from there.",
        )


def _collect(idle: list[_Worker[Job, Result]], busy: list[_Worker[Job, Result]]) -> Iterator[Result]:
    """Waits for at least one worker and yields what is ready."""
    ready = wait([worker.connection for worker in busy])
    for worker in [worker for worker in busy if worker.connection in ready]:
        answer = worker.receive()
        busy.remove(worker)
        idle.append(worker)
        if isinstance(answer, _Failed):
            raise answer.error
        if not isinstance(answer, _Ready):
            yield answer  # type: ignore[misc]


def serve(descriptor: int) -> None:
    """What a worker process does: receives a function, then jobs, until its parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        function = connection.recv()
        connection.send(_Ready())
        while True:
            connection.send(_answer(function, connection.recv()))


def _answer(function: Callable[[Job], Result], job: Job) -> Result | _Failed:
    try:
        return function(job)
    except UnmaskError as error:
        return _Failed(error)
    except BaseException:  # a panic of a Rust library is no Exception
        return _Failed(RuntimeError(f"a worker failed:\n{traceback.format_exc()}"))
