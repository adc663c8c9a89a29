"""Checkpoints of a run: `steps/<step>/`, each a whole folder with hashes, so that a run resumes from exactly what it saved.

    steps/0000000100/  encoder.safetensors  objective.safetensors  optimizer.safetensors  state.json  manifest.json

The step in the name decides which is newest, never a file's time. Weights are safetensors and numbers are JSON: opening
a checkpoint runs no code of whoever made it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save_file
from torch import Tensor

from unmask.errors import DamagedError, UnmaskError
from unmask.files import (
    MANIFEST,
    check_sizes,
    read_checked,
    read_manifest,
    remove_folder,
    remove_leftovers,
    require_space,
    verify_folder,
    write_folder,
)
from unmask.progress import Progress, quiet

FORMAT = "unmask-checkpoint"
_STATE = "state.json"
_ENDING = ".safetensors"
_ROOM_BESIDE_TENSORS = 1 << 20  # headers, state.json, manifest and the file system's own blocks

Tensors = dict[str, dict[str, Tensor]]
Messages = list[str]
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved step and where it is."""

    step: int
    folder: Path


class Checkpoints:
    """The checkpoints of one run in `folder` (runs/<name>/steps).

    Keeps the newest `keep_last` and, with `keep_best`, the one with the lowest held-out loss; older ones are deleted,
    but only after a newer one is whole on the disk.
    """

    def __init__(self, folder: Path, *, keep_last: int = 3, keep_best: bool = True) -> None:
        assert keep_last >= 1, "a run without its last checkpoint can't resume"
        self.folder, self.keep_last, self.keep_best = folder, keep_last, keep_best

    def save(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        state: dict[str, Any],
        *,
        loss: float | None = None,
    ) -> Checkpoint:
        """Writes a checkpoint whole or not at all, then deletes those no longer kept.

        `tensors` are groups (encoder, objective, optimizer), one file each, on any device; `state` is made of JSON
        values with finite numbers, which come back exactly; `loss` is the held-out loss that decides which is best.
        An earlier checkpoint of the same step is replaced. Raises DiskError or CannotWriteError with the earlier
        checkpoints intact, and UnmaskError for tensors that are not finite: a broken model is not worth resuming.
        """
        assert 0 <= step < 10**10 and (loss is None or math.isfinite(loss)), f"step {step}, loss {loss}"
        _check_shared(tensors)
        _check_finite(step, tensors)
        _check_plain(state, "state")
        remove_leftovers(self.folder)
        needed = sum(tensor.nbytes for group in tensors.values() for tensor in group.values())
        require_space(self.folder, needed + _ROOM_BESIDE_TENSORS)
        saved = Checkpoint(step, self._place(step))
        if saved.folder.exists() and not (saved.folder / MANIFEST).is_file():
            remove_folder(saved.folder)  # a wreck: nothing could resume from it
        about = {"format": FORMAT, "step": step, "loss": loss}
        with write_folder(saved.folder, replace=True, about=about) as folder:
            for name, group in tensors.items():
                save_file(
                    {key: tensor.detach().cpu().contiguous() for key, tensor in group.items()},
                    folder / (name + _ENDING),
                )
            (folder / _STATE).write_text(json.dumps(state, allow_nan=False, indent=1) + "\n", encoding="utf-8")
        self._prune(step)
        return saved

    def newest(self, *, progress: Progress = quiet) -> tuple[Checkpoint | None, Messages]:
        """The newest checkpoint whose every byte is as written, and a message for each damaged one that was passed over."""
        messages = []
        for step in sorted(self._steps(), reverse=True):
            folder = self._place(step)
            try:
                _check_about(folder, step, verify_folder(folder, progress=progress))
            except UnmaskError as error:
                messages.append(f"Checkpoint {step} is passed over. {error.what} ({folder})")
            else:
                return Checkpoint(step, folder), messages
        return None, messages

    def load(self, checkpoint: Checkpoint) -> tuple[Tensors, dict[str, Any]]:
        """The tensors (on the CPU) and the state of a checkpoint; every file is read once, checked, and parsed from the
        bytes that were checked. Raises DamagedError."""
        folder = checkpoint.folder
        manifest = read_manifest(folder)
        _check_about(folder, checkpoint.step, manifest)
        try:
            name = _STATE
            state = json.loads(read_checked(folder, name, manifest))
            tensors = {}
            for name in manifest["files"]:
                if name.endswith(_ENDING):
                    tensors[name.removesuffix(_ENDING)] = tensors_from_bytes(read_checked(folder, name, manifest))
        except (
            ValueError,
            RecursionError,
            SafetensorError,
        ) as error:  # the hash is right: somebody else made this file
            why = f"{name} is not what its name says: {error}."
            raise DamagedError(why, where=str(folder), do="Use only checkpoints that unmask wrote.") from error
        return tensors, state

    def list(self) -> Rows:
        """One row a checkpoint, oldest first: step, loss (None where not measured), path, and kind: `best`, `last`,
        `best, last`, `earlier`, or `damaged` where a quick look finds the manifest or a file missing or cut short."""
        losses = self._losses()
        best, last = _best(losses), max(losses, default=None)
        rows = []
        for step in sorted(self._steps()):
            names = [name for name, holder in (("best", best), ("last", last)) if step == holder]
            kind = ", ".join(names) or ("earlier" if step in losses else "damaged")
            rows.append({"step": step, "loss": losses.get(step), "kind": kind, "path": str(self._place(step))})
        return rows

    def _place(self, step: int) -> Path:
        return self.folder / f"{step:010d}"

    def _steps(self) -> set[int]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return set()
        except OSError as error:  # not "none": the run would quietly start again from nothing
            what = f"The checkpoints can't be listed ({error.strerror})."
            raise DamagedError(what, where=str(self.folder), do="Check the disk and its permissions.") from error
        return {int(name) for name in names if len(name) == 10 and name.isascii() and name.isdigit()}

    def _losses(self) -> dict[int, float | None]:
        """Step to held-out loss of every checkpoint that looks whole."""
        losses = {}
        for step in self._steps():
            folder = self._place(step)
            try:
                manifest = check_sizes(folder)
                _check_about(folder, step, manifest)
            except UnmaskError:
                continue
            losses[step] = manifest["about"].get("loss")
        return losses

    def _prune(self, saved: int) -> None:
        """Deletes what is not kept among the checkpoints up to the one just saved; later ones are another run's.

        What does not look whole is never deleted: the disk may only have failed to read it this time. Nor does a
        deletion that fails spoil a save that went well; the next save tries again.
        """
        with suppress(UnmaskError):
            losses = {step: loss for step, loss in self._losses().items() if step <= saved}
            kept: set[int | None] = {saved, *sorted(losses)[-self.keep_last :]}
            if self.keep_best:
                kept.add(_best(losses))
            for step in losses.keys() - kept:
                remove_folder(self._place(step))


