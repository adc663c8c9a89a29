"""What word2vec does with a block of text, in plain NumPy: the specification of `word2vec_loops`.

Each kept word of a line is a centre in turn. It has a number of words around it, its context, and targets: itself and
`negatives` others, or the inner nodes of its path in the Huffman tree. A step takes inputs x and targets y; g is how much less
the target's probability is than its label, times the learning rate:

    x_nD  skip-gram: one for each word of the context, its vector; cbow: one, the mean over the context
    g_nk = (label_k - sigmoid(x_n . y_k)) * rate        y_k += sum_n g_nk x_n        x_n += sum_k g_nk y_k

with the values from before the step on the right. Sharing a centre's negatives among its context makes this a product of
matrices (Ji et al. 2016, "Parallelizing Word2Vec in Shared and Distributed Memory"). Targets are taken six at a time: what
more there are makes further steps, which see what the former did. A negative that is the centre itself is left out.

With character n-grams, a word's vector is the mean of its own and of its n-grams'; with cbow, the mean is over all of those of
the whole context. What x_n is moved by, each vector in the mean is moved by in full, as fastText and word2vec's programs have
it; with `average`, cbow divides it by how many there are.

Random numbers are counted, not drawn in passing: number i of a block is a hash of its key and i. A line takes one number for
each word (is it kept?), one for each kept word (how far does its window reach? is its loss measured?) and then `negatives` for
each kept word.

Legend: D dimension, W `width`, the dimension with zeros behind up to a multiple of 8; V words, S lines, T words of a line,
n inputs of a step, k targets of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.randomness import mix

GROUP = 6  # targets of a step: the centre and word2vec's usual five negatives
MEASURED = 16  # of so many centres one has its loss measured
_GOLDEN, _32, _LOW = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(2**32 - 1)

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class Training(NamedTuple):
    """Everything that stays the same from block to block (and the two tables that are trained)."""

    inputs: Floats  # [(V + buckets) * W] vectors of words, then of n-grams, flat
    outputs: Floats  # [(targets + 1) * W] those of targets, flat; the last row stays zero
    width: int
    keep: NDArray[np.uint32]  # [V]
    alias: NDArray[np.uint64]  # [V] `sampling.alias_table`
    path_starts: Ints  # [V+1] with `points` and `codes`, paths in the Huffman tree
    points: NDArray[np.int32]
    codes: NDArray[np.int8]
    part_starts: Ints  # [V+1] with `parts`, rows of n-grams; [1] without
    parts: NDArray[np.int32]
    window: int
    negatives: int  # 0: hierarchical
    cbow: bool
    average: bool  # cbow only
    first_rate: float
    final_rate: float
    total: float  # words of all epochs


class Block(NamedTuple):
    """Some lines of the corpus."""

    ids: NDArray[np.int32]
    lines: Ints  # [S+1] where lines begin in `ids`
    key: np.uint64
    first: int  # how many words came before, in this epoch and all earlier ones


class Done(NamedTuple):
    """What happened in a block."""

    kept: int
    """Words that subsampling left."""
    pairs: int
    """Inputs of all centres: with skip-gram the words of their contexts, with cbow one each."""
    measured: int
    """Pairs whose loss was measured."""
    loss: float
    """Its sum over these."""
    health: float
    """The sum of all scores: finite, unless something has gone wrong."""

    def __add__(self, other: Done) -> Done:  # type: ignore[override]
        return Done(*(a + b for a, b in zip(self, other, strict=True)))  # type: ignore[arg-type]


def train_block(training: Training, block: Block) -> Done:
    """Trains on a block, in place."""
    done, drawn = Done(0, 0, 0, 0.0, 0.0), 0
    for begin, end in zip(block.lines[:-1].tolist(), block.lines[1:].tolist(), strict=True):
        high, _ = _draws(block, drawn, end - begin)
        kept = np.flatnonzero(high <= training.keep[block.ids[begin:end]])
        words = block.ids[begin:end][kept]
        windows = _draws(block, drawn + end - begin, len(kept))
        drawn += end - begin + len(kept)
        for i, word in enumerate(words.tolist()):
            negatives = _draws(block, drawn + i * training.negatives, training.negatives)
            reach = training.window - (int(windows[0][i]) * training.window >> 32)
            context = [*words[max(0, i - reach) : i].tolist(), *words[i + 1 : i + reach + 1].tolist()]
            progress = (block.first + begin + int(kept[i])) / training.total
            rate = np.float32(training.first_rate + (training.final_rate - training.first_rate) * progress)
            loss, health = _train_centre(training, context, *_targets(training, word, negatives), rate)
            done = _with_centre(
                done, min(1, len(context)) if training.cbow else len(context), loss, health, windows[1][i]
            )
        drawn += len(kept) * training.negatives
    return done


def _with_centre(done: Done, pairs: int, loss: float, health: float, draw: np.uint64) -> Done:
    is_measured = int(draw % np.uint64(MEASURED) == 0)
    return Done(
        done.kept + 1,
        done.pairs + pairs,
        done.measured + pairs * is_measured,
        done.loss + loss * is_measured,
        done.health + health,
    )


def _draws(block: Block, first: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The upper and the lower 32 bits of some of the block's numbers."""
    numbers = mix(block.key + np.arange(first, first + count, dtype=np.uint64) * _GOLDEN)
    return numbers >> _32, numbers & _LOW


