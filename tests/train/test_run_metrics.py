"""What a run measured is on the disk line by line, valid JSON, and exactly rewound on resume."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

import unmask.train.metrics as metrics
from unmask.errors import CannotWriteError, DiskError
from unmask.train.metrics import Metrics


def step_record(step: int, loss: float = 6.5) -> dict[str, Any]:
    return {"kind": "step", "step": step, "loss": loss, "losses": {"mlm": 6.0, "nsp": 0.5}, "learning_rate": 1e-4,
            "peak_share": None}  # fmt: skip


def records(path: Path) -> list[dict[str, Any]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n") or not text
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def crc32c(data: bytes) -> int:
    """Castagnoli, bit by bit; "123456789" gives 0xE3069283 (RFC 3720, B.4 uses the same polynomial)."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(folder: Path) -> list[Event]:
    """Reads TensorBoard's records: length, its checksum, data, its checksum."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            head, (size, head_crc) = data[:8], struct.unpack("<QI", data[:12])
            body, (body_crc,) = data[12 : 12 + size], struct.unpack("<I", data[12 + size : 16 + size])
            assert head_crc == masked(head) and body_crc == masked(body)
            found.append(Event.FromString(body))
            data = data[16 + size :]
    return found


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The points TensorBoard shows: a session start hides the earlier ones from its step on."""
    shown: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder):
        if event.session_log.status == SessionLog.START:
            shown = {name: [point for point in points if point[0] < event.step] for name, points in shown.items()}
        for value in event.summary.value:
            shown.setdefault(value.tag, []).append((event.step, round(value.simple_value, 6)))
    return shown


def test_the_checksum_of_this_test_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_every_record_is_on_the_disk_when_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    with Metrics(path) as log:
        for step in range(3):
            log.write(step_record(step))
            assert [record["step"] for record in records(path)] == list(range(step + 1))
    assert records(path)[0] == step_record(0)


def test_a_killed_run_loses_no_record(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from unmask.train.metrics import Metrics
log = Metrics(Path(sys.argv[1]))
for step in range(5):
    log.write({"kind": "step", "step": step, "loss": 1.0})
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "metrics.jsonl")], check=False)
    assert done.returncode == -9
    assert [record["step"] for record in records(tmp_path / "metrics.jsonl")] == list(range(5))
    assert curves(tmp_path / "tensorboard") == {"train/loss": [(step, 1.0) for step in range(5)]}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_hold_become_null(tmp_path: Path, value: float) -> None:
    with Metrics(tmp_path / "metrics.jsonl") as log:
        log.write(
            {"kind": "sample", "step": 1, "loss": value, "losses": {"mlm": value}, "guesses": [[["a", value], (1, 2)]]}
        )
    assert records(tmp_path / "metrics.jsonl") == [
        {"kind": "sample", "step": 1, "loss": None, "losses": {"mlm": None}, "guesses": [[["a", None], [1, 2]]]}
    ]


@pytest.mark.parametrize("text", ["模型 é", "a\nb", "\u2028\x85\x0b", "\udc80", '"}\n{"step": 0}', "\0"])
def test_any_text_stays_on_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as log:
        log.write({"kind": "sample", "step": 1, "tokens": [text]})
        log.rewind(1)
        log.write({"kind": "sample", "step": 2, "tokens": []})
    lines = path.read_bytes().split(b"\n")
    assert len(lines) == 3 and json.loads(lines[0])["tokens"] == [text]