def _best(losses: dict[int, float | None]) -> int | None:
    """The step with the lowest loss; of equal ones the earliest."""
    measured = [(loss, step) for step, loss in losses.items() if loss is not None]
    return min(measured)[1] if measured else None


def _check_about(folder: Path, step: int, manifest: dict[str, Any]) -> None:
    about = manifest["about"]
    if about.get("format") != FORMAT or about.get("step") != step or _STATE not in manifest["files"]:
        raise DamagedError(
            f"{MANIFEST} does not describe a checkpoint of step {step}.",
            where=str(folder),
            do="Do not rename or mix checkpoint folders.",
        )


def _check_shared(tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Tied weights are the caller's to drop: saved twice they could come back different."""
    seen: dict[tuple[str, int], str] = {}
    for group, members in tensors.items():
        for name, tensor in members.items():
            where = f"{group}.{name}"
            if tensor.numel():
                first = seen.setdefault((str(tensor.device), tensor.data_ptr()), where)
                assert first == where, f"{where} shares its memory with {first}: pass tied tensors once"


def _check_finite(step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    for group, members in tensors.items():
        for name, tensor in members.items():
            if tensor.is_floating_point() and not tensor.isfinite().all():
                raise UnmaskError(
                    f"{group}.{name} holds numbers that are not finite; step {step} is not saved.",
                    where=f"step {step}",
                    do="Resume from the last checkpoint with a lower learning rate, or look at the batch of this step.",
                )


def _check_plain(value: object, where: str) -> None:
    """JSON would quietly turn number keys into text and can't hold NaN: such a state would not come back as it was."""
    if isinstance(value, dict):
        for key, member in value.items():
            assert isinstance(key, str), f"{where} has the key {key!r}, which JSON would turn into text"
            _check_plain(member, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            _check_plain(member, f"{where}[{index}]")
    elif isinstance(value, float):
        assert math.isfinite(value), f"{where} is {value}"
    else:
        assert value is None or isinstance(value, (str, int)), f"{where} is a {type(value).__name__}"