def _targets(
    training: Training, word: int, draws: tuple[NDArray[np.uint64], NDArray[np.uint64]]
) -> tuple[Ints, Floats]:
    """Rows of `outputs` and their labels."""
    if training.negatives == 0:
        path = slice(training.path_starts[word], training.path_starts[word + 1])
        return training.points[path].astype(np.int64), 1 - training.codes[path].astype(np.float32)
    places = (draws[0] * np.uint64(len(training.alias)) >> _32).astype(np.int64)
    threshold, other = training.alias[places] & _LOW, (training.alias[places] >> _32).astype(np.int64)
    negatives = np.where(draws[1] < threshold, places, other)
    negatives[negatives == word] = -1  # the row that stays zero
    return np.concatenate([[word], negatives]), np.eye(1, 1 + len(negatives), dtype=np.float32)[0]


def _train_centre(
    training: Training, context: Sequence[int], targets: Ints, labels: Floats, rate: np.float32
) -> tuple[float, float]:
    """The loss and the sum of the scores."""
    if not context:
        return 0.0, 0.0
    loss, health = 0.0, 0.0
    for begin in range(0, len(targets), GROUP):
        group = slice(begin, begin + GROUP)
        scores = _step(training, _rows(training, context), targets[group], labels[group], rate)
        signs = np.where(labels[group] > 0, 1, -1) * (targets[group] >= 0)
        loss += float((np.logaddexp(0, -signs * scores.astype(np.float64)) * (signs != 0)).sum())
        health += float(scores.sum())
    return loss, health


def _rows(training: Training, context: Sequence[int]) -> list[list[int]]:
    """Which rows of `inputs` each input of a step is the mean of."""
    with_parts = len(training.part_starts) > 1
    rows = [
        [word, *(training.parts[training.part_starts[word] : training.part_starts[word + 1]] if with_parts else ())]
        for word in context
    ]
    return [[int(row) for word in rows for row in word]] if training.cbow else rows


def _step(training: Training, rows: Sequence[Sequence[int]], targets: Ints, labels: Floats, rate: np.float32) -> Floats:
    """One step; the scores [n, k] from before it."""
    inputs = training.inputs.reshape(-1, training.width)
    outputs = training.outputs.reshape(-1, training.width)
    x_nW = np.stack([inputs[row].mean(0) for row in rows])
    y_kW = outputs[targets]
    scores_nk = x_nW @ y_kW.T
    g_nk = ((labels - 1 / (1 + np.exp(-scores_nk))) * rate * (targets >= 0)).astype(np.float32)
    np.add.at(outputs, targets, g_nk.T @ x_nW)
    for row, change_W in zip(rows, g_nk @ y_kW, strict=True):
        np.add.at(inputs, row, change_W / len(row) if training.cbow and training.average else change_W)
    return scores_nk
