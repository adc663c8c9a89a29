"""Word2vec: ours against gensim (`corpus_file`), the same text, settings and threads; speed, quality and peak memory.

    python -m benchmarks.static_vectors [--rows skipgram-100,cbow-100] [--rounds 3] [--epochs 2] [--threads 1] [--json FILE]

Each training is a process of its own, and sides take turns: a round is one of each, with the round's number as seed. The ratio
is the median of the rounds' ratios of words per second: CPU time of the training alone by default (`--clock wall` for a quiet
machine). Ours counts making its tables; neither counts reading the text, nor compiling; but "text-to-vectors" counts all from a
file of text to a file of vectors, five epochs, and that in CPU time of the whole process. Quality is the mean over the rounds:
Spearman's correlation on WordSim-353 and SimLex-999 and the share of Google's analogies that are right, all times 100. Memory is
the most that a process had in all, imports and reading the text included.
The text is that of Wikipedia articles and textbooks beside the repository, lower-case words, one paragraph a line, in random
order. Needs gensim.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.text import REPOSITORY
from benchmarks.word2vec_sides import SETS, Result, Row

DATA = REPOSITORY.parent / "shared" / "data"
TEXTS = ("en_wiki_squad_articles", "en_textbooks_openstax")
MAY_LOSE = {"WordSim-353": 1.0, "SimLex-999": 0.5, "analogies": 0.5}
MEMORY = 1.5  # of gensim's


ROWS = (
    Row("skipgram-100", "skipgram", "negative", 100, 6.0),
    Row("skipgram-300", "skipgram", "negative", 300, 4.0),
    Row("cbow-100", "cbow", "negative", 100, 4.0),
    Row("cbow-300", "cbow", "negative", 300, 2.0),
    Row("skipgram-hs-100", "skipgram", "hierarchical", 100, 3.0),
    Row("text-to-vectors-100", "skipgram", "negative", 100, 6.0, whole=True, epochs=5),
    Row("cbow-hs-100", "cbow", "hierarchical", 100),
    Row("skipgram-ngrams-100", "skipgram", "negative", 100, ngrams=True),
)


def main() -> None:
    given = _options()
    if importlib.util.find_spec("gensim") is None:
        sys.exit("this benchmark compares with gensim: pip install gensim")
    names = given.rows.split(",") if given.rows else [row.name for row in ROWS if not row.name.endswith("ngrams-100")]
    with tempfile.TemporaryDirectory() as folder:
        text = _text(Path(folder) / "text.txt", Path(given.text) if given.text else None, 2000 if given.tiny else 0)
        results = []
        for row in (row for row in ROWS if row.name in names):
            results.append(compare(row, text, given))
            print(line(results[-1]), flush=True)
    print("\n" + report(results))
    tables.write_json(given.json, "static_vectors", results)


def _options() -> Any:
    ask = tables.arguments(__doc__, rounds=3)
    ask.set_defaults(threads=1, clock="cpu")
    ask.add_argument("--rows", help=f"names, with commas, of: {', '.join(row.name for row in ROWS)}")
    ask.add_argument("--epochs", type=int, default=2)
    return ask.parse_args()


# --- the text ---------------------------------------------------------------------------------------------------------------
def _text(path: Path, given: Path | None, limit: int) -> Path:
    """In random order: the learning rate falls with the words in ours and with the lines in gensim, which is the same where
    long and short lines are mixed."""
    lines = [" ".join(words) for words in islice(_lines(given), limit or None)]
    random.Random(0).shuffle(lines)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _lines(given: Path | None) -> Iterator[list[str]]:
    """Paragraphs as words of the letters a to z, so that both sides split them alike."""
    if given is not None:
        with open(given, encoding="utf-8") as file:
            yield from (found for line in file if (found := _words(line)))
        return
    for name in TEXTS:
        with gzip.open(DATA / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            for record in file:
                paragraphs = json.loads(record)["text"].split("\n")
                yield from (found for paragraph in paragraphs if (found := _words(paragraph)))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())


# --- comparing --------------------------------------------------------------------------------------------------------------
def compare(row: Row, text: Path, given: Any) -> Result:
    runs: dict[str, list[Result]] = {"ours": [], "gensim": []}
    for seed in range(given.rounds):
        sides = ["ours", "gensim"]
        for side in sides if seed % 2 == 0 else reversed(sides):
            job = {"row": asdict(row), "side": side, "seed": seed, "text": str(text)}
            runs[side].append(_process({**job, "epochs": given.epochs, "threads": given.threads}))
    speeds = {side: [run["words"] / run[given.clock] for run in done] for side, done in runs.items()}
    quality = {
        side: {title: statistics.mean(run["quality"][title] for run in done) for title in done[0]["quality"]}
        for side, done in runs.items()
    }
    memory = {side: statistics.median(run["memory"] for run in done) for side, done in runs.items()}
    return {
        **asdict(row),
        "bar": 0 if given.tiny else row.bar,
        "clock": given.clock,
        "speeds": speeds,
        "ratio": statistics.median(a / b for a, b in zip(speeds["ours"], speeds["gensim"], strict=True)),
        "quality": quality,
        "memory": memory,
        "runs": runs,
    }


def _process(job: Result) -> Result:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.word2vec_sides", json.dumps(job)]
    ran = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        sys.exit(f"{job['side']} failed at {job['row']['name']}")
    return json.loads(ran.stdout.splitlines()[-1])


def line(result: Result) -> str:
    ours, theirs = (statistics.median(result["speeds"][side]) for side in ("ours", "gensim"))
    quality = ", ".join(
        f"{title} {result['quality']['ours'][title]:.1f} / {theirs:.1f}"
        for title, theirs in result["quality"]["gensim"].items()
    )
    return f"{result['name']}: {ours:,.0f} / {theirs:,.0f} words/s = {result['ratio']:.2f}×; {quality}"


def report(results: list[Result]) -> str:
    head = ("word2vec", "ours, words/s", "gensim, words/s", "ratio", *SETS, "memory, ours", "of gensim's")
    return tables.markdown(head, [_cells(result) for result in results])


def _cells(result: Result) -> list[str]:
    speeds = [f"{statistics.median(result['speeds'][side]):,.0f}" for side in ("ours", "gensim")]
    judged = bool(result["bar"])
    quality = []
    for title in SETS:
        ours, theirs = (result["quality"][side].get(title) for side in ("ours", "gensim"))
        missed = judged and ours is not None and ours < theirs - MAY_LOSE[title]
        shown = "–" if ours is None else f"{ours:.1f} (gensim {theirs:.1f})"
        quality.append(f"**{shown}, missed**" if missed else shown)
    share = result["memory"]["ours"] / result["memory"]["gensim"]
    memory = [tables.megabytes(result["memory"]["ours"]), tables.at_most(share, MEMORY if judged else None)]
    return [result["name"], *speeds, tables.at_least(result["ratio"], result["bar"]), *quality, *memory]


if __name__ == "__main__":
    main()
