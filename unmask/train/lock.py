"""One run, one folder: a second start is refused while the first lives, and a crash leaves nothing to clean up."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unmask.errors import CannotWriteError
from unmask.files import explained, make_folder

LOCK = "run.lock"
_held: set[int] = set()


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Holds the run folder (created where missing) until the block ends; the system lets go when the process dies.

    Raises CannotWriteError naming process, host and start of the run that holds it.
    """
    make_folder(folder)
    path = folder / LOCK
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    _held.add(descriptor)
    try:
        _take(descriptor, folder)
        _write(descriptor, _about_us())
        try:
            yield
        finally:
            if descriptor in _held:
                _write(descriptor, {})
    finally:
        if descriptor in _held:  # not in a forked child, where the number may mean another file by now
            _held.discard(descriptor)
            os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CannotWriteError(
            f"Another run is using this folder: {_holder(descriptor)}.",
            where=str(folder),
            do="Wait until it ends, stop it, or give this run another name.",
        ) from error
    except OSError as error:
        raise CannotWriteError(
            f"This file system can't lock files ({error.strerror}), so two runs could overwrite each other.",
            where=str(folder),
            do="Put the run folder on a disk that can, such as a local one.",
        ) from error


def _holder(descriptor: int) -> str:
    try:
        about = json.loads(os.pread(descriptor, 1 << 16, 0))
        return f"process {about['pid']} on {about['host']}, started {about['started']} ({about['command']})"
    except (ValueError, KeyError, TypeError):
        return "it has only just started"  # the holder has the lock but has not written its name yet


def _about_us() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv)[:1000],
    }


def _write(descriptor: int, about: dict[str, Any]) -> None:
    with suppress(OSError):  # the lock holds without the name in it, also on a full disk
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (json.dumps(about) + "\n").encode(), 0)


def _let_go_in_child() -> None:
    """A forked child would share the lock and keep it after its parent was killed."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
