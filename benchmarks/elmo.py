"""Whether ELMo learns: its perplexity on held-out text after a few minutes, beside that of a guess by frequency alone.

    python -m benchmarks.elmo --minutes 10

For English and Chinese each a tokenizer of characters, a corpus, and a run of the preset `elmo_mini`. The unigram model knows
how often each word stands in the text that was learned from (one is added to each count) and is asked for the very words that
the network is asked for; rare words are one class for both.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import markdown, write_json
from unmask import recipes, road
from unmask.batch import PackedBatch
from unmask.config import BatchSize, BidirectionalWords, FullSentences, Keeping, Machine, Minutes, RunConfig, Steps
from unmask.loader import Batches, Cursor
from unmask.measure.heldout import held_out_batches
from unmask.objectives.bilm import BidirectionalWordObjective
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.shards import Corpus
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.train.journal import read_run

CORPORA = Path(__file__).resolve().parents[2] / "shared" / "data" / "corpora"
TEXTS = {"en": ("en_wiki_squad_articles", 4000, 400), "zh": ("zh_wiki_cmrc_train", 2500, 6000)}  # file, texts, pieces


@dataclass(frozen=True)
class Found:
    """Nats a word, of the mean of both directions."""

    language: str
    unigram: float
    before: float
    after: float
    steps: int


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--minutes", type=float, default=10.0, help="of each run")
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--languages", nargs="+", default=list(TEXTS), choices=list(TEXTS))
    ask.add_argument("--text", type=Path, help="a .jsonl.gz of texts instead, for one language")
    ask.add_argument("--tiny", action="store_true", help="only see that it runs: small sizes, few steps")
    ask.add_argument("--json", type=Path, help="write the results here as well")
    options = ask.parse_args()
    found = [measure(language, options) for language in options.languages]
    head = ("perplexity of a word", "by frequency", "before", "ELMo", "steps")
    rows = [
        (f.language, *(f"{math.exp(x):,.0f}" for x in (f.unigram, f.before, f.after)), f"{f.steps:,}") for f in found
    ]
    print(markdown(head, rows))
    write_json(options.json, "elmo", [vars(one) for one in found])
    if not options.tiny and any(one.after >= one.unigram for one in found):
        raise SystemExit("ELMo is not below the unigram model")


def measure(language: str, options: argparse.Namespace) -> Found:
    """One run from texts to its held-out losses."""
    with tempfile.TemporaryDirectory() as place:
        run = road.fit_to_corpus(settings(corpus_of(language, options, Path(place)), options))
        road.pretrain(run, Path(place) / "run", view=lambda record: None)
        result: dict[str, Any] = read_run(Path(place) / "run")["result"]
        before, after = (sum(result[when]["losses"].values()) / 2 for when in ("first", "last"))
        return Found(language, unigram(run), before, after, result["last"]["step"])


def settings(corpus: Path, options: argparse.Namespace) -> RunConfig:
    run = recipes.recipe(preset="elmo_mini")
    if options.tiny:
        run = recipes.shrunk(run, hidden=32, layers=2)
    return replace(
        run,
        corpus=str(corpus),
        examples=FullSentences(max_length=min(256, run.examples.max_length)),
        objectives=(BidirectionalWords(max_words=500 if options.tiny else 10_000),),
        batch=BatchSize(tokens=4096),
        until=Steps(steps=4) if options.tiny else Minutes(minutes=options.minutes),
        keeping=Keeping(evaluations=1 if options.tiny else 5, evaluation_tokens=1 << (12 if options.tiny else 16)),
        machine=Machine(device="cpu", threads=options.threads, workers=0),
    )


def corpus_of(language: str, options: argparse.Namespace, place: Path) -> Path:
    """A tokenizer of characters and shards of the texts."""
    name, count, pieces = TEXTS[language]
    source = options.text or CORPORA / f"{name}.jsonl.gz"
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, 60 if options.tiny else count)]
    written = place / "texts.jsonl"
    written.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    alphabet = pieces // 3
    tokenizer, _ = train(texts, TrainOptions(kind="characters", vocab_size=pieces, limit_alphabet=alphabet))
    build_corpus([str(written)], place / "corpus", tokenizer, BuildOptions(heldout_share=0.1), workers=1)
    return place / "corpus"


def unigram(run: RunConfig) -> float:
    """Nats a held-out word, of the words that the network is asked for."""
    corpora = [Corpus.open(run.corpus, split, verify=False) for split in ("train", "heldout")]  # type: ignore[arg-type]
    model = road.build(run, corpora[0].vocabulary)
    model.know_words(corpora[0])
    objective = model.objective.members()["bilm"]
    assert isinstance(objective, BidirectionalWordObjective)
    learned, asked = (
        Batches(corpus, run.examples, model.vocabulary, model.objective.prepare, seed, run.batch.tokens)
        for corpus, seed in zip(corpora, (run.seed, road.HELD_OUT_SEED), strict=True)
    )

    def count(batches: Iterator[PackedBatch] | list[PackedBatch]) -> torch.Tensor:
        classes = [
            objective.head.classes(batch.labels[name].value) for batch in batches for name in ("forward", "backward")
        ]
        return torch.cat(classes).bincount(minlength=len(objective.head.words) + 1).double()

    known = count(one_epoch(learned)) + 1
    wanted = count(held_out_batches(asked, run.keeping.evaluation_tokens))
    return float(-(wanted * (known / known.sum()).log()).sum() / wanted.sum())


def one_epoch(batches: Batches) -> Iterator[PackedBatch]:
    for batch, after in batches.since(Cursor()):
        yield batch
        if after.epoch:
            return


if __name__ == "__main__":
    main()
