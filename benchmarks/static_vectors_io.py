"""Reading files of static vectors: ours against gensim, on one generated file in text and in binary.

    python -m benchmarks.static_vectors_io [--words 100000] [--dimension 100] [--rounds 3]

Each reading is a process of its own; sides take turns. CPU time is that of the reading alone: imports, compiled code and the
file in the page cache are there before. Memory is the most the process had at any time, above what it had before reading.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARS = {"text": 5.0, "binary": 3.0}  # how many times as fast as gensim
SIDES = ("unmask", "gensim")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(read(*options.worker)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), options.words, options.dimension)
        return compare(Path(folder), options.rounds)


def generate(folder: Path, words: int, dimension: int) -> None:
    """Two files with the same vectors, and a small one of each kind to warm up with."""
    import numpy as np

    from unmask.static.formats import write_file
    from unmask.static.vectors import Vectors
    from unmask.static.words import WordCounts

    for prefix, rows in (("", words), ("small-", 50)):
        matrix = np.random.default_rng(0).normal(scale=0.2, size=(rows, dimension)).astype(np.float32)
        vectors = Vectors(WordCounts([f"word{row:x}" for row in range(rows)], np.zeros(rows, np.int64)), matrix)
        write_file(vectors, folder / f"{prefix}text", "word2vec")
        write_file(vectors, folder / f"{prefix}binary", "word2vec-binary")


def read(side: str, form: str, folder: str) -> dict[str, float]:
    """One reading in this process: CPU seconds, megabytes."""
    if side == "gensim":
        from gensim.models import KeyedVectors

        def load(name: str) -> object:
            return KeyedVectors.load_word2vec_format(f"{folder}/{name}", binary=form == "binary")
    else:
        from unmask.static.formats import read_file

        def load(name: str) -> object:
            return read_file(Path(folder) / name)

    load(f"small-{form}")
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew: imports take more than reading
    start = time.process_time()
    load(form)
    seconds = time.process_time() - start
    return {"seconds": seconds, "megabytes": _memory("VmHWM") - before}


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def compare(folder: Path, rounds: int) -> int:
    """Prints medians and ratios; 1 where a bar is missed."""
    missed = 0
    for form, bar in BARS.items():
        print(f"{form}: {(folder / form).stat().st_size / 1e6:.0f} MB")
        taken: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for _ in range(rounds):
            for side in SIDES:
                command = [sys.executable, "-m", "benchmarks.static_vectors_io", "--worker", side, form, str(folder)]
                taken[side].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        for side in SIDES:
            seconds, megabytes = (statistics.median(t[what] for t in taken[side]) for what in ("seconds", "megabytes"))
            print(f"  {side:8} {seconds:8.3f} CPU-s  {megabytes:8.0f} MB")
        ratios = [theirs["seconds"] / ours["seconds"] for ours, theirs in zip(*taken.values(), strict=True)]
        ratio = statistics.median(ratios)
        missed += ratio < bar
        print(f"  {ratio:.1f} times as fast (bar {bar:.0f}; rounds {', '.join(f'{r:.1f}' for r in ratios)})")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
