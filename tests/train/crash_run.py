"""Runs, killed at random moments and resumed until the end; a program of its own, so that torch is imported once.

Usage: python crash_run.py CORPUS FOLDER KILLS SEED WORKERS. Each attempt is a fork of a process that has computed nothing.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from small_runs import ignore, small_run

from unmask import road
from unmask.config import Keeping, Machine, Phase, Steps


def attempt(run: object, folder: Path) -> int:
    """One process that begins the run or goes on with it, in a process group of its own. Returns its id."""
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    try:
        if (folder / "run.json").exists():
            road.resume(folder, view=ignore)
        else:
            road.pretrain(run, folder, view=ignore)  # type: ignore[arg-type]
        os._exit(0)
    except BaseException as error:
        print(f"attempt failed: {error!r}", file=sys.stderr, flush=True)
        os._exit(9)


def main(corpus: Path, folder: Path, kills: int, seed: int, workers: int) -> None:
    """The undisturbed run in FOLDER/whole, the killed one in FOLDER/killed."""
    later = Phase(until=Steps(steps=20), changes=("examples.max_length=64", "optimizer.learning_rate=1e-4"))
    run = small_run(corpus, until=Steps(steps=40), phases=(later,), machine=Machine(threads=1, workers=workers))
    run = replace(run, keeping=Keeping(evaluations=20, evaluation_tokens=300, keep_last=2))
    began = time.monotonic()
    assert os.waitpid(attempt(run, folder / "whole"), 0)[1] == 0
    length = time.monotonic() - began
    draw, done = random.Random(seed), 0
    while done < kills:
        child = attempt(run, folder / "killed")
        time.sleep(draw.uniform(0, 0.6 * length))
        if os.waitpid(child, os.WNOHANG)[0]:
            continue  # it was done before the signal came; the next attempt finds a finished run
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += 1
    status = os.waitpid(attempt(run, folder / "killed"), 0)[1]
    assert status == 0, status
    print(f"killed {done} times")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6]))
