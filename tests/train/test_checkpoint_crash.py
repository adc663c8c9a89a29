"""A save that is killed, fails or rots at any point never costs more than the save itself."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crash_writer
import pytest

import unmask.files.leftovers as leftovers
import unmask.files.write as write
import unmask.train.checkpoint as checkpoint
from unmask.train.checkpoint import Checkpoints

CHANGES = (
    "write,pwrite64,writev,ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,"
    "fsync,fdatasync,openat,close,chmod,fchmod,fchmodat"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "injection"), [("next", "signal=SIGKILL"), ("same", "signal=SIGKILL"), ("next", "error=ENOSPC")]
)
def test_B039_a_save_struck_at_any_system_call_leaves_a_whole_checkpoint(
    tmp_path: Path, mode: str, injection: str
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace (the tests below strike the same places from inside Python)")
    script = str(Path(crash_writer.__file__))
    done = subprocess.run(
        [sys.executable, script, str(tmp_path), mode, injection, CHANGES], capture_output=True, text=True, check=False
    )
    if "cannot trace" in done.stderr:
        pytest.skip(f"strace may not attach to processes here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == {} and set(report["results"]) == {"old", "new"}, report
    assert sum(report["results"].values()) >= 60


class Killed(BaseException):
    """Stands for SIGKILL: after the first one nothing that changes the disk works any more, clean-up included."""


class Reaper:
    """Lets the process "die" at the n-th change of the disk that Python code makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, failure: Callable[[], BaseException], stays: bool):
        self.count, self.at, self.failure, self.stays = 0, at, failure, stays
        places: list[tuple[Any, str]] = [
            (os, "fsync"), (Path, "rename"), (Path, "mkdir"), (Path, "write_text"), (Path, "chmod"),
            (checkpoint, "save_file"), (write, "_exchange"), (write, "manifest_bytes"),
        ]  # fmt: skip
        if stays:
            places += [(write, "remove"), (leftovers, "remove")]
        for owner, name in places:
            monkeypatch.setattr(owner, name, self.wrapped(getattr(owner, name)))

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.at or (self.stays and self.count > self.at > 0):
                raise self.failure()
            return function(*arguments, **options)

        return struck


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("mode", ["next", "same"])
@pytest.mark.parametrize("failure", [Killed, lambda: OSError(28, "No space left on device")], ids=["kill", "full"])
def test_B039_a_save_struck_at_any_change_of_the_disk_leaves_a_whole_checkpoint(
    tmp_path: Path, mode: str, failure: Callable[[], BaseException], exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, work = tmp_path / "base", tmp_path / "work"
    crash_writer.save(base, 1, mode)
    if not exchange:
        monkeypatch.setattr(write, "_exchange", lambda one, other: False)
    at, seen = 0, set()
    while True:
        at += 1
        crash_writer.fresh(base, work)
        with monkeypatch.context() as patch:
            reaper = Reaper(patch, at, failure, stays=failure is Killed)
            try:
                crash_writer.save(work, 2, mode)
                code = crash_writer.OK
            except Killed:
                code = -9
            except checkpoint.UnmaskError:
                code = crash_writer.TOLD
        if reaper.count < at:
            break
        if failure is Killed and not exchange and mode == "same" and crash_writer.found(work) == "lost":
            for path in work.iterdir():  # between two renames: what a new process repairs, as its own number differs
                path.rename(path.with_name(path.name.replace(str(os.getpid()), "4194305", 1)))
            leftovers.remove_leftovers(work)
        found = crash_writer.found(work)
        assert found in (1, 2), (at, found)
        assert code != crash_writer.OK or found == 2, at
        seen.add(found)
    assert at > 15 and seen == {1, 2}


def two_checkpoints(folder: Path) -> Path:
    for version in (1, 2):
        tensors, state = crash_writer.content(version)
        Checkpoints(folder).save(version, tensors, state)
    return folder / "0000000002"


def falls_back(folder: Path) -> bool:
    newest, messages = Checkpoints(folder).newest()
    return newest is not None and newest.step == 1 and len(messages) == 1 and "Checkpoint 2" in messages[0]


def test_B039_a_file_cut_at_any_byte_is_noticed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    for path in newest.iterdir():
        good = path.read_bytes()
        for length in {*range(0, len(good), 5), *range(len(good) - 20, len(good))}:
            path.write_bytes(good[:length])
            assert falls_back(tmp_path), f"{path.name} cut at {length}"
        path.write_bytes(good)
    assert Checkpoints(tmp_path).newest()[1] == []


def test_a_missing_swapped_or_foreign_file_is_noticed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    older = tmp_path / "0000000001"
    for path in newest.iterdir():
        good = path.read_bytes()
        for content in (None, (older / path.name).read_bytes(), good + good):
            path.unlink() if content is None else path.write_bytes(content)
            assert falls_back(tmp_path), path.name
            path.write_bytes(good)
    encoder, objective = newest / "encoder.safetensors", newest / "objective.safetensors"
    objective.write_bytes(objective.read_bytes()[:-1] + b"\1")
    assert falls_back(tmp_path)
    objective.write_bytes(encoder.read_bytes())
    assert Checkpoints(tmp_path).newest()[1] == []  # equal bytes: here both groups hold the same tensors


def test_two_hundred_kinds_of_rot_are_all_noticed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    draw = random.Random(0)
    originals = {path: path.read_bytes() for path in newest.iterdir()}
    for trial in range(200):
        path = draw.choice(sorted(originals))
        data = bytearray(originals[path])
        place = draw.randrange(len(data))
        if trial % 3 == 0:
            data[place] ^= 1 << draw.randrange(8)
        elif trial % 3 == 1:
            del data[place:]
        else:  # a page of zeros, as after a power cut
            data[place - place % 64 : place - place % 64 + 64] = bytes(len(data[place - place % 64 :][:64]))
        path.write_bytes(data)
        assert bytes(data) == originals[path] or falls_back(tmp_path), f"trial {trial}: {path.name} at {place}"
        path.write_bytes(originals[path])


def test_a_file_that_the_disk_cannot_read_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import unmask.files.manifest as manifest

    newest = two_checkpoints(tmp_path)
    file_sha256 = manifest.file_sha256

    def failing(path: Path) -> str:
        if path.is_relative_to(newest):
            raise OSError(5, "Input/output error")
        return file_sha256(path)

    monkeypatch.setattr(manifest, "file_sha256", failing)
    assert falls_back(tmp_path)
