"""Writers leave whole files and folders or none, and replace only what is theirs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from whole_folders import fill, names

import unmask.files.write as write
from unmask.errors import CannotWriteError, DiskError
from unmask.files import file_sha256, read_manifest, verify_folder, write_file, write_folder, write_stream


def test_a_folder_appears_whole_with_size_and_hash_of_every_file(tmp_path: Path) -> None:
    seen = []
    with write_folder(tmp_path / "new" / "corpus", about={"format": "x"}) as folder:
        seen = names(tmp_path / "new")
        (folder / "a.txt").write_bytes(b"abc")
    assert seen == [folder.name] and folder.name.startswith(".tmp-corpus-")
    assert names(tmp_path / "new") == ["corpus"] and names(tmp_path / "new" / "corpus") == ["a.txt", "manifest.json"]
    manifest = verify_folder(tmp_path / "new" / "corpus")
    assert manifest["about"] == {"format": "x"}
    # SHA-256 of "abc" as FIPS 180-2, appendix B.1 gives it
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["files"] == {"a.txt": {"bytes": 3, "sha256": digest}}
    assert file_sha256(tmp_path / "new" / "corpus" / "a.txt") == digest


def test_what_is_learnt_while_writing_still_gets_into_the_manifest(tmp_path: Path) -> None:
    about: dict[str, object] = {}
    with write_folder(tmp_path / "out", about=about):
        about["documents"] = 7
    assert read_manifest(tmp_path / "out")["about"] == {"documents": 7}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, MemoryError])
def test_when_the_writer_fails_nothing_is_left_and_the_old_folder_stays(
    tmp_path: Path, error: type[BaseException]
) -> None:
    fill(tmp_path / "out", "old")
    with pytest.raises(error), write_folder(tmp_path / "out", replace=True) as folder:
        (folder / "a.txt").write_text("half")
        raise error
    with pytest.raises(error), write_folder(tmp_path / "other") as folder:
        raise error
    assert names(tmp_path) == ["out"]
    verify_folder(tmp_path / "out")
    assert (tmp_path / "out" / "a.txt").read_text() == "old"


def test_an_existing_output_is_refused_before_any_work(tmp_path: Path) -> None:
    fill(tmp_path / "out", "old")
    (tmp_path / "file").write_text("x")
    for target, replace in ((tmp_path / "out", False), (tmp_path / "file", False), (tmp_path / "file", True)):
        with pytest.raises(CannotWriteError, match="exists already"), write_folder(target, replace=replace):
            pytest.fail("the block must not start")
    assert names(tmp_path) == ["file", "out"]


def test_an_output_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(CannotWriteError, match="exists already"), write_folder(tmp_path / "out") as folder:
        (folder / "a.txt").write_text("mine")
        fill(tmp_path / "out", "theirs")
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "theirs"


@pytest.mark.parametrize("exchange", [True, False])
def test_replacing_swaps_the_whole_folder(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:
        monkeypatch.setattr(write, "_exchange", lambda one, other: False)
    fill(tmp_path / "out", "old")
    with write_folder(tmp_path / "out", replace=True) as folder:
        (folder / "c.txt").write_text("new")
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["c.txt", "manifest.json"]


def test_a_folder_to_which_somebody_added_files_is_not_replaced(tmp_path: Path) -> None:
    """A run inside a corpus, a person's notes beside a model: what the manifest does not name is not ours to delete."""
    fill(tmp_path / "out", "old")
    (tmp_path / "out" / "run").mkdir()
    (tmp_path / "out" / "run" / "notes.txt").write_text("mine")
    with pytest.raises(CannotWriteError, match="run/notes.txt"), write_folder(tmp_path / "out", replace=True) as folder:
        (folder / "c.txt").write_text("new")
    assert (tmp_path / "out" / "run" / "notes.txt").read_text() == "mine"


def test_an_old_folder_comes_back_when_the_second_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "out", "old")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.startswith(".tmp-"):
            raise OSError(28, "No space left on device", str(self))
        return rename(self, target)

    monkeypatch.setattr(write, "_exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(DiskError):
        fill(tmp_path / "out", "new", replace=True)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "old"


def test_a_folder_of_the_users_own_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("x")
    with pytest.raises(CannotWriteError, match="not written by unmask"):
        fill(tmp_path / "home", "new", replace=True)
    assert names(tmp_path / "home") == ["thesis.txt"]
    (tmp_path / "empty").mkdir()
    fill(tmp_path / "empty", "new", replace=True)
    verify_folder(tmp_path / "empty")


def test_replacing_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    fill(tmp_path / "disk", "old")
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    fill(tmp_path / "out", "new", replace=True)
    write_file(tmp_path / "real.txt", "1")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_file(tmp_path / "link.txt", "2")
    assert (tmp_path / "out").is_symlink() and (tmp_path / "disk" / "a.txt").read_text() == "new"
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "real.txt").read_text() == "2"


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[tuple[str, str]] = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(descriptor: int) -> None:
        log.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def note_rename(self: Path, target: Path) -> Path:
        log.append(("rename", str(self)))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    with write_folder(tmp_path / "out") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "b.txt").write_text("x")
    parts = (folder / "sub" / "b.txt", folder / "manifest.json", folder / "sub", folder)
    at = log.index(("rename", str(folder)))
    assert {("fsync", str(part)) for part in parts} <= set(log[:at])
    assert log[at + 1 :] == [("fsync", str(tmp_path))]
    assert log.index(("fsync", str(folder))) > log.index(("fsync", str(folder / "manifest.json")))


def test_files_are_as_readable_as_the_users_umask_says(tmp_path: Path) -> None:
    with write_folder(tmp_path / "out") as folder:
        (folder / "a.txt").touch(mode=0o600)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {folder_mode(tmp_path)}


def folder_mode(folder: Path) -> int:
    (folder / "probe").touch()
    return (folder / "probe").stat().st_mode & 0o777


def test_a_stream_becomes_a_file_when_it_is_whole_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "vectors.npy"
    with write_stream(path) as file:
        file.write(b"header, rows")
        assert [name.startswith(".tmp-vectors.npy-") for name in names(path.parent)] == [True]
        file.seek(0)
        file.write(b"HEADER")
    assert path.read_bytes() == b"HEADER, rows"
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), write_stream(path) as file:
            file.write(b"half")
            raise error
    assert path.read_bytes() == b"HEADER, rows" and names(path.parent) == ["vectors.npy"]


def test_a_file_is_never_written_over_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(CannotWriteError, match="A folder stands where a file is needed"):
        write_file(tmp_path / "out.jsonl", "x")
    assert names(tmp_path) == ["out.jsonl"] and names(tmp_path / "out.jsonl") == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "run.json"
    write_file(path, "é\n")
    assert path.read_bytes() == b"\xc3\xa9\n"
    write_file(path, b"\0\1")
    assert path.read_bytes() == b"\0\1" and names(path.parent) == ["run.json"]

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=r"No space left on device \([\d,]+ bytes free\)") as caught:
        write_file(path, "new")
    assert caught.value.exit_code == 74 and str(path) in caught.value.where
    assert path.read_bytes() == b"\0\1" and names(path.parent) == ["run.json"]
