"""Temporary names that tell who writes, so that what a dead writer left can be told from a live one's."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from unmask.files.failures import explained

LEFTOVER = re.compile(r"\.(?P<kind>tmp|old)-(?P<name>.+)-(?P<owner>\d+-\d+-[0-9a-f]{8})-[0-9a-f]{8}")


def remove_leftovers(parent: Path, *, alone: bool = False) -> list[Path]:
    """Cleans up after writers that died: deletes their temporary files and folders, completes half-finished swaps.

    A writer is known by process number, start time and host, all in the name. Writers of another host can't be asked
    whether they live, so theirs stay, unless `alone` says that the caller holds a lock on this place and everything
    that is not its own is left over. Returns what is gone.
    """
    with explained(parent):
        names = sorted(os.listdir(parent)) if parent.is_dir() else []
    gone = []
    for path in (parent / name for name in names):  # ".old-" sorts before ".tmp-": swaps are repaired first
        match = LEFTOVER.fullmatch(path.name)
        if match is None or match["owner"] == _owner() or (not alone and _may_live(match["owner"])):
            continue
        target = parent / match["name"]
        if match["kind"] == "old" and not os.path.lexists(target):
            with suppress(OSError):
                path.rename(target)
        else:
            remove(path)
        if not os.path.lexists(path):
            gone.append(path)
    return gone


def remove_folder(folder: Path) -> None:
    """Deletes a folder so that nobody ever sees half of it; one that another process deleted already is fine.

    Raises CannotWriteError when the place refuses.
    """
    doomed = folder.parent / own_name("tmp", folder.name)
    with explained(folder):
        try:
            folder.rename(doomed)
        except FileNotFoundError:
            return
        remove(doomed)


def remove(path: Path) -> None:
    """Deletes a file, a link or a whole folder as far as the system allows; never raises, never follows a link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def own_name(kind: str, name: str) -> str:
    """A fresh hidden name beside `name`; kind "tmp" is being written, "old" is being replaced."""
    return f".{kind}-{name}-{_owner()}-{secrets.token_hex(4)}"


def _owner() -> str:
    return f"{os.getpid()}-{_start_time(os.getpid())}-{_host()}"


def _may_live(owner: str) -> bool:
    pid, start, host = owner.split("-")
    if host != _host():
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's process: it lives
    return _start_time(int(pid)) == int(start)


def _start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 where the system does not tell, -1 for one that has ended
    but was not waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()  # proc(5) from field 3 on; the name before may contain spaces
    return -1 if fields[0] == "Z" else int(fields[19])


def _host() -> str:
    """Names the machine and its process table: containers can share a host name but not process numbers."""
    try:
        table = os.readlink("/proc/self/ns/pid")
    except OSError:
        table = ""
    return hashlib.sha256(f"{socket.gethostname()} {table}".encode()).hexdigest()[:8]
