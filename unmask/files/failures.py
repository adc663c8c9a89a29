"""Errors of the system about writing become sentences with a way out."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unmask.errors import CannotWriteError, DiskError, UnmaskError

_DISK_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT}
_PLACE_ERRORS = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


@contextmanager
def explained(target: Path) -> Iterator[None]:
    """Turns errors of the system about writing `target` into sentences; other errors pass as they are."""
    try:
        yield
    except UnmaskError:
        raise
    except Exception as error:
        code = _system_code(error)
        if not _is_about(error, target):
            raise
        if code in _DISK_ERRORS:
            raise _disk_error(target, code) from error
        if code in _PLACE_ERRORS:
            raise CannotWriteError(
                f"This place can't be written: {os.strerror(code)}.",
                where=str(target),
                do="Choose another output folder.",
            ) from error
        raise


def _system_code(error: Exception) -> int:
    """The errno of an error; libraries in Rust (safetensors, tokenizers) tell it only in their text."""
    if isinstance(error, OSError):
        return error.errno or 0
    told = re.search(r"\(os error (\d+)\)", str(error))
    return int(told[1]) if told else 0


def _is_about(error: Exception, target: Path) -> bool:
    """Whether the error is about the output: the block of `write_folder` may also read, and that is another story."""
    name = getattr(error, "filename", None)
    if not isinstance(name, (str, bytes)):
        return True
    path = Path(os.path.abspath(os.fsdecode(name)))
    ours = target.absolute()
    return path == ours or path in ours.parents or any(part.startswith((".tmp-", ".old-")) for part in path.parts)


def _nearest_parent(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if os.path.lexists(parent))


def _disk_error(target: Path, code: int) -> DiskError:
    with suppress(OSError):
        free = shutil.disk_usage(_nearest_parent(target)).free
        return DiskError(
            f"Writing failed: {os.strerror(code)} ({free:,} bytes free).",
            where=str(target),
            do="Free some space or choose another disk. What was saved before is intact.",
        )
    return DiskError(f"Writing failed: {os.strerror(code)}.", where=str(target), do="Check the disk.")
