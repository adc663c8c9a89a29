from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import losses, weights

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_R2_killed_at_twenty_random_moments_and_resumed_the_weights_are_those_of_an_undisturbed_run(
    small_corpus: Path, tmp_path: Path, workers: int
) -> None:
    """kill -9 of the whole process group, at any moment of reading, stepping, measuring, saving and exporting."""
    arguments = [str(small_corpus), str(tmp_path), "20" if workers == 0 else "6", "1", str(workers)]
    done = subprocess.run(
        [sys.executable, str(HERE / "crash_run.py"), *arguments],
        capture_output=True, text=True, timeout=600, env={"PYTHONPATH": f"{HERE}:{HERE.parent}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
