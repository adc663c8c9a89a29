"""Checkpoints come back bit for bit, and the newest whole one is found."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from saved_tensors import same, tensors

import unmask.train.checkpoint as checkpoint
from unmask.errors import DamagedError, UnmaskError
from unmask.files import write_folder
from unmask.train.checkpoint import Checkpoint, Checkpoints


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


def test_the_manifest_tells_step_and_loss_without_opening_the_weights(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path).save(7, tensors(7), {}, loss=2.5)
    about = json.loads((saved.folder / "manifest.json").read_text())["about"]
    assert about == {"format": "unmask-checkpoint", "step": 7, "loss": 2.5}
