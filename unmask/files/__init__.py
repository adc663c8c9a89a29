"""Whole files and folders or none: every writer of the project goes through here, every reader can check what it got.

A folder is written under a temporary name beside its target, described by `manifest.json` (size and SHA-256 of each
file), forced to the disk and renamed. A crash at any moment leaves the old folder or the new one, never a mixture.
"""

from __future__ import annotations

from unmask.files.failures import explained
from unmask.files.leftovers import remove_folder, remove_leftovers
from unmask.files.manifest import MANIFEST, check_sizes, file_sha256, read_checked, read_manifest, verify_folder
from unmask.files.paths import safe_join
from unmask.files.workspace import workspace
from unmask.files.write import make_folder, require_free, require_space, write_file, write_folder, write_stream

__all__ = [
    "MANIFEST",
    "check_sizes",
    "explained",
    "file_sha256",
    "make_folder",
    "read_checked",
    "read_manifest",
    "remove_folder",
    "remove_leftovers",
    "require_free",
    "require_space",
    "safe_join",
    "verify_folder",
    "workspace",
    "write_file",
    "write_folder",
    "write_stream",
]
