"""The description of a folder, `manifest.json`, and the readers that compare it with what is there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from unmask.errors import DamagedError
from unmask.files.paths import safe_join
from unmask.progress import Progress, quiet

MANIFEST = "manifest.json"
VERSION = 1
_LONGEST_MANIFEST = 64 << 20


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder: `about` and `files` ({name: {bytes, sha256}}). Raises DamagedError unless it is exactly
    what was written: the manifest carries a hash of itself, so one changed byte is noticed."""
    data = _read_bounded(folder / MANIFEST, _LONGEST_MANIFEST)
    try:
        manifest = json.loads(data)
        if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
            raise _damaged(folder, MANIFEST, f"it is not a manifest of version {VERSION}")
        expected = manifest_bytes(manifest.get("about"), manifest.get("files"))
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, MANIFEST, f"it is not JSON ({type(error).__name__})") from error
    if data != expected:
        raise _damaged(folder, MANIFEST, "its own hash does not match what it says")
    if not isinstance(manifest["about"], dict) or not _are_entries(manifest["files"]):
        raise _damaged(folder, MANIFEST, "it is not a manifest")
    return manifest


def check_sizes(folder: Path) -> dict[str, Any]:
    """The manifest, after comparing the size of every file: a quick look that finds what is missing or cut short."""
    manifest = read_manifest(folder)
    for name, entry in manifest["files"].items():
        _check_size(folder, name, safe_join(folder, name), entry["bytes"])
    return manifest


def verify_folder(folder: Path, *, progress: Progress = quiet) -> dict[str, Any]:
    """The manifest, after comparing size and SHA-256 of every file it names. Files it does not name are ignored.

    Raises DamagedError with the folder, the file and what differs. Progress counts bytes.
    """
    manifest = read_manifest(folder)
    total = sum(entry["bytes"] for entry in manifest["files"].values())
    done = 0
    for name, entry in manifest["files"].items():
        path = safe_join(folder, name)
        _check_size(folder, name, path, entry["bytes"])
        try:
            digest = file_sha256(path)
        except OSError as error:
            raise _damaged(folder, name, f"it can't be read ({error.strerror})") from error
        if digest != entry["sha256"]:
            raise _damaged(folder, name, "its SHA-256 differs from the manifest")
        done += entry["bytes"]
        progress("checking, bytes", done, total)
    return manifest


def read_checked(folder: Path, name: str, manifest: dict[str, Any]) -> bytes:
    """The bytes of one file of a folder, checked against its manifest: what is returned is what was hashed."""
    if name not in manifest["files"]:
        raise _damaged(folder, name, "the manifest does not name it")
    entry, path = manifest["files"][name], safe_join(folder, name)
    _check_size(folder, name, path, entry["bytes"])
    data = _read_bounded(path, entry["bytes"])
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise _damaged(folder, name, "its SHA-256 differs from the manifest")
    return data


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_bytes(about: object, files: object) -> bytes:
    """The manifest as it stands on the disk; its last entry is the SHA-256 of all the rest."""
    body = {"version": VERSION, "about": about, "files": files}
    digest = hashlib.sha256(_json(body)).hexdigest()
    return _json({**body, "sha256": digest})


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1) + "\n").encode()


def _are_entries(files: object) -> bool:
    return isinstance(files, dict) and all(
        isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and entry["bytes"] >= 0
        and isinstance(entry.get("sha256"), str)
        for entry in files.values()
    )


def _check_size(folder: Path, name: str, path: Path, expected: int) -> None:
    try:
        is_file, size = path.is_file(), path.stat().st_size
    except OSError as error:
        raise _damaged(folder, name, f"it can't be read ({error.strerror})") from error
    if not is_file:
        raise _damaged(folder, name, "it is not a file")
    if size != expected:
        raise _damaged(folder, name, f"it has {size:,} bytes, the manifest says {expected:,}")


def _read_bounded(path: Path, limit: int) -> bytes:
    if path.exists() and not path.is_file():  # opening a pipe would wait for ever
        raise _damaged(path.parent, path.name, "it is not a file")
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise _damaged(path.parent, path.name, f"it can't be read ({error.strerror})") from error
    if len(data) > limit:
        raise _damaged(path.parent, path.name, f"it is longer than {limit:,} bytes")
    return data


def _damaged(folder: Path, name: str, why: str) -> DamagedError:
    return DamagedError(
        f"{name} is damaged: {why}.", where=str(folder), do="Use an earlier copy of the folder or write it again."
    )
