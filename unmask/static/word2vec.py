"""Learning word vectors with word2vec: Mikolov et al. 2013, "Efficient Estimation of Word Representations in Vector Space" and
"Distributed Representations of Words and Phrases and their Compositionality".

The corpus is trained on in blocks of some 200,000 words. What is drawn in a block depends on the seed, the epoch and the block,
and the learning rate on how many words come before a word; so between any two blocks training can be stopped, saved and taken
up again, and with one thread the vectors are the same bit for bit however often that happens. Several threads take blocks
in order and move the same vectors without waiting for each other (Recht et al. 2011, "Hogwild!"): the same quality, but never
the same bits.

Legend: N words of the corpus, V distinct ones, B buckets of n-grams, D dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import Word2Vec
from unmask.errors import UnmaskError
from unmask.progress import Progress, quiet
from unmask.randomness import generator, keys
from unmask.static import sampling
from unmask.static.checkpoint import MINUTES, Checkpoint, Identity, told
from unmask.static.memory import aligned, padded
from unmask.static.ngrams import ngram_buckets
from unmask.static.tokens import Tokens
from unmask.static.word2vec_plain import Block, Done, Training

BLOCK = 200_000
_INITIAL, _BLOCKS = 1, 2  # what is drawn
_CHUNK = 1 << 16  # rows initialised at once
_NOTHING = Done(0, 0, 0, 0.0, 0.0)

Floats = NDArray[np.float32]
TrainBlock = Callable[[Training, Block], tuple[int, int, int, float, float]]


@dataclass(frozen=True)
class Epoch:
    """What one pass over the corpus did. Every word of the corpus is a centre once, or left out by subsampling."""

    words: int
    """Words of the corpus that were read."""
    kept: int
    """Those that subsampling left."""
    pairs: int
    """With skip-gram, words of all contexts; with cbow, contexts."""
    loss: float
    """Mean of a pair (minus the log probability of telling its targets right), over one centre in 16, drawn at random,
    each measured just before it is trained on. Losses of different settings, like other numbers of negatives, don't compare."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What training leaves."""

    inputs: Floats  # [V, D] the vectors of the words
    outputs: Floats  # [V, D], or [V - 1, D] inner nodes of the Huffman tree
    ngrams: Floats | None  # [B, D]
    epochs: tuple[Epoch, ...]
    finished: bool
    """False when `stop` ended it before."""


@dataclass
class _Run:
    """Where training stands."""

    tokens: Tokens
    settings: Word2Vec
    blocks: list[NDArray[np.int64]]  # of an epoch: where their lines begin
    training: Training
    next: int = 0  # block, counted over all epochs
    done: list[tuple[int, Done]] = field(default_factory=list)  # of each epoch begun: words read, and the rest

    @property
    def is_finished(self) -> bool:
        return self.next == len(self.blocks) * self.settings.epochs

    def tables(self) -> dict[str, Floats]:
        inputs, outputs = (table.reshape(-1, self.training.width) for table in self.training[:2])
        return {"inputs": inputs, "outputs": outputs}

    def state(self) -> dict[str, Any]:
        return {"next": self.next, "epochs": [{"words": words, **done._asdict()} for words, done in self.done]}

    def resume(self, state: dict[str, Any]) -> None:
        self.next = state["next"]
        self.done = [(entry.pop("words"), Done(**entry)) for entry in state["epochs"]]


def train(
    tokens: Tokens,
    settings: Word2Vec,
    *,
    threads: int = 1,
    checkpoint: Path | None = None,
    minutes: float = MINUTES,
    stop: Callable[[], bool] = bool,
    progress: Progress = quiet,
    block: int = BLOCK,
    plainly: bool = False,
) -> Trained:
    """Trains, or goes on from `checkpoint` where that folder is there.

    The folder is written every `minutes`, at the end of an epoch where one went by, and when `stop`, asked between blocks,
    says so. `plainly` uses the specification, which takes hours where the compiled loops take seconds. Raises UnmaskError for
    a corpus without words or without two in a line, for a checkpoint of another training, and when vectors stop being numbers.
    """
    if len(tokens.ids) == 0:
        raise UnmaskError("There are no words to train on.", do="Give a text with words that occur often enough.")
    run = _Run(tokens, settings, _blocks(tokens.lines, block), _training(tokens, settings))
    saved = Checkpoint(checkpoint, partial(_identity, tokens, settings, block), run.tables(), minutes)
    if state := saved.load():
        run.resume(state)
    train_block = _train_block(plainly)
    while not run.is_finished and not stop():
        _work(run, train_block, threads, lambda: saved.is_due() or stop(), progress)
        _require_finite(run)
        ended = run.next % len(run.blocks) == 0
        if ended and run.done[-1][1].pairs == 0:
            raise UnmaskError(
                "No two words stand together in any line.",
                do="Give text with more than one word in a line, or a larger subsample.",
            )
        if saved.is_due(at_end_of_epoch=ended):
            saved.save(run.state())
    if not run.is_finished:
        saved.save(run.state())
    return _trained(run)


def _identity(tokens: Tokens, settings: Word2Vec, block: int) -> Identity:
    return {
        "settings": told(settings),
        "corpus": {"words": len(tokens.ids), "fingerprint": tokens.fingerprint[:16]},
        "blocks": {"words": block},
    }


