"""What a run measures, twice: `metrics.jsonl`, the record of the project, and TensorBoard event files beside it."""

from __future__ import annotations

import json
import math
import os
import secrets
import struct
import time
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from unmask.files import explained, make_folder, write_file

_CURVES = {"step": "train", "evaluation": "evaluation"}  # kinds of records that become curves, and the curves' folder


class Metrics:
    """Writes the records of a run to `path`, one JSON object a line, each handed to the system before `write` returns.

    JSON knows no NaN and no infinity: such numbers are written as null. Records of kind `step` and `evaluation` also
    become TensorBoard curves in `tensorboard/` beside `path`. Raises DiskError and CannotWriteError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._curves = _Curves(path.parent / "tensorboard")

    def write(self, record: dict[str, Any]) -> None:
        """Appends one record; it has a `kind` and a `step`."""
        line = (json.dumps(_finite(record), allow_nan=False, ensure_ascii=False) + "\n").encode(
            "utf-8", "backslashreplace"
        )
        with explained(self.path):
            try:
                _write_all(self._open(), line)
            except BaseException:
                self._close_file()  # a line may be torn now: opening again ends it
                raise
            if record.get("kind") in _CURVES:
                self._curves.write(record)

    def rewind(self, step: int, phase: int = 0) -> None:
        """Forgets what came after a checkpoint: keeps the whole records up to and including `step` of the phases up to
        `phase`, drops a torn last line, and tells TensorBoard to hide later points. To be called before the first `write`
        of a resumed run."""
        self._close_file()
        if self.path.is_file():
            with explained(self.path):
                lines = takewhile(partial(_is_within, phase), self.path.read_bytes().split(b"\n"))
                write_file(self.path, b"".join(line + b"\n" for line in lines if _is_up_to(line, step)))
        with explained(self.path):
            self._curves.hide_from(step + 1)

    def close(self) -> None:
        """Closes the files; every record is in them already."""
        self._close_file()
        self._curves.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> int:
        if self._descriptor is None:
            make_folder(self.path.parent)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                _write_all(self._descriptor, b"\n")
        return self._descriptor

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Curves:
    """TensorBoard event files, written in the caller's thread and not forced to the disk record by record.

    tensorboardX's own writer has a thread that dies on a full disk, after which its queue blocks the training for ever.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None

    def write(self, record: dict[str, Any]) -> None:
        place = _CURVES[record["kind"]]
        values = [Summary.Value(tag=f"{place}/{name}", simple_value=value) for name, value in _numbers(record)]
        self._append(Event(step=record["step"], wall_time=time.time(), summary=Summary(value=values)))

    def hide_from(self, step: int) -> None:
        """Starts a new file whose first words tell TensorBoard to forget the earlier points from `step` on."""
        self.close()
        if self.folder.is_dir():
            self._append(Event(step=step, wall_time=time.time(), session_log=SessionLog(status=SessionLog.START)))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, event: Event) -> None:
        try:
            _write_all(self._open(), _framed(event))
        except BaseException:
            self.close()  # readers stop at a torn record, so the next one begins a new file
            raise

    def _open(self) -> int:
        if self._descriptor is None:
            make_folder(self.folder)
            # TensorBoard reads the files in the order of their names; a clock may go backwards between two starts
            name = f"events.out.tfevents.{len(os.listdir(self.folder)):010d}.{secrets.token_hex(4)}"
            self._descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            _write_all(self._descriptor, _framed(Event(wall_time=time.time(), file_version="brain.Event:2")))
        return self._descriptor


def _framed(event: Event) -> bytes:
    """One record of TensorFlow's record format: length, its checksum, the event, its checksum."""
    data: bytes = event.SerializeToString()
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def _numbers(record: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a record with their names, those of nested records as `losses/mlm`."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{before}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and before + name != "step":
            yield before + name, float(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_up_to(line: bytes, step: int) -> bool:
    record = _record(line)
    return isinstance(record.get("step"), int) and bool(record["step"] <= step)


def _is_within(phase: int, line: bytes) -> bool:
    """False for the record that begins a later phase: its last step and the next one's first records share a number."""
    record = _record(line)
    return record.get("kind") != "phase" or bool(record["phase"] <= phase)


def _record(line: bytes) -> dict[str, Any]:
    """A line as a record, empty where it is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
