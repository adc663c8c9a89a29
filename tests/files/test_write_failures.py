"""What keeps a writer from writing is one sentence, and leaves what was there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from whole_folders import fill, mounted, names

from unmask.errors import CannotWriteError, DiskError, UnmaskError
from unmask.files import make_folder, require_space, verify_folder, write_file, write_folder


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