# --- before -----------------------------------------------------------------------------------------------------------------
def _training(tokens: Tokens, settings: Word2Vec) -> Training:
    counts, width = tokens.words.counts, padded(settings.dimension)
    hierarchical = settings.loss == "hierarchical"
    none = np.zeros(1, np.int64), np.zeros(0, np.int32)
    part_starts, parts = none
    rows = len(counts)
    if settings.ngrams.buckets:
        part_starts, parts = ngram_buckets(tokens.words.words, settings.ngrams)
        parts, rows = parts + np.int32(len(counts)), len(counts) + settings.ngrams.buckets
    path_starts, points, codes = sampling.huffman(counts) if hierarchical else (*none, np.zeros(0, np.int8))
    return Training(
        inputs=_initial(rows, settings.dimension, width, settings.seed),
        outputs=aligned(((len(counts) - 1 if hierarchical else len(counts)) + 1) * width),
        width=width,
        keep=sampling.keep_thresholds(counts, settings.subsample),
        alias=sampling.alias_table(counts),
        path_starts=path_starts,
        points=points,
        codes=codes,
        part_starts=part_starts,
        parts=parts,
        window=settings.window,
        negatives=0 if hierarchical else settings.negatives,
        cbow=settings.model == "cbow",
        average=settings.average_gradient,
        first_rate=settings.first_learning_rate,
        final_rate=settings.final_learning_rate,
        total=float(len(tokens.ids) * settings.epochs),
    )


def _initial(rows: int, dimension: int, width: int, seed: int) -> Floats:
    """Even draws from -1/D to 1/D, as gensim's: half of that, as in the authors' program, leaves analogies worse after a
    few epochs."""
    table, rng = aligned(rows * width), generator(seed, _INITIAL)
    for begin in range(0, rows, _CHUNK):
        part = table.reshape(rows, width)[begin : begin + _CHUNK, :dimension]
        part[:] = (2 * rng.random(part.shape, np.float32) - 1) / np.float32(dimension)
    return table


def _blocks(lines: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Where the lines of each block begin, and end: whole lines, `size` words at most.

    A longer line is cut into pieces of that size, across which no window reaches: nothing of it is lost.
    """
    blocks, begin, last = [], 0, int(lines[-1])
    while begin < last:
        first = int(np.searchsorted(lines, begin, "right"))
        after = int(np.searchsorted(lines, begin + size, "right"))
        ends = np.asarray(lines[first:after]) if after > first else np.array([begin + size])
        blocks.append(np.concatenate([[begin], ends]).astype(np.int64))
        begin = int(ends[-1])
    return blocks


# --- blocks and threads -----------------------------------------------------------------------------------------------------
def _work(run: _Run, train_block: TrainBlock, threads: int, pause: Callable[[], bool], progress: Progress) -> None:
    """Trains up to the end of the epoch, or until it is time to pause; every block that begins is ended."""
    epoch = run.next // len(run.blocks)
    end = (epoch + 1) * len(run.blocks)
    if len(run.done) == epoch:
        run.done.append((0, _NOTHING))
    with ThreadPoolExecutor(threads) as pool:
        working: set[Future[tuple[int, Done]]] = set()
        is_paused = False
        while working or (run.next < end and not is_paused):
            while len(working) < threads and run.next < end and not is_paused:
                working.add(pool.submit(_one, run, train_block, run.next))
                run.next += 1
                is_paused = pause()
            ended, working = wait(working, return_when=FIRST_COMPLETED)
            for future in ended:
                words, done = future.result()
                if not np.isfinite(done.health + done.loss):
                    raise _diverged(run)
                run.done[epoch] = run.done[epoch][0] + words, run.done[epoch][1] + done
            progress("training, words", epoch * len(run.tokens.ids) + run.done[epoch][0], run.training.total)


def _one(run: _Run, train_block: TrainBlock, number: int) -> tuple[int, Done]:
    """Trains on one block; the words of the corpus that it has, and what was done."""
    epoch, place = divmod(number, len(run.blocks))
    lines = run.blocks[place]
    begin, end = int(lines[0]), int(lines[-1])
    key = keys(run.settings.seed, _BLOCKS, epoch, place)[0]
    ids = np.array(run.tokens.ids[begin:end], np.int32)
    block = Block(ids, lines - begin, key, epoch * len(run.tokens.ids) + begin)
    return end - begin, Done(*train_block(run.training, block))


def _train_block(plainly: bool) -> TrainBlock:
    if plainly:
        from unmask.static import word2vec_plain

        return word2vec_plain.train_block
    from unmask.static import word2vec_loops

    return word2vec_loops.train_block


# --- after ------------------------------------------------------------------------------------------------------------------
def _trained(run: _Run) -> Trained:
    inputs, outputs = (table[:, : run.settings.dimension] for table in run.tables().values())
    words = len(run.tokens.words)
    return Trained(
        inputs=inputs[:words],
        outputs=outputs[:-1],
        ngrams=inputs[words:] if run.settings.ngrams.buckets else None,
        epochs=tuple(_epoch(*done) for done in run.done),
        finished=run.is_finished,
    )


def _epoch(words: int, done: Done) -> Epoch:
    return Epoch(words, done.kept, done.pairs, done.loss / done.measured if done.measured else 0.0)


def _require_finite(run: _Run) -> None:
    if not all(np.isfinite(table.sum(dtype=np.float64)) for table in (run.training.inputs, run.training.outputs)):
        raise _diverged(run)


def _diverged(run: _Run) -> UnmaskError:
    rate = run.settings.first_learning_rate
    return UnmaskError(
        f"Training went wrong: vectors are no longer numbers, with learning_rate {rate:g}.",
        where=f"epoch {len(run.done)}",
        do=f"Train with a smaller learning rate, {rate / 4:g} for example. The last checkpoint, if any, is as it was.",
    )
