"""The right checkpoints are deleted, and never before the new one is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from saved_tensors import steps, tensors

import unmask.files.write as write
import unmask.train.checkpoint as checkpoint
from unmask.errors import CannotWriteError, DiskError
from unmask.files import remove_leftovers
from unmask.train.checkpoint import Checkpoints


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=2)
    for step, loss in ((0, 9.0), (10, 3.0), (20, None), (30, 5.0), (40, 4.0), (50, None)):
        checkpoints.save(step, tensors(step), {}, loss=loss)
    assert steps(tmp_path) == [10, 40, 50]
    checkpoints.save(60, tensors(60), {}, loss=2.0)
    assert steps(tmp_path) == [50, 60]
    Checkpoints(tmp_path, keep_last=1, keep_best=False).save(70, tensors(70), {}, loss=9.0)
    assert steps(tmp_path) == [70]


def test_step_0_can_be_the_best(tmp_path: Path) -> None:
    for step, loss in ((0, 1.0), (1, 2.0), (2, 3.0)):
        Checkpoints(tmp_path, keep_last=1).save(step, tensors(step), {}, loss=loss)
    assert steps(tmp_path) == [0, 2]


def test_B130_the_list_says_which_is_which(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=5)
    for step, loss in ((10, 3.0), (20, None), (30, 2.5), (40, 2.75)):
        checkpoints.save(step, tensors(step), {}, loss=loss)
    (tmp_path / "0000000020" / "state.json").write_text("{")
    rows = checkpoints.list()
    assert [(row["step"], row["loss"], row["kind"]) for row in rows] == [
        (10, 3.0, "earlier"), (20, None, "damaged"), (30, 2.5, "best"), (40, 2.75, "last"),
    ]  # fmt: skip
    assert rows[0]["path"] == str(tmp_path / "0000000010")
    checkpoints.save(50, tensors(50), {}, loss=1.0)
    assert checkpoints.list()[-1]["kind"] == "best, last"


def test_nothing_is_deleted_before_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1)
    checkpoints.save(1, tensors(1), {})
    seen: list[list[int]] = []
    remove_folder = checkpoint.remove_folder

    def watching(folder: Path) -> None:
        newest, messages = checkpoints.newest()
        assert newest is not None and not messages
        seen.append([newest.step, *steps(tmp_path)])
        remove_folder(folder)

    monkeypatch.setattr(checkpoint, "remove_folder", watching)
    checkpoints.save(2, tensors(2), {})
    assert seen == [[2, 1, 2]] and steps(tmp_path) == [2]


def test_damaged_and_later_checkpoints_are_never_deleted(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1)
    for step in (1, 9):
        Checkpoints(tmp_path).save(step, tensors(step), {})
    (tmp_path / "0000000001" / "state.json").unlink()
    checkpoints.save(5, tensors(5), {})
    checkpoints.save(6, tensors(6), {})
    assert steps(tmp_path) == [1, 6, 9]


def test_a_deletion_that_fails_does_not_spoil_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1)
    checkpoints.save(1, tensors(1), {})

    def refuse(folder: Path) -> None:
        raise CannotWriteError("no")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "remove_folder", refuse)
        assert checkpoints.save(2, tensors(2), {}).step == 2
    assert steps(tmp_path) == [1, 2]
    checkpoints.save(3, tensors(3), {})
    assert steps(tmp_path) == [3]


def test_B041_space_is_checked_first_and_a_full_disk_keeps_the_last_good_one(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    size = 2 << 20
    # room for 2.5 checkpoints of 2 MB, above the 1 MB that a save sets aside for headers
    mount = ["mount", "-t", "tmpfs", "-o", f"size={5 * size // 2 + (1 << 20)}", "tmpfs", str(disk)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        checkpoints = Checkpoints(disk / "steps", keep_last=2)
        full = {"encoder": {"a": torch.zeros(size // 4)}}
        for step in (1, 2):
            checkpoints.save(step, full, {})
        for step in (3, 4):
            with pytest.raises(DiskError, match=r"Not enough disk space: 3,145,728 bytes are needed") as caught:
                checkpoints.save(step, full, {})
            assert caught.value.exit_code == 74 and str(disk) in caught.value.where
            assert steps(disk / "steps") == [1, 2]
        (disk / "steps" / "0000000001").rename(disk / "aside")
        shutil.rmtree(disk / "aside")
        checkpoints.save(3, full, {})
        assert checkpoints.newest()[1] == [] and steps(disk / "steps") == [2, 3]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_B041_a_disk_that_fills_while_writing_keeps_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        monkeypatch.setattr(checkpoint, "require_space", lambda folder, needed: None)  # another program was faster
        checkpoints = Checkpoints(disk, keep_last=1)
        good = checkpoints.save(1, {"encoder": {"a": torch.ones(1 << 18)}}, {})
        for _ in range(3):
            with pytest.raises(DiskError, match=r"No space left on device \([\d,]+ bytes free\)"):
                checkpoints.save(2, {"encoder": {"a": torch.ones(1 << 17), "b": torch.ones(1 << 19)}}, {})
            assert checkpoints.newest() == (good, []) and os.listdir(disk) == ["0000000001"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


SAVER = """
import sys, torch
from pathlib import Path
from unmask.train.checkpoint import Checkpoints
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
for step in range(1, 31):
    Checkpoints(Path(sys.argv[1]), keep_last=1, keep_best=False).save(step, {"encoder": {"a": torch.full((99,), step)}}, {})
"""


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False])
def test_B044_two_processes_that_save_and_delete_in_one_folder_do_not_trip(tmp_path: Path, exchange: bool) -> None:
    script = SAVER if exchange else f"import unmask.files.write as w\nw._exchange = lambda *a: False\n{SAVER}"
    command = [sys.executable, "-c", script, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert os.listdir(tmp_path) == ["0000000030"]
    assert Checkpoints(tmp_path).newest()[1] == []


def test_leftovers_of_a_dead_save_are_gone_after_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    left = tmp_path / f".tmp-0000000001-{child.pid}-1-{write.own_name('tmp', 'x').split('-')[-2]}-00000000"
    left.mkdir()
    (left / "encoder.safetensors").write_bytes(b"half")
    assert Checkpoints(tmp_path).newest() == (None, [])
    Checkpoints(tmp_path).save(2, tensors(2), {})
    assert os.listdir(tmp_path) == ["0000000002"] and remove_leftovers(tmp_path) == []
