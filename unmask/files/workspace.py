"""A folder for work in progress, beside what is being made: held by one process, kept for the next try when it fails."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from unmask.errors import CannotWriteError
from unmask.files.failures import explained
from unmask.files.leftovers import remove_folder, remove_leftovers
from unmask.files.write import make_folder

_LOCK = "lock"


@contextmanager
def workspace(target: Path) -> Iterator[Path]:
    """`<target>.parts`, made if need be and held by a lock; deleted when the block ends well.

    Raises CannotWriteError when another process holds it, and when a folder of that name holds something else.
    """
    parts = target.absolute().with_name(f"{target.name}.parts")
    with _held(parts):
        remove_leftovers(parts, alone=True)
        remove_leftovers(parts.parent)
        yield parts
        remove_folder(parts)


@contextmanager
def _held(parts: Path) -> Iterator[None]:
    while True:
        with _opened(parts) as lock:
            _take(lock, parts)
            # Whoever held it may have deleted the folder after we opened the file: then the next one would find another.
            if not _is_at(lock, parts / _LOCK):
                continue
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield
            return


def _opened(parts: Path) -> TextIO:
    """The file to lock, in a folder that is ours; both are made where they are missing."""
    while True:
        try:
            with explained(parts):
                make_folder(parts)
                held = {entry.name: entry.is_file() for entry in os.scandir(parts)}
                if not held or held.get(_LOCK):
                    return open(parts / _LOCK, "a+", encoding="ascii")
        except FileNotFoundError:  # deleted between our two looks
            continue
        raise CannotWriteError("The folder for work in progress is taken.", where=str(parts), do="Move it away.")


def _take(lock: TextIO, parts: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        raise CannotWriteError(
            f"Another build is at work here (process {lock.read().strip() or 'unknown'}).",
            where=str(parts),
            do="Wait for it, or choose another output.",
        ) from error


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
