"""One training of word2vec in a process of its own, for `benchmarks.static_vectors`: ours or gensim's.

    python -m benchmarks.word2vec_sides '{"side": "ours", "row": {...}, "text": FILE, "seed": 0, "epochs": 2, "threads": 1}'

Prints its words, seconds, peak memory and quality as JSON. Imports no more than the side needs, since memory is measured.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

WORD_SETS = Path(__file__).resolve().parents[2] / "shared" / "data" / "wordsim"
SETS = {"WordSim-353": "en_wordsim353", "SimLex-999": "en_simlex999", "analogies": "en_google_analogies"}
MIN_COUNT, WINDOW, NEGATIVES, SUBSAMPLE = 5, 5, 5, 1e-3
Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    model: str
    loss: str
    dimension: int
    bar: float = 0.0
    ngrams: bool = False
    whole: bool = False
    """From a file of text to a file of vectors, not training alone."""
    epochs: int = 0  # 0: as asked


def _train(job: Result) -> Result:
    row = Row(**job["row"])
    job["epochs"] = row.epochs or job["epochs"]
    seconds, words, names, matrix = (_ours if job["side"] == "ours" else _gensim)(row, job)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"words": words, **seconds, "memory": memory, "quality": _quality(names, matrix)}


def _ours(row: Row, job: Result) -> tuple[Result, int, list[str], Any]:
    from unmask.config.static import CharacterNgrams, Word2Vec, Words
    from unmask.static.learn import learn
    from unmask.static.load import load_vectors
    from unmask.static.split import Splitting
    from unmask.static.tokens import tokens_of_lines
    from unmask.static.word2vec import train

    keep = Words(min_count=MIN_COUNT)
    settings = Word2Vec(
        model=row.model, loss=row.loss, dimension=row.dimension, window=WINDOW, negatives=NEGATIVES,
        subsample=SUBSAMPLE, epochs=job["epochs"], words=keep, seed=job["seed"],
        ngrams=CharacterNgrams(buckets=200_000 if row.ngrams else 0),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, open(job["text"], encoding="utf-8") as file:
        (Path(folder) / "few").mkdir()
        (Path(folder) / "all").mkdir()
        few = tokens_of_lines([["a", "b", "a"]], Path(folder) / "few", Words(min_count=1))
        train(few, replace(settings, subsample=0.0))  # compiles, or reads what is compiled
        if row.whole:
            out, timer = Path(folder) / "vectors", Timer()
            learned = learn([job["text"]], out, settings, Splitting(rule="spaces"), threads=job["threads"])
            seconds = timer.seconds()
            assert learned is not None
            vectors, _ = load_vectors(out)
            return seconds, learned.tokens * job["epochs"], list(vectors.words.words), vectors.matrix
        tokens = tokens_of_lines((line.split() for line in file), Path(folder) / "all", keep)
        timer = Timer()
        trained = train(tokens, settings, threads=job["threads"])
        seconds = timer.seconds()
        assert all(epoch.words == len(tokens.ids) for epoch in trained.epochs), "words were lost"
        return seconds, tokens.read * job["epochs"], list(tokens.words.words), trained.inputs


def _gensim(row: Row, job: Result) -> tuple[Result, int, list[str], Any]:
    from gensim.models import FastText, Word2Vec

    is_skipgram, is_hierarchical = row.model == "skipgram", row.loss == "hierarchical"
    kind, more = (FastText, {"bucket": 200_000}) if row.ngrams else (Word2Vec, {})
    model = kind(
        vector_size=row.dimension, window=WINDOW, min_count=MIN_COUNT, sample=SUBSAMPLE, sg=int(is_skipgram),
        hs=int(is_hierarchical), negative=0 if is_hierarchical else NEGATIVES, epochs=job["epochs"],
        alpha=0.025 if is_skipgram else 0.05, workers=job["threads"], seed=job["seed"] + 1, **more,
    )  # fmt: skip
    whole = Timer()
    model.build_vocab(corpus_file=job["text"])
    timer = whole if row.whole else Timer()
    model.train(
        corpus_file=job["text"], total_words=model.corpus_total_words, total_examples=model.corpus_count,
        epochs=job["epochs"],
    )  # fmt: skip
    if row.whole:
        with tempfile.TemporaryDirectory() as folder:
            model.wv.save_word2vec_format(str(Path(folder) / "vectors.bin"), binary=True)
    return timer.seconds(), model.corpus_total_words * job["epochs"], model.wv.index_to_key, model.wv.vectors


class Timer:
    def __init__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def seconds(self) -> Result:
        return {"cpu": time.process_time() - self.cpu, "wall": time.perf_counter() - self.wall}


def _quality(words: list[str], matrix: Any) -> dict[str, float]:
    """Both sides' vectors by the same measure."""
    from unmask.measure.word_sets import read_analogies, read_pairs
    from unmask.measure.words import word_analogies, word_similarity
    from unmask.static.vectors import Vectors
    from unmask.static.words import WordCounts

    vectors = Vectors(WordCounts(words, np.zeros(len(words), np.int64)), np.ascontiguousarray(matrix, np.float32))
    quality = {}
    for title, name in SETS.items():
        path = WORD_SETS / f"{name}.tsv"
        if not path.exists():
            continue
        if title == "analogies":
            quality[title] = 100 * word_analogies(vectors, read_analogies(path)).total.accuracy
        else:
            quality[title] = 100 * word_similarity(vectors, read_pairs(path)).spearman
    return quality


if __name__ == "__main__":
    print(json.dumps(_train(json.loads(sys.argv[1]))))
