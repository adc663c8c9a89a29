"""Names that come out of files, which may be hostile, become paths only here."""

from __future__ import annotations

import re
from pathlib import Path

from unmask.errors import UnmaskError

_LONGEST = 1024  # a path, with its folder, has to stay below the system's 4,096 bytes


def safe_join(root: Path, name: object) -> Path:
    """`root / name` for a name out of a file: relative, without `..`, and inside `root` after following links.

    Raises UnmaskError for everything else, also for what only another system would read as a way out (`C:`, `\\`).
    """
    if not isinstance(name, str) or not is_plain(name):
        raise _hostile(root, name)
    try:
        base, path = root.resolve(), (root / name).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise _hostile(root, name) from error
    if base not in path.parents:
        raise _hostile(root, name)
    return path


def is_plain(name: str) -> bool:
    """Whether a name can mean only one place on every system: printable, relative, no empty or dotted parts."""
    parts = name.split("/")
    return (
        name.isprintable()
        and len(name) <= _LONGEST
        and "\\" not in name
        and re.match(r"[A-Za-z]:", name) is None
        and all(part not in ("", ".", "..") and len(part.encode("utf-8", "replace")) <= 255 for part in parts)
    )


def _hostile(root: Path, name: object) -> UnmaskError:
    return UnmaskError(
        f"This is not the name of a file inside its folder: {ascii(name)[:120]}",
        where=str(root),
        do="Do not use this folder unless you trust where it comes from; it may have been tampered with.",
    )
