"""`word2vec_plain.train_block`, compiled: the same steps from the same random numbers, some ten times as fast as gensim's.

Time goes into products of a few rows of up to a few hundred numbers, and into waiting for these rows. So six targets are
scored against two inputs at once, all twelve sums in vector registers; and the targets of the next centre are drawn, and asked
for, while those of this one are worked on. Rows are told by where they begin in a flat table.

Legend: as in `word2vec_plain`. The targets of a step have eight places, of which six are used, and so have an input's scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled_fast
from unmask.static.memory import CACHE_LINE, LANES
from unmask.static.vector_code import prefetch
from unmask.static.word2vec_plain import GROUP, MEASURED, Block, Floats, Ints, Training
from unmask.static.word2vec_steps import (
    Int,
    average_rows,
    measure,
    move,
    move_rows,
    move_with_one,
    score,
    score_to_g,
)

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32, _LOW = (np.uint64(n) for n in (27, 30, 31, 32, 2**32 - 1))
_MEASURED = np.uint64(MEASURED)

Ids = NDArray[np.int32]
Draws = NDArray[np.uint32]
Keys = NDArray[np.uint64]


class _Room(NamedTuple):
    """Arrays that are written anew again and again."""

    words: Ints  # [T] kept words of a line
    places: Ints  # [T] where they stand in the block
    targets: Ints  # of two centres, this one and the next: rows
    marks: (
        Floats  # of two centres: for each eight targets eight labels, then eight ones or, for what is not there, zeros
    )
    rows: Ints  # of the context
    starts: Ints  # [n+1] which of them belong to each input of a step
    mean_rows: Ints  # [n] where the means begin
    means: Floats  # [n * W], then what their rows move by
    g: Floats  # [n * 8], scores before
    health: Floats  # [8] sums of all scores
    lanes: Floats  # [8]


@compiled_fast
def train_block(t: Training, block: Block) -> tuple[Int, Int, Int, float, float]:
    """Trains on a block, in place; the fields of `Done`."""
    room = _room(t, block)
    drawn, all_kept, all_pairs, all_measured, loss = np.uint64(0), 0, 0, 0, 0.0
    for line in range(len(block.lines) - 1):
        begin, end = block.lines[line], block.lines[line + 1]
        kept = _keep(block.ids, begin, end, t.keep, block.key, drawn, room.words, room.places)
        drawn += np.uint64(end - begin)
        pairs, measured, line_loss = _train_line(t, room, kept, block.key, drawn, block.first)
        drawn += np.uint64(kept * (1 + t.negatives))
        all_kept, all_pairs, all_measured = all_kept + kept, all_pairs + pairs, all_measured + measured
        loss += line_loss
    health = 0.0
    for lane in range(LANES):
        health += room.health[lane]
    return all_kept, all_pairs, all_measured, loss, health


@compiled_fast
def _room(t: Training, block: Block) -> _Room:
    num_inputs = 2 * t.window
    num_parts = 1 + (_longest(t.part_starts) if len(t.part_starts) > 1 else 0)
    num_targets = _longest(t.path_starts) if t.negatives == 0 else 1 + t.negatives
    places = 2 * LANES * ((num_targets + GROUP - 1) // GROUP)
    line = _longest(block.lines)
    return _Room(
        np.empty(line, np.int64),
        np.empty(line, np.int64),
        np.zeros(places, np.int64),
        np.zeros(2 * places, np.float32),
        np.zeros(num_inputs * num_parts + 1, np.int64),
        np.zeros(num_inputs + 1, np.int64),
        np.arange(num_inputs) * t.width,
        np.zeros(num_inputs * t.width, np.float32),
        np.zeros(num_inputs * LANES, np.float32),
        np.zeros(LANES, np.float32),
        np.zeros(LANES, np.float32),
    )


@compiled_fast
def _longest(starts: Ints) -> Int:
    longest = 0
    for i in range(len(starts) - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    return longest


@compiled_fast
def _draw(key: np.uint64, number: np.uint64) -> np.uint64:
    """`unmask.randomness.mix` of the key that many steps on."""
    x = key + (number + np.uint64(1)) * _GOLDEN
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


@compiled_fast
def _keep(
    ids: Ids, begin: Int, end: Int, keep_V: Draws, key: np.uint64, first: np.uint64, words: Ints, places: Ints
) -> Int:
    """Writes the words of a line that subsampling leaves; returns how many."""
    kept: Int = 0
    for place in range(begin, end):
        word = ids[place]
        words[kept], places[kept] = word, place
        kept += _draw(key, first + np.uint64(place - begin)) >> _32 <= np.uint64(keep_V[word])
    return kept


@compiled_fast
def _train_line(  # noqa: C901 parted into functions it is an eighth slower
    t: Training, room: _Room, kept: Int, key: np.uint64, windows: np.uint64, first: Int
) -> tuple[Int, Int, float]:
    """The line's pairs, how many of these were measured, and their loss. `windows` is the number of its first window."""
    targets, marks, words, rows, starts, lanes = (
        room.targets, room.marks, room.words, room.rows, room.starts, room.lanes,
    )  # fmt: skip
    inputs, outputs, width, health = t.inputs, t.outputs, t.width, room.health
    alias, path_starts, points, codes = t.alias, t.path_starts, t.points, t.codes
    direct, average = not t.cbow and len(t.part_starts) == 1, t.cbow and t.average
    means, mean_rows, g = room.means, room.mean_rows, room.g
    negatives, half = windows + np.uint64(kept), len(targets) // 2
    slope = (t.final_rate - t.first_rate) / t.total
    pairs, measured, loss, groups, groups_next = 0, 0, 0.0, 0, 0
    for i in range(-1, kept):
        groups = groups_next
        if i < 0 and kept:
            at = (i + 1 & 1) * half
            if t.negatives:
                number = negatives + np.uint64((i + 1) * t.negatives)
                groups_next = _aim_at_words(
                    words[i + 1], key, number, t.negatives, alias, outputs, width, at, targets, marks
                )
            else:
                groups_next = _aim_at_path(words[i + 1], path_starts, points, codes, outputs, width, at, targets, marks)
        if i < 0:
            continue
        draw = _draw(key, windows + np.uint64(i))
        reach = t.window - np.int64((draw >> _32) * np.uint64(t.window) >> _32)
        low, high = max(0, i - reach), min(kept, i + reach + 1)
        if high - low == 1:
            continue
        _ask(inputs, words[min(kept - 1, i + t.window + 2)] * width, width)  # soon in a window
        is_measured = (draw & _LOW) % _MEASURED == 0
        rate = np.float32(t.first_rate + slope * (first + room.places[i]))
        if direct:
            count = _context(words, low, i, high, rows, width)
        else:
            count = _context_parts(words, low, i, high, rows, starts, width, t.part_starts, t.parts, t.cbow)
        for at in range((i & 1) * half, (i & 1) * half + groups * LANES, LANES):
            if direct:
                score(inputs, rows, count, outputs, targets, at, width, g)
            else:
                average_rows(inputs, rows, starts, count, width, means)
                score(means, mean_rows, count, outputs, targets, at, width, g)
            if is_measured:
                loss += measure(g, count, marks, 2 * at, lanes)
            score_to_g(g, count, marks, 2 * at, rate, health)
            if at == (i & 1) * half and i + 1 < kept:  # the next centre's targets: work that needn't wait for g
                to = (i + 1 & 1) * half
                if t.negatives:
                    number = negatives + np.uint64((i + 1) * t.negatives)
                    groups_next = _aim_at_words(
                        words[i + 1], key, number, t.negatives, alias, outputs, width, to, targets, marks
                    )
                else:
                    groups_next = _aim_at_path(
                        words[i + 1], path_starts, points, codes, outputs, width, to, targets, marks
                    )
            if direct:
                move(inputs, rows, count, g, outputs, targets, at, width, False)
            else:
                if t.cbow:
                    share = np.float32(1) / np.float32(starts[1]) if average else np.float32(1)
                    move_with_one(means, share, g, outputs, targets, at, width)
                else:
                    move(means, mean_rows, count, g, outputs, targets, at, width, True)
                move_rows(inputs, rows, starts, count, width, means)
        pairs += count
        measured += count if is_measured else 0
    return pairs, measured, loss


