"""Writers: a temporary name, a manifest, everything forced to the disk, one rename."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from unmask.errors import CannotWriteError, DamagedError, DiskError
from unmask.files.failures import explained
from unmask.files.leftovers import own_name, remove
from unmask.files.manifest import MANIFEST, file_sha256, manifest_bytes, read_manifest
from unmask.files.paths import is_plain


@contextmanager
def write_folder(target: Path, *, replace: bool = False, about: dict[str, Any] | None = None) -> Iterator[Path]:
    """Gives a temporary folder to fill; when the block ends well it becomes `target`, whole and on the disk.

    `about` goes into the manifest as it is when the block ends, so the block may still fill it in. With `replace`, an
    existing folder that has a manifest (or is empty) is swapped in one step and then deleted. When the block raises,
    nothing is left behind and `target` is as before. Raises CannotWriteError (the place refuses, or `target` is there
    already) and DiskError (full disk, I/O error); both leave what was there untouched.
    """
    with explained(target):
        target = _real(target)
        require_free(target, replace, about or {})
        make_folder(target.parent)
        temporary = target.parent / own_name("tmp", target.name)
        temporary.mkdir()
        try:
            yield temporary
            _seal(temporary, about or {})
            _commit(temporary, target, replace, about or {})
        except BaseException:
            remove(temporary)
            raise


def write_file(path: Path, data: str | bytes) -> None:
    """Writes one file so that a reader, or a crash, sees the old content or the new one; text is stored as UTF-8.

    Raises CannotWriteError and DiskError like `write_folder`.
    """
    with write_stream(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def write_stream(path: Path) -> Iterator[BinaryIO]:
    """A file to fill piece by piece, for what is too much at once; it becomes `path`, like that of `write_file`, when the
    block ends well, and is gone when the block raises."""
    with explained(path):
        path = _real(path)
        make_folder(path.parent)
        if path.is_dir():
            raise CannotWriteError(
                "A folder stands where a file is needed.", where=str(path), do="Choose another name."
            )
        temporary = path.parent / own_name("tmp", path.name)
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _fsync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents, durably. Raises CannotWriteError where that is impossible."""
    with explained(folder):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise CannotWriteError(
                "A file stands where a folder is needed.", where=str(error.filename), do="Choose another output folder."
            ) from error
        for path in missing:
            _fsync_folder(path.parent)


def require_space(folder: Path, needed: int) -> None:
    """Raises DiskError when fewer than `needed` bytes are free where `folder` is, or is going to be."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise DiskError(
            f"Not enough disk space: {needed:,} bytes are needed, {free:,} are free.",
            where=str(folder),
            do="Free some space or choose another disk. What was saved before is intact.",
        )


def _seal(folder: Path, about: dict[str, Any]) -> None:
    """Hashes every file, writes the manifest and forces all of it to the disk."""
    files: dict[str, dict[str, Any]] = {}
    folders = [folder]
    mode = folder.stat().st_mode & 0o666  # what the user's umask lets others do
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            folders.append(path)
            continue
        assert path.is_file() and not path.is_symlink(), f"only plain files belong into a written folder: {path}"
        name = path.relative_to(folder).as_posix()
        assert name != MANIFEST and is_plain(name), f"not a name for a file in a written folder: {name}"
        path.chmod(mode)  # safetensors makes files that only their owner can read
        files[name] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        _fsync(path, os.O_RDONLY)
    with open(folder / MANIFEST, "xb") as file:
        file.write(manifest_bytes(about, files))
        file.flush()
        os.fsync(file.fileno())
    for path in reversed(folders):
        _fsync_folder(path)


def _commit(temporary: Path, target: Path, replace: bool, about: dict[str, Any]) -> None:
    """Gives the sealed folder its name; the old one is deleted only after the new name is on the disk."""
    for _ in range(100):  # another writer may create or delete the target between our look and our rename
        with suppress(FileNotFoundError):
            require_free(target, replace, about)
            old = _give_name(temporary, target)
            break
    else:
        raise _taken(target)
    _fsync_folder(target.parent)
    if old is not None:
        remove(old)


def _give_name(temporary: Path, target: Path) -> Path | None:
    """Renames, and returns where the folder that had the name is now; FileNotFoundError says: look again."""
    if os.path.lexists(target):
        return temporary if _exchange(temporary, target) else _swap(temporary, target)
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise FileNotFoundError from error
        raise
    return None


def _swap(temporary: Path, target: Path) -> Path:
    """Two renames where no exchange exists; `remove_leftovers` puts the old folder back after a crash between them."""
    old = target.parent / own_name("old", target.name)
    target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        old.rename(target)
        raise
    return old


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two names in one step (Linux); False where the system or the file system can't."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    at_cwd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE of linux/fs.h
    if renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(other))


def require_free(target: Path, replace: bool, about: dict[str, Any]) -> None:
    """Raises the CannotWriteError that `write_folder` would: for long work that should not fail at its end."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(target).st_mode)  # one look: another writer may delete it meanwhile
    except FileNotFoundError:
        return
    if not replace or not is_folder:
        raise _taken(target)
    if not (target / MANIFEST).is_file() and any(target.iterdir()):
        raise CannotWriteError(
            "This folder was not written by unmask, so it will not be replaced.",
            where=str(target),
            do="Choose another name, or move the folder away yourself.",
        )
    with suppress(DamagedError):
        manifest = read_manifest(target)
        there = manifest["about"].get("format")
        # os.walk passes over what another writer deletes meanwhile, and leaves no folder open
        walked = ((Path(place), name) for place, _, names in os.walk(target) for name in names)
        held = {(place / name).relative_to(target).as_posix() for place, name in walked}
        others = sorted(held - manifest["files"].keys() - {MANIFEST})
        if there != about.get("format") or others:
            raise CannotWriteError(
                f"This folder holds something else ({others[0] if others else there}), so it will not be replaced.",
                where=str(target),
                do="Choose another name, or move the folder away yourself.",
            )


def _taken(target: Path) -> CannotWriteError:
    return CannotWriteError(
        "The output exists already.", where=str(target), do="Choose another name or ask to replace it."
    )


def _real(path: Path) -> Path:
    """The path itself, or where it leads when it is a link: replacing must not turn a link into a folder."""
    return path.resolve() if path.is_symlink() else path.absolute()


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync_folder(folder: Path) -> None:
    try:
        _fsync(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.EOPNOTSUPP,
            errno.EISDIR,
        ):  # some network disks can't; nothing to gain
            raise
