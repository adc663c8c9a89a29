"""Ctrl-C in a running `unmask pretrain`, as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Road, pretrain, unmask

SCRIPT = Path(sys.executable).with_name("unmask")


def begin(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SCRIPT), *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def wait_for(run: Path, kind: str, process: subprocess.Popen[str]) -> None:
    path, end = run / "metrics.jsonl", time.monotonic() + 60
    while not (path.exists() and f'"kind": "{kind}"' in path.read_text().replace('":"', '": "')):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "no such record"
        time.sleep(0.005)


@pytest.mark.slow
def test_ctrl_c_saves_and_leaves_and_resume_finishes(road: Road, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = begin(*pretrain(road, run, "--steps", 600, "--set", "keeping.evaluations=1"))
    wait_for(run, "step", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err and f"unmask pretrain --resume --out {run}" in out
    step = int(re.search(r"Stopped and saved after step (\d+)", out)[1])
    assert 0 < step < 600 and (run / "steps" / f"{step:010d}" / "manifest.json").exists()
    assert json.loads((run / "run.json").read_text())["result"]["status"] == "stopped"
    assert unmask("pretrain", "--resume", "-o", run).code == 0
    assert json.loads((run / "run.json").read_text())["result"]["status"] == "finished"
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"step"' in line]
    assert steps == sorted(steps) and steps[-1] == 600


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(road: Road, tmp_path: Path) -> None:
    run = tmp_path / "run"  # one step of this run takes minutes
    process = begin(*pretrain(road, run, "--steps", 2, "--set", "batch.accumulate=50000"))
    wait_for(run, "evaluation", process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "the first one waits for the step"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert unmask("report", run).code == 0