def test_rewinding_keeps_what_the_checkpoint_had_seen(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as log:
        log.write({"kind": "plan", "step": 0, "total_steps": 9, "reason": "asked"})
        for step in range(1, 6):
            log.write(step_record(step))
        log.write({"kind": "evaluation", "step": 3, "loss": 5.0})
    before = records(path)
    with open(path, "ab") as file:
        file.write(b'{"kind": "step", "step": 6, "lo')
    with Metrics(path) as log:
        log.rewind(3)
        assert records(path) == [record for record in before if record["step"] <= 3] and len(records(path)) == 5
        log.write(step_record(4, loss=1.0))
    assert [record["step"] for record in records(path)] == [0, 1, 2, 3, 3, 4] and records(path)[-1]["loss"] == 1.0
    assert sorted(os.listdir(tmp_path)) == ["metrics.jsonl", "tensorboard"]


@pytest.mark.parametrize(
    "tail", [b"{", b'{"kind": "step", "st', b"\0" * 64, b"\n\n", b"\xff\xfe\n", b"3\n", b'{"a": 1}\n']
)
def test_a_torn_or_strange_tail_is_dropped_on_resume(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as log:
        log.write(step_record(1))
    with open(path, "ab") as file:
        file.write(tail)
    with Metrics(path) as log:
        log.rewind(1)
        log.write(step_record(2))
    assert records(path) == [step_record(1), step_record(2)]


def test_the_file_cut_at_any_byte_rewinds_to_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as log:
        for step in (1, 2, 3):
            log.write({"kind": "sample", "step": step, "tokens": ["é"]})
    whole = path.read_bytes()
    width = whole.index(b"\n") + 1
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        Metrics(path).rewind(9)
        # a line that lacks only its end mark is whole
        assert [record["step"] for record in records(path)] == list(range(1, 1 + (length + 1) // width))


def test_a_new_record_never_continues_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"kind": "st')
    with Metrics(path) as log:
        log.write(step_record(1))
    assert path.read_bytes().split(b"\n")[0] == b'{"kind": "st' and json.loads(path.read_bytes().split(b"\n")[1])


def test_rewinding_to_the_end_of_a_phase_drops_the_beginning_of_the_next(tmp_path: Path) -> None:
    """The last records of a phase and the first of the next share a step; each belongs to its own."""
    path = tmp_path / "metrics.jsonl"
    records = [
        {"kind": "phase", "step": 0, "phase": 0},
        {"kind": "evaluation", "step": 2, "loss": 1.0},
        {"kind": "phase", "step": 2, "phase": 1},
        {"kind": "evaluation", "step": 2, "loss": 3.0},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with Metrics(path) as log:
        log.rewind(2, 1)
        assert [json.loads(line) for line in path.read_text().splitlines()] == records
        log.rewind(2, 0)
        assert [json.loads(line) for line in path.read_text().splitlines()] == records[:2]


def test_rewinding_nothing_is_fine(tmp_path: Path) -> None:
    Metrics(tmp_path / "run" / "metrics.jsonl").rewind(3)
    assert os.listdir(tmp_path) == []


def test_steps_and_evaluations_become_curves(tmp_path: Path) -> None:
    with Metrics(tmp_path / "metrics.jsonl") as log:
        log.write(step_record(1))
        log.write({"kind": "evaluation", "step": 1, "loss": 5.0, "accuracy": {"mlm": 0.25}})
        log.write({"kind": "plan", "step": 0, "total_steps": 5, "reason": ""})
        log.write({"kind": "sample", "step": 1, "masked": [1]})
    assert curves(tmp_path / "tensorboard") == {
        "train/loss": [(1, 6.5)], "train/losses/mlm": [(1, 6.0)], "train/losses/nsp": [(1, 0.5)],
        "train/learning_rate": [(1, 1e-4)], "evaluation/loss": [(1, 5.0)], "evaluation/accuracy/mlm": [(1, 0.25)],
    }  # fmt: skip


def test_a_resumed_run_draws_each_point_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for start, stop, loss in ((1, 6, 9.0), (4, 8, 8.0), (6, 9, 7.0)):
        with Metrics(path) as log:
            if start > 1:
                log.rewind(start - 1)
            for step in range(start, stop):
                log.write({"kind": "step", "step": step, "loss": loss})
    expected = [(1, 9.0), (2, 9.0), (3, 9.0), (4, 8.0), (5, 8.0), (6, 7.0), (7, 7.0), (8, 7.0)]
    assert curves(tmp_path / "tensorboard") == {"train/loss": expected}
    assert [(record["step"], record["loss"]) for record in records(path)] == expected
    assert len(os.listdir(tmp_path / "tensorboard")) == 3  # also when the starts fall into one second


def test_a_full_disk_is_one_sentence_and_the_run_can_go_on_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as log:
        log.write(step_record(1))
        write = os.write

        def half(descriptor: int, data: bytes) -> int:
            if len(data) < 20:
                raise OSError(28, "No space left on device")
            return write(descriptor, data[:-10])

        with monkeypatch.context() as patch:
            patch.setattr(metrics.os, "write", half)
            with pytest.raises(DiskError, match="No space left") as caught:
                log.write(step_record(2))
        assert str(path) in caught.value.where
        log.write(step_record(3))
    good = []
    for line in path.read_bytes().splitlines():
        try:
            good.append(json.loads(line)["step"])
        except ValueError:
            continue
    assert good == [1, 3]
    with Metrics(path) as log:
        log.rewind(9)
    assert [record["step"] for record in records(path)] == [1, 3]


def test_a_place_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CannotWriteError):
        Metrics(tmp_path / "file" / "metrics.jsonl").write(step_record(1))
