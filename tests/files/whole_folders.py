"""A small folder written whole, and disks of a chosen kind to write it on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from unmask.files import write_folder


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def fill(target: Path, text: str, **options: object) -> None:
    with write_folder(target, **options) as folder:  # type: ignore[arg-type]
        (folder / "a.txt").write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub" / "b.txt").write_text(text * 2)


@contextmanager
def mounted(folder: Path, *what: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    for command in what:
        done = subprocess.run(f"mount {command} {folder}", shell=True, capture_output=True, text=True, check=False)
        if done.returncode:
            subprocess.run(["umount", "-q", str(folder)], check=False, capture_output=True)
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
