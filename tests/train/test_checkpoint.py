"""Checkpoints come back bit for bit, the newest whole one is found, and the right ones are deleted."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import unmask.files.write as write
import unmask.train.checkpoint as checkpoint
from unmask.errors import CannotWriteError, DamagedError, DiskError, UnmaskError
from unmask.files import remove_leftovers, write_folder
from unmask.train.checkpoint import Checkpoint, Checkpoints


def tensors(step: int) -> dict[str, dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(step)
    return {
        "encoder": {
            "word.weight": torch.randn(7, 5, generator=draw),
            "bias": torch.randn(3, generator=draw).bfloat16(),
        },
        "objective": {"scale": torch.tensor(1.5), "empty": torch.zeros(0, 4)},
        "optimizer": {"step": torch.tensor(step), "moment": torch.randn(4, generator=draw, dtype=torch.float64)},
    }


def same(left: dict[str, dict[str, Tensor]], right: dict[str, dict[str, Tensor]]) -> bool:
    return left.keys() == right.keys() and all(
        left[group].keys() == right[group].keys()
        and all(
            left[group][name].dtype == right[group][name].dtype
            and torch.equal(left[group][name].view(-1).view(torch.uint8), right[group][name].view(-1).view(torch.uint8))
            and left[group][name].shape == right[group][name].shape
            for name in left[group]
        )
        for group in left
    )


def steps(folder: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(folder))


def test_every_tensor_and_number_comes_back_exactly(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "rate": 0.1,
        "tiny": 5e-324,
        "rng": [2**127 + 1, -3],
        "text": "模型",
        "none": None,
        "on": True,
    }
    saved = Checkpoints(tmp_path / "steps").save(12, tensors(12), state, loss=1 / 3)
    assert saved == Checkpoint(12, tmp_path / "steps" / "0000000012")
    expected = ["encoder.safetensors", "manifest.json", "objective.safetensors", "optimizer.safetensors", "state.json"]
    assert sorted(os.listdir(saved.folder)) == expected
    newest, messages = Checkpoints(tmp_path / "steps").newest()
    assert newest == saved and messages == []
    got, got_state = Checkpoints(tmp_path / "steps").load(saved)
    assert same(got, tensors(12)) and got_state == state and repr(got_state["rate"]) == "0.1"


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text())
)
def test_any_state_of_plain_values_comes_back(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("steps")
    saved = Checkpoints(folder).save(1, {"encoder": {"a": torch.ones(1)}}, state)
    got = Checkpoints(folder).load(saved)[1]
    assert got == state and {name: repr(value) for name, value in got.items()} == {k: repr(v) for k, v in state.items()}


def test_views_and_tensors_that_need_gradients_are_saved_as_what_they_show(tmp_path: Path) -> None:
    table = torch.arange(12.0).view(3, 4).requires_grad_()
    saved = Checkpoints(tmp_path).save(1, {"encoder": {"turned": table.t(), "column": table[:, 1]}}, {})
    got = Checkpoints(tmp_path).load(saved)[0]["encoder"]
    assert torch.equal(got["turned"], table.t()) and torch.equal(got["column"], table[:, 1])
    got["turned"].add_(1)  # a loaded tensor is an ordinary one


def test_tied_tensors_have_to_be_passed_once(tmp_path: Path) -> None:
    table = torch.ones(3, 4)
    with pytest.raises(AssertionError, match=r"objective.decoder shares its memory with encoder.words: pass tied"):
        Checkpoints(tmp_path).save(1, {"encoder": {"words": table}, "objective": {"decoder": table.view(12)}}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path, value: float, dtype: torch.dtype) -> None:
    good = Checkpoints(tmp_path).save(1, tensors(1), {})
    broken = tensors(2)
    broken["optimizer"]["moment"] = torch.tensor([0.0, value], dtype=dtype)
    with pytest.raises(UnmaskError, match="optimizer.moment holds numbers that are not finite; step 2 is not saved"):
        Checkpoints(tmp_path).save(2, broken, {})
    assert Checkpoints(tmp_path).newest() == (good, [])


@pytest.mark.parametrize(
    "state", [{"a": float("nan")}, {"a": [{"b": float("inf")}]}, {"a": {1: 2}}, {"a": torch.ones(1)}, {"a": {1, 2}}]
)
def test_a_state_that_json_would_change_is_our_mistake(tmp_path: Path, state: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"^state\.a"):
        Checkpoints(tmp_path).save(1, tensors(1), state)
    assert os.listdir(tmp_path) == []


def test_the_step_decides_which_is_newest_never_the_time_of_a_file(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        Checkpoints(tmp_path).save(step, tensors(step), {})
    for age, step in enumerate((100, 10, 9)):
        for path in (tmp_path / f"{step:010d}", *(tmp_path / f"{step:010d}").iterdir()):
            os.utime(path, (age * 10**9, age * 10**9))
    newest, _ = Checkpoints(tmp_path).newest()
    assert newest is not None and newest.step == 100


def test_nothing_saved_is_no_checkpoint_and_no_message(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "steps").newest() == (None, []) and Checkpoints(tmp_path / "steps").list() == []
    for name in ("notes", "12", "00000000012", "000000000x", "٠" * 10):
        (tmp_path / name).mkdir()
    assert Checkpoints(tmp_path).newest() == (None, [])


def test_checkpoints_that_cannot_be_listed_are_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "steps").write_text("a file")
    with pytest.raises(DamagedError, match="can't be listed"):
        Checkpoints(tmp_path / "steps").newest()


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        Checkpoints(tmp_path).save(step, tensors(step), {"step": step})
    (tmp_path / "0000000003" / "optimizer.safetensors").unlink()
    data = bytearray((tmp_path / "0000000002" / "encoder.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "0000000002" / "encoder.safetensors").write_bytes(data)
    newest, messages = Checkpoints(tmp_path).newest()
    assert newest == Checkpoint(1, tmp_path / "0000000001")
    assert "Checkpoint 3" in messages[0] and "optimizer.safetensors" in messages[0] and "can't be read" in messages[0]
    assert "Checkpoint 2" in messages[1] and "encoder.safetensors" in messages[1] and "SHA-256" in messages[1]
    with pytest.raises(DamagedError, match="encoder.safetensors"):
        Checkpoints(tmp_path).load(Checkpoint(2, tmp_path / "0000000002"))


def test_a_renamed_or_foreign_folder_is_not_a_checkpoint(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path).save(5, tensors(5), {})
    shutil.copytree(saved.folder, tmp_path / "0000000009")
    with write_folder(tmp_path / "0000000008", about={"format": "unmask-shards"}) as folder:
        (folder / "state.json").write_text("{}")
    newest, messages = Checkpoints(tmp_path).newest()
    assert newest == saved and len(messages) == 2
    with pytest.raises(DamagedError, match="does not describe a checkpoint of step 9"):
        Checkpoints(tmp_path).load(Checkpoint(9, tmp_path / "0000000009"))


def test_what_is_loaded_is_what_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = Checkpoints(tmp_path).save(1, tensors(1), {"step": 1})
    reads: list[str] = []
    read_checked = checkpoint.read_checked

    def read_then_swap(folder: Path, name: str, manifest: dict[str, Any]) -> bytes:
        data = read_checked(folder, name, manifest)
        reads.append(name)
        (folder / name).write_bytes(b"swapped by somebody after the check")
        return data

    monkeypatch.setattr(checkpoint, "read_checked", read_then_swap)
    got, state = Checkpoints(tmp_path).load(saved)
    assert same(got, tensors(1)) and state == {"step": 1} and len(reads) == len(set(reads)) == 4


def test_a_file_of_nonsense_with_the_right_hash_is_one_sentence(tmp_path: Path) -> None:
    with write_folder(tmp_path / "0000000001", about={"format": "unmask-checkpoint", "step": 1}) as folder:
        (folder / "state.json").write_text("{}")
        (folder / "encoder.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(DamagedError, match="encoder.safetensors is not what its name says"):
        Checkpoints(tmp_path).load(Checkpoint(1, tmp_path / "0000000001"))


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


@pytest.mark.parametrize("wreck", ["whole", "no manifest", "damaged", "empty"])
def test_a_step_can_be_saved_again_over_whatever_is_there(tmp_path: Path, wreck: str) -> None:
    folder = Checkpoints(tmp_path).save(5, tensors(1), {"old": 1}).folder
    if wreck == "no manifest":
        (folder / "manifest.json").unlink()
    if wreck == "damaged":
        (folder / "manifest.json").write_text("{")
    if wreck == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    saved = Checkpoints(tmp_path).save(5, tensors(2), {"new": 1})
    got, state = Checkpoints(tmp_path).load(saved)
    assert same(got, tensors(2)) and state == {"new": 1} and os.listdir(tmp_path) == ["0000000005"]


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


class Marker:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_B136_a_pickle_in_a_checkpoint_is_never_opened(tmp_path: Path) -> None:
    poison = pickle.dumps(Marker(tmp_path / "marker"))
    pickle.loads(poison)
    (tmp_path / "marker").unlink()  # the poison works
    folder = tmp_path / "steps"
    good = Checkpoints(folder).save(1, tensors(1), {})
    names = [".metadata", "pytorch_model.bin", "optimizer.pt", "rng_state.pth", "training_args.bin", "__0_0.distcp",
             "manifest.json", "state.json", "encoder.safetensors"]  # fmt: skip
    (folder / "0000000002").mkdir()
    for name in names:
        (folder / "0000000002" / name).write_bytes(poison)
    with write_folder(folder / "0000000003", about={"format": "unmask-checkpoint", "step": 3}) as third:
        for name in names:
            if name != "manifest.json":
                (third / name).write_bytes(poison)
    checkpoints = Checkpoints(folder)
    newest, messages = checkpoints.newest()
    assert newest is not None and newest.step == 3 and "Checkpoint 2" not in "".join(messages[1:])
    for step in (2, 3):
        with pytest.raises(DamagedError):
            checkpoints.load(Checkpoint(step, folder / f"{step:010d}"))
    checkpoints.list()
    checkpoints.save(4, tensors(4), {})
    shutil.rmtree(folder / "0000000003")
    assert checkpoints.load(good)[1] == {}
    assert not (tmp_path / "marker").exists()


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


def test_the_manifest_tells_step_and_loss_without_opening_the_weights(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path).save(7, tensors(7), {}, loss=2.5)
    about = json.loads((saved.folder / "manifest.json").read_text())["about"]
    assert about == {"format": "unmask-checkpoint", "step": 7, "loss": 2.5}
