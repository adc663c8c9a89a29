"""Writers leave whole files or none; readers notice every changed byte; hostile names go nowhere."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unmask.files.leftovers as leftovers
import unmask.files.write as write
from unmask.errors import CannotWriteError, DamagedError, DiskError, UnmaskError
from unmask.files import (
    file_sha256,
    make_folder,
    read_checked,
    read_manifest,
    remove_folder,
    remove_leftovers,
    require_space,
    safe_join,
    verify_folder,
    write_file,
    write_folder,
)

HOSTILE = [
    "", ".", "..", "/", "//", "/etc/passwd", "../x", "a/../../x", "a/..", "a/./b", "./a", "a//b", "a/", "/a", "..\\x",
    "a\\b", "\\\\server\\share", "C:", "C:x", "c:/x", "C:\\x", "a\0b", "\0", "a\nb", "a\rb", "a\x1b[2Jb", "a\x7fb",
    "a\u202eb", "a\u200bb", "\ud800", "x" * 256, "a/" + "x" * 300, "a/" * 3000 + "b", "..\u2028", "../" * 40 + "etc/passwd",
    "out/x", "out", "loop/x", "loop", None, 3, 1.5, b"a", ["a"], {"a": 1}, True,
]  # fmt: skip


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


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_a_hostile_name_leads_nowhere(tmp_path: Path, name: object) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    with pytest.raises(UnmaskError, match="not the name of a file inside"):
        safe_join(root, name)


@pytest.mark.parametrize(
    "name", ["a", "a.b", "a/b/c.txt", "...", "..a", "a..b", "~", "-rf", "$HOME", "模型/词表.json", "a b"]
)
def test_an_ordinary_name_stays_inside(tmp_path: Path, name: str) -> None:
    assert safe_join(tmp_path, name) == tmp_path.resolve() / name


@given(st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "a", "", "/", "\\", "C:"])).map("/".join))
def test_no_name_ever_leaves_the_folder(name: str) -> None:
    root = Path("/nowhere/root")
    try:
        path = safe_join(root, name)
    except UnmaskError:
        return
    assert root in path.parents


def test_a_full_disk_is_one_sentence_and_leaves_the_old_folder(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t tmpfs -o size=1m tmpfs") as disk:
        fill(disk / "out", "old")
        for _ in range(2):
            with (
                pytest.raises(DiskError, match="No space left") as caught,
                write_folder(disk / "out", replace=True) as new,
            ):
                (new / "big").write_bytes(bytes(2 << 20))
            assert caught.value.exit_code == 74 and "out" in caught.value.where
        with pytest.raises(DiskError, match="No space left"):
            write_file(disk / "file", bytes(2 << 20))
        with pytest.raises(DiskError, match=r"4,194,304 bytes are needed, [\d,]+ are free"):
            require_space(disk / "not" / "yet" / "there", 4 << 20)
        require_space(disk, 1000)
        assert names(disk) == ["out"]
        verify_folder(disk / "out")


def test_a_file_size_limit_is_one_sentence_too(tmp_path: Path) -> None:
    fill(tmp_path / "out", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(DiskError, match="too large"), write_folder(tmp_path / "out", replace=True) as folder:
            (folder / "big").write_bytes(bytes(2 << 20))
        with pytest.raises(DiskError, match="too large"):
            write_file(tmp_path / "big", bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["out"]


def test_a_full_disk_told_by_a_library_in_rust_is_understood(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="No space left"), write_folder(tmp_path / "out"):
        raise Exception("No space left on device (os error 28)")  # how tokenizers.Tokenizer.save says it
    assert names(tmp_path) == []


def test_trouble_with_an_input_is_not_called_trouble_with_the_output(tmp_path: Path) -> None:
    for code in (13, 5):
        with pytest.raises(OSError, match="input") as caught, write_folder(tmp_path / "out"):
            raise OSError(code, "input", str(tmp_path / "input.txt"))
        assert not isinstance(caught.value, UnmaskError) and names(tmp_path) == []


def test_a_read_only_place_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", f"--bind {tmp_path / 'disk'}", "-o remount,bind,ro") as disk:
        with pytest.raises(CannotWriteError, match="Read-only") as caught, write_folder(disk / "a" / "out"):
            pytest.fail("the block must not start")
        assert caught.value.exit_code == 73 and str(disk / "a") in caught.value.where
        with pytest.raises(CannotWriteError, match="Read-only"):
            write_file(disk / "file", "x")
        with pytest.raises(CannotWriteError, match="Read-only"):
            make_folder(disk / "a")


def test_a_place_without_permission_is_refused() -> None:
    code = """