# --- what a step is about ---------------------------------------------------------------------------------------------------
@compiled_fast
def _aim_at_words(
    word: Int, key: np.uint64, number: np.uint64, negatives: Int, alias: Keys,
    outputs: Floats, width: Int, at: Int, targets: Ints, marks: Floats,
) -> Int:  # fmt: skip
    """Writes the rows and marks of a centre and its negatives, and asks for the rows; returns the steps that they make."""
    num_words, slot = np.uint64(len(alias)), 1
    targets[at], marks[2 * at], marks[2 * at + LANES] = word * width, np.float32(1), np.float32(1)
    _ask(outputs, word * width, width)
    first = at
    for k in range(negatives):
        if slot == GROUP:
            at, slot = at + LANES, 0
        draw = _draw(key, number + np.uint64(k))
        place = (draw >> _32) * num_words >> _32
        entry = alias[place]
        itself = draw & _LOW < entry & _LOW
        target = np.int64(place if itself else entry >> _32)
        share = np.float32(target != word)
        row = (target if target != word else len(alias)) * width  # the row that stays zero
        targets[at + slot], marks[2 * at + slot], marks[2 * at + LANES + slot] = row, np.float32(0), share
        _ask(outputs, row, width)
        slot += 1
    return _aimed(outputs, width, first, at, slot, targets, marks)


