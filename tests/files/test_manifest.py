"""Readers notice every changed byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from whole_folders import fill

from unmask.errors import DamagedError, UnmaskError
from unmask.files import file_sha256, read_checked, read_manifest, verify_folder


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_delete(path: Path) -> None:
    path.unlink()


def damage_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def damage_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [damage_truncate, damage_grow, damage_flip, damage_delete, damage_pipe, damage_folder]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["a.txt", "sub/b.txt", "manifest.json"])
def test_damage_is_reported_with_folder_and_file(tmp_path: Path, damage: object, name: str) -> None:
    fill(tmp_path / "out", "text", about={"step": 100})
    damage(tmp_path / "out" / name)  # type: ignore[operator]
    with pytest.raises(DamagedError) as caught:
        verify_folder(tmp_path / "out")
    assert name in caught.value.what and str(tmp_path / "out") in caught.value.where
    with pytest.raises(DamagedError):
        read_checked(tmp_path / "out", name, read_manifest(tmp_path / "out"))


def test_every_changed_bit_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    fill(tmp_path / "out", "text", about={"step": 100, "loss": 2.5})
    path = tmp_path / "out" / "manifest.json"
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << position % 8]) + good[position + 1 :])
        with pytest.raises(DamagedError):
            read_manifest(tmp_path / "out")
    for position in range(len(good)):
        path.write_bytes(good[:position])
        with pytest.raises(DamagedError):
            read_manifest(tmp_path / "out")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '"x"', "[" * 100_000, '{"version": 1}', '{"version": 1, "about": NaN, "files": {}}',
     '{"version": 1, "about": 1e999, "files": {}}', "9" * 5000, '{"version": 2}', "\ufeff{}", "\0" * 100],
)  # fmt: skip
def test_a_strange_manifest_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DamagedError):
        read_manifest(tmp_path)


def test_a_manifest_that_names_files_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    fill(tmp_path / "out", "x")
    (tmp_path / "out" / "link.txt").symlink_to("../outside.txt")
    entry = {"bytes": 6, "sha256": file_sha256(tmp_path / "outside.txt")}
    for name in ("../outside.txt", str(tmp_path / "outside.txt"), "link.txt"):
        content = leftovers_free_manifest({name: entry})
        (tmp_path / "out" / "manifest.json").write_bytes(content)
        manifest = read_manifest(tmp_path / "out")
        with pytest.raises(UnmaskError, match="not the name of a file inside"):
            verify_folder(tmp_path / "out")
        with pytest.raises(UnmaskError, match="not the name of a file inside"):
            read_checked(tmp_path / "out", name, manifest)


def leftovers_free_manifest(files: object) -> bytes:
    from unmask.files.manifest import manifest_bytes

    return manifest_bytes({}, files)


@pytest.mark.parametrize(
    "entry", [None, 3, {}, {"bytes": -1, "sha256": ""}, {"bytes": True, "sha256": ""}, {"bytes": 1}]
)
def test_a_manifest_with_strange_entries_is_refused(tmp_path: Path, entry: object) -> None:
    (tmp_path / "manifest.json").write_bytes(leftovers_free_manifest({"a": entry}))
    with pytest.raises(DamagedError):
        verify_folder(tmp_path)


def test_the_manifest_is_json_that_anything_can_read(tmp_path: Path) -> None:
    fill(tmp_path / "out", "x", about={"sources": ["书.txt", "\udcff"], "rate": 0.1, "big": 2**70})
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["about"]["sources"] == ["书.txt", "\udcff"]
    assert read_manifest(tmp_path / "out")["about"] == {"sources": ["书.txt", "\udcff"], "rate": 0.1, "big": 2**70}