import os, sys
from pathlib import Path
from unmask.errors import CannotWriteError
from unmask.files import make_folder, write_file, write_folder
if os.geteuid() == 0:  # permissions do not stop root
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
for job in (lambda path: write_folder(path).__enter__(), lambda path: write_file(path, "x"), make_folder):
    try:
        job(Path(sys.argv[1]))
    except CannotWriteError as error:
        assert "Permission denied" in error.what and sys.argv[1] in error.where, error
    else:
        sys.exit("written")
"""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "closed").mkdir(mode=0o555)
        (Path(name) / "secret").mkdir(mode=0o700 if os.geteuid() == 0 else 0o000)
        for place in ("closed/out", "secret/out", "secret/deep/out"):
            command = [sys.executable, "-c", code, str(Path(name) / place)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        assert names(Path(name) / "closed") == []


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for job in (make_folder, lambda path: write_file(path, "x"), fill_one):
        with pytest.raises(CannotWriteError) as caught:
            job(tmp_path / "file" / "deeper" / "out")
        assert "file" in caught.value.where


def fill_one(path: Path) -> None:
    fill(path, "x")


def dead_owner() -> str:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    owner = f"{child.pid}-{leftovers._start_time(child.pid)}-{leftovers._host()}"
    child.kill()
    child.wait()
    return owner


def test_what_dead_writers_left_is_removed_and_what_live_ones_write_is_not(tmp_path: Path) -> None:
    dead, mine = dead_owner(), leftovers._owner()
    pid, start, host = mine.split("-")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        alive = f"{other.pid}-{leftovers._start_time(other.pid)}-{host}"
        kept = [f".tmp-a-{mine}-00000001", f".tmp-a-{alive}-00000002", f".tmp-a-{dead[:-8]}ffffffff-00000003",
                ".tmp-a", ".tmp-a-b", "a", ".hidden"]  # fmt: skip
        gone = [
            f".tmp-a-{dead}-00000004",
            f".tmp-a-b-c-{dead}-00000005",
            f".tmp-a-{pid}-{int(start) + 1}-{host}-00000006",
        ]
        for name in (*kept, *gone):
            (tmp_path / name).mkdir()
            (tmp_path / name / "x").write_text("x")
        (tmp_path / f".tmp-f-{dead}-00000007").write_text("x")
        (tmp_path / f".tmp-l-{dead}-00000008").symlink_to(tmp_path / "a")
        removed = [path.name for path in remove_leftovers(tmp_path)]
        assert names(tmp_path) == sorted(kept) and len(removed) == 5 and set(gone) < set(removed)
        assert (tmp_path / "a" / "x").exists()
        remove_leftovers(tmp_path, alone=True)
        assert names(tmp_path) == sorted([kept[0], *kept[3:]])
        other.communicate(b"\n")
    assert remove_leftovers(tmp_path / "not there") == []


def test_a_zombie_writes_no_more(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    name = f".tmp-a-{child.pid}-{leftovers._start_time(child.pid)}-{leftovers._host()}-00000000"
    (tmp_path / name).mkdir()
    assert remove_leftovers(tmp_path) == []
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert [path.name for path in remove_leftovers(tmp_path)] == [name]
    child.wait()


def test_a_swap_that_died_between_its_renames_is_undone(tmp_path: Path) -> None:
    dead = dead_owner()
    fill(tmp_path / "out", "old")
    (tmp_path / "out").rename(tmp_path / f".old-out-{dead}-00000001")
    (tmp_path / f".tmp-out-{dead}-00000002").mkdir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "old"
    (tmp_path / f".old-out-{dead}-00000003").mkdir()  # died after the second rename
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "old"


def test_a_folder_is_deleted_under_another_name_so_that_nobody_reads_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "out", "x")
    monkeypatch.setattr(leftovers, "remove", lambda path: None)  # as if killed just there
    remove_folder(tmp_path / "out")
    assert not (tmp_path / "out").exists() and names(tmp_path)[0].startswith(".tmp-out-")
    remove_folder(tmp_path / "out")


def test_the_manifest_is_json_that_anything_can_read(tmp_path: Path) -> None:
    fill(tmp_path / "out", "x", about={"sources": ["书.txt", "\udcff"], "rate": 0.1, "big": 2**70})
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["about"]["sources"] == ["书.txt", "\udcff"]
    assert read_manifest(tmp_path / "out")["about"] == {"sources": ["书.txt", "\udcff"], "rate": 0.1, "big": 2**70}