@compiled_fast
def _aim_at_path(
    word: Int, path_starts: Ints, points: Ids, codes: NDArray[np.int8],
    outputs: Floats, width: Int, at: Int, targets: Ints, marks: Floats,
) -> Int:  # fmt: skip
    """The same for the inner nodes on the way to a word."""
    first, slot = at, 0
    for node in range(path_starts[word], path_starts[word + 1]):
        if slot == GROUP:
            at, slot = at + LANES, 0
        row = np.int64(points[node]) * width
        targets[at + slot], marks[2 * at + slot] = row, np.float32(1 - codes[node])
        marks[2 * at + LANES + slot] = np.float32(1)
        _ask(outputs, row, width)
        slot += 1
    return _aimed(outputs, width, first, at, slot, targets, marks) if slot else 0


@compiled_fast
def _aimed(outputs: Floats, width: Int, first: Int, at: Int, slot: Int, targets: Ints, marks: Floats) -> Int:
    """Fills the last step with the row that stays zero; returns how many steps there are."""
    for empty in range(slot, GROUP):
        targets[at + empty], marks[2 * at + empty], marks[2 * at + LANES + empty] = (
            len(outputs) - width, np.float32(0), np.float32(0),
        )  # fmt: skip
    return (at - first) // LANES + 1


@compiled_fast
def _ask(outputs: Floats, row: Int, width: Int) -> None:
    for j in range(0, width, CACHE_LINE):
        prefetch(outputs, row + j)


@compiled_fast
def _context(words: Ints, low: Int, centre: Int, high: Int, rows: Ints, width: Int) -> Int:
    """Writes the rows of the words around a centre; returns how many there are."""
    at = 0
    for i in range(low, high):
        rows[at] = words[i] * width
        at += i != centre
    return at


@compiled_fast
def _context_parts(
    words: Ints, low: Int, centre: Int, high: Int, rows: Ints, starts: Ints, width: Int,
    part_starts: Ints, parts: Ids, cbow: bool,
) -> Int:  # fmt: skip
    """The same with the rows of their n-grams; returns how many inputs they make."""
    at, count = 0, 0
    for i in range(low, high):
        if i != centre:
            word = words[i]
            rows[at] = word * width
            at += 1
            if len(part_starts) > 1:
                for part in range(part_starts[word], part_starts[word + 1]):
                    rows[at] = np.int64(parts[part]) * width
                    at += 1
            count += 1
            starts[count] = at
    if cbow:
        count, starts[1] = 1, at
    return count
