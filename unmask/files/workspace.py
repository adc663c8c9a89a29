"""A folder for work in progress, beside what is being made: held by one process, kept for the next try when it fails."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unmask.errors import CannotWriteError
from unmask.files.failures import explained
from unmask.files.leftovers import remove_folder, remove_leftovers
from unmask.files.write import make_folder


@contextmanager
def workspace(target: Path) -> Iterator[Path]:
    """`<target>.parts`, made if need be and held by a lock; deleted when the block ends well.

    Raises CannotWriteError when another process holds it, and when a folder of that name holds something else.
    """
    parts = target.absolute().with_name(f"{target.name}.parts")
    lock = parts / "lock"
    if parts.is_dir() and any(parts.iterdir()) and not lock.is_file():
        raise CannotWriteError("The folder for work in progress is taken.", where=str(parts), do="Move it away.")
    make_folder(parts)
    with _held(lock):
        remove_leftovers(parts, alone=True)
        remove_leftovers(parts.parent)
        yield parts
        remove_folder(parts)


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    with explained(lock):
        file = open(lock, "a+", encoding="ascii")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise CannotWriteError(
                f"Another build is at work here (process {file.read().strip() or 'unknown'}).",
                where=str(lock.parent),
                do="Wait for it, or choose another output.",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
