"""GloVe: ours against the authors' C program, on the same text with the same settings and one thread each.

    python -m benchmarks.glove --program BUILD [--words 5000000] [--dimension 100] [--epochs 8] [--rounds 3] [--json FILE]

BUILD is the folder of the C program's executables (github.com/stanfordnlp/GloVe, `make` with -Ofast in place of -O3); it can't
be shipped with us. Times are CPU seconds of each stage, rounds take turns, ratios are of medians. Our counting also puts the
pairs into the order in which they are trained, for which the C program has a stage of its own ("shuffle"): ours is compared both
with its counting alone, which is what the bar asks for, and with the two together.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.text import REPOSITORY
from unmask.config.static import Glove, Words
from unmask.measure.word_sets import read_analogies, read_pairs
from unmask.measure.words import word_analogies, word_similarity
from unmask.static.formats import read_file
from unmask.static.glove import train
from unmask.static.pairs import count
from unmask.static.split import Splitting
from unmask.static.tokens import tokens_of_lines
from unmask.static.vectors import Vectors
from unmask.text.documents import ReadOptions, ReadReport
from unmask.text.reader import read_documents

CORPORA = REPOSITORY.parent / "shared/data/corpora"
SETS = REPOSITORY.parent / "shared/data/wordsim"
SOURCES = ("en_wiki_squad_articles", "en_textbooks_openstax", "en_novels_eltec")
STAGES = (  # what a row shows of ours and of the C program, and by how much ours should be faster
    ("reading", ["reading"], ["reading"], ""),
    ("counting (ours in training order, C's not)", ["counting"], ["counting"], "4"),
    ("counting in training order", ["counting"], ["counting", "shuffle"], ""),
    ("training", ["training"], ["training"], "8"),
)


@dataclass
class Result:
    """CPU seconds of the stages, pairs of words (i, j) and (j, i) apart, the cost of each epoch, quality in %."""

    seconds: dict[str, float]
    pairs: int
    costs: list[float]
    quality: dict[str, float]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--program", type=Path)
    ask.add_argument("--words", type=int, default=5_000_000)
    ask.add_argument("--dimension", type=int, default=100)
    ask.add_argument("--epochs", type=int, default=8)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--json", type=Path)
    given = ask.parse_args()
    found: dict[str, list[Result]] = {"unmask": [], **({"C": []} if given.program else {})}
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        words = write_text(text, given.words)
        for round in range(given.rounds):
            settings = Glove(dimension=given.dimension, epochs=given.epochs, words=Words(min_count=5), seed=round)
            found["unmask"].append(ours(text, Path(name), settings))
            if given.program:
                found["C"].append(theirs(given.program, text, Path(name), settings))
            for side, results in found.items():
                print(f"  round {round} {side}: {results[-1]}", flush=True)
    print(f"\n{words:,} words\n\n" + table(found, words, given.epochs))
    if given.json:
        given.json.write_text(json.dumps({s: [vars(r) for r in rs] for s, rs in found.items()}, indent=1) + "\n")


def write_text(path: Path, most: int) -> int:
    """Lower-case words of the corpora, a paragraph a line, about `most` words."""
    names = [str(CORPORA / f"{name}.jsonl.gz") for name in SOURCES]
    documents, words = read_documents(names, ReadOptions(), ReadReport()), 0
    with path.open("w", encoding="utf-8") as file:
        for line in Splitting().lines(documents):
            file.write(" ".join(line) + "\n")
            words += len(line)
            if words >= most:
                break
    return words


def ours(text: Path, folder: Path, settings: Glove) -> Result:
    """Every stage as `unmask vectors train glove` runs it."""
    warm_up(settings)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=folder) as work:
        begin = time.process_time()
        documents = read_documents([str(text)], ReadOptions(separator="line"), ReadReport())
        (Path(work) / "pairs").mkdir()
        tokens = tokens_of_lines(Splitting(rule="spaces", lowercase=False).lines(documents), Path(work), settings.words)
        seconds["reading"] = time.process_time() - begin
        begin = time.process_time()
        pairs = count(tokens, Path(work) / "pairs", window=settings.window, memory=settings.memory, seed=settings.seed)
        seconds["counting"] = time.process_time() - begin
        begin = time.process_time()
        made = train(pairs, len(tokens.words), settings)
        seconds["training"] = time.process_time() - begin
        return Result(seconds, pairs.num_ordered, made.costs, quality(Vectors(tokens.words, made.vectors)))


def warm_up(settings: Glove) -> None:
    """Compiled code is there from the second use on, for good."""
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "pairs").mkdir()
        tokens = tokens_of_lines([["a", "b"]], Path(work), Words(min_count=1))
        train(
            count(tokens, Path(work) / "pairs", window=2, memory=1 << 16),
            2,
            Glove(dimension=settings.dimension, epochs=1),
        )


def theirs(program: Path, text: Path, folder: Path, settings: Glove) -> Result:
    """The four programs in their order, as the authors' demo.sh calls them."""
    vocabulary, pairs, mixed, vectors = (folder / name for name in ("vocabulary", "pairs.bin", "mixed.bin", "vectors"))
    seconds = {
        "reading": _run([program / "vocab_count", "-min-count", "5", "-verbose", "0"], text, vocabulary)[0],
        "counting": _run(
            [program / "cooccur", "-memory", "4", "-vocab-file", vocabulary, "-verbose", "0", "-window-size", settings.window],
            text, pairs,
        )[0],
        "shuffle": _run([program / "shuffle", "-memory", "4", "-verbose", "0", "-seed", settings.seed + 1], pairs, mixed)[0],
    }  # fmt: skip
    command = [
        program / "glove", "-save-file", vectors, "-threads", "1", "-input-file", mixed, "-x-max", settings.x_max,
        "-iter", settings.epochs, "-vector-size", settings.dimension, "-binary", "0", "-vocab-file", vocabulary,
        "-verbose", "0", "-seed", settings.seed + 1, "-eta", settings.learning_rate, "-alpha", settings.power,
    ]  # fmt: skip
    seconds["training"], said = _run(command, None, None)
    costs = [float(line.rsplit(" ", 1)[1]) for line in said.splitlines() if "cost:" in line]
    made, _ = read_file(vectors.with_name("vectors.txt"))
    return Result(seconds, pairs.stat().st_size // 16, costs, quality(made))


def _run(command: Sequence[Any], stdin: Path | None, stdout: Path | None) -> tuple[float, str]:
    """CPU seconds of a program, and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(part) for part in command], check=True, stderr=subprocess.PIPE,
        stdin=stdin.open("rb") if stdin else subprocess.DEVNULL,
        stdout=stdout.open("wb") if stdout else subprocess.PIPE,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = (done.stderr + (done.stdout or b"")).decode("utf-8", "replace")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said


def quality(vectors: Vectors) -> dict[str, float]:
    """In %, over the words that have vectors."""
    pairs = {
        name: word_similarity(vectors, read_pairs(SETS / f"en_{name}.tsv")).spearman
        for name in ("wordsim353", "simlex999")
    }
    analogies = word_analogies(vectors, read_analogies(SETS / "en_google_analogies.tsv")).total.accuracy
    return {**{name: 100 * value for name, value in pairs.items()}, "analogies": 100 * analogies}


def table(found: dict[str, list[Result]], words: int, epochs: int) -> str:
    """Medians in Markdown, with how many times faster ours is."""
    rows = ["| stage | " + " | ".join(found) + " | ratio | bar |", "| --- |" + " ---: |" * (len(found) + 2)]
    for stage, our_parts, their_parts, bar in STAGES:
        medians = [
            statistics.median(sum(result.seconds[part] for part in parts) for result in results)
            for parts, results in zip((our_parts, their_parts), found.values(), strict=False)
        ]
        ratio = f"{medians[1] / medians[0]:.1f}" if len(medians) > 1 else ""
        rows.append(f"| {stage}, s | " + " | ".join(f"{m:.2f}" for m in medians) + f" | {ratio} | {bar} |")
    speed = [statistics.median(r.pairs * epochs / r.seconds["training"] for r in rs) / 1e6 for rs in found.values()]
    rows.append("| pairs trained a second, millions | " + " | ".join(f"{one:.2f}" for one in speed) + " | | |")
    for name in ("wordsim353", "simlex999", "analogies"):
        means = [f"{np.mean([r.quality[name] for r in rs]):.1f}" for rs in found.values()]
        rows.append(f"| {name}, % (mean) | " + " | ".join(means) + " | | |")
    rows.append(
        "| cost of each epoch | "
        + " | ".join(" ".join(f"{c:.4f}" for c in rs[0].costs) for rs in found.values())
        + " | | |"
    )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
