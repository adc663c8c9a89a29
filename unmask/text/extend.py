"""More pieces for a tokenizer that exists, learned from the text of a field; every old piece keeps its id.

For each new piece the old tokenizer's ids of the same text come along, so that a model can start its new embedding row at
the mean of those rows. WordPiece and unigram tokenizers learn whole words, those that save most tokens; byte-level BPE
goes on merging where its training stopped.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import log
from typing import Any

from unmask.errors import UnmaskError
from unmask.progress import Progress, quiet
from unmask.text.tokenizer import Tokenizer
from unmask.text.tokenizer_parts import NEVER
from unmask.text.training_text import CUT, Preparation, collect

_MARGIN = 0.1  # by which a new unigram piece beats the pieces it replaces
_LONGEST_WORD = 100  # characters
Pair = tuple[str, str]


def extend(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    count: int,
    *,
    min_frequency: int = 5,
    max_bytes: int = 256 << 20,
    progress: Progress = quiet,
) -> tuple[Tokenizer, list[list[int]]]:
    """The tokenizer with at most `count` new pieces (ids from the old vocab_size on), and the old ids of each.

    Fewer come when the text has no more words of `min_frequency`; none is an UnmaskError.
    """
    if count < 1:
        raise UnmaskError(f"{count} new pieces were asked for.", do="Ask for at least 1.")
    words = _count_words(tokenizer, collect(texts, max_bytes, progress), progress)
    frequent = {word: times for word, times in words.items() if times >= min_frequency}
    content, config = tokenizer.documents()
    _fill_model(content, tokenizer)
    match tokenizer.kind:
        case "bpe":
            new = _continue_merges(content, words, tokenizer, count, min_frequency)
        case "unigram":
            new = _add_words(tokenizer, frequent, count)
            _add_scored(content, new, frequent, sum(words.values()))
        case _:
            new = _add_words(tokenizer, frequent, count)
            content["model"]["vocab"] |= {word: tokenizer.vocab_size + place for place, word in enumerate(new)}
    if not new:
        raise UnmaskError(
            "The text holds no new piece worth adding.",
            do=f"Give more text, or lower --min-frequency ({min_frequency}).",
        )
    return Tokenizer(content, config), list(new.values())


def _count_words(tokenizer: Tokenizer, sample: Iterable[str], progress: Progress) -> Counter[str]:
    """How often each word occurs, in the model's own spelling; runs of hanzi fall into dictionary words."""
    prepare = Preparation(_LONGEST_WORD, set(), cut_hanzi=tokenizer.kind != "wordpiece")
    words: Counter[str] = Counter()
    done = 0
    for done, text in enumerate(sample):
        for part in prepare(text).split(CUT):
            words.update(tokenizer.pre_tokens(part))
        progress("counting words, slices", done + 1, None)
    progress("counting words, slices", done + 1, done + 1)
    return words


def _add_words(tokenizer: Tokenizer, frequent: dict[str, int], count: int) -> dict[str, list[int]]:
    """Words whose being one piece saves most tokens; ties by spelling."""
    pieces = {word: tokenizer.model_ids(word) for word in frequent}
    known = set(tokenizer.pieces())
    saved = {
        word: times * (len(pieces[word]) - 1 + (tokenizer.unk_token_id in pieces[word]))
        for word, times in frequent.items()
        if word not in known and word.strip("▁")
    }
    best = sorted((word for word in saved if saved[word]), key=lambda word: (-saved[word], word))[:count]
    return {word: pieces[word] for word in best}


def _add_scored(content: dict[str, Any], new: dict[str, list[int]], frequent: dict[str, int], total: int) -> None:
    """A new piece scores the log of its share of the words, but at least a little more than the pieces it replaces."""
    vocabulary = content["model"]["vocab"]
    unknown = content["model"]["unk_id"]
    for word, ids in new.items():
        old = NEVER if unknown in ids else sum(vocabulary[id][1] for id in ids) + _MARGIN
        vocabulary.append([word, round(min(0.0, max(log(frequent[word] / total), old)), 6)])


def _continue_merges(
    content: dict[str, Any],
    words: Counter[str],
    tokenizer: Tokenizer,
    count: int,
    min_frequency: int,
) -> dict[str, list[int]]:
    """Byte-pair encoding from the old pieces on: merges the most frequent pair of neighbours, again and again.

    New merges rank after all old ones, so a text is first cut as before and then joined further.
    """
    vocabulary = content["model"]["vocab"]
    content["model"]["merges"] = [  # old files write "a b"
        pair.split(" ") if isinstance(pair, str) else pair for pair in content["model"]["merges"]
    ]
    merges = _Merges({word: [tokenizer.token(id) for id in tokenizer.model_ids(word)] for word in sorted(words)}, words)
    origin = {piece: [id] for piece, id in vocabulary.items()}
    new: dict[str, list[int]] = {}
    while len(new) < count and (pair := merges.best(min_frequency)):
        joined = "".join(pair)
        if (
            joined in vocabulary
        ):  # reachable by another path only; joining here too would change old texts for no new piece
            merges.skip(pair)
            continue
        merges.apply(pair)
        origin[joined] = new[joined] = origin[pair[0]] + origin[pair[1]]
        vocabulary[joined] = tokenizer.vocab_size + len(new) - 1
        content["model"]["merges"].append(list(pair))
    return new


class _Merges:
    """Counts of neighbouring pieces over all words, kept current while pairs are joined."""

    def __init__(self, words: dict[str, list[str]], times: Counter[str]):
        self._words = [(pieces, times[word]) for word, pieces in words.items()]
        self._counts: Counter[Pair] = Counter()
        self._where: dict[Pair, set[int]] = defaultdict(set)
        self._skipped: set[Pair] = set()
        for number in range(len(self._words)):
            self._add(number, +1)
        self._heap = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def best(self, least: int) -> Pair | None:
        """The most frequent pair; ties by spelling."""
        while self._heap and -self._heap[0][0] >= least:
            count, pair = self._heap[0]
            if -count == self._counts[pair] and pair not in self._skipped:
                return pair
            heapq.heappop(self._heap)  # out of date: every change of a count put in a new entry
        return None

    def skip(self, pair: Pair) -> None:
        self._skipped.add(pair)

    def apply(self, pair: Pair) -> None:
        """Joins the pair wherever it stands, from left to right."""
        changed: set[Pair] = set()
        for number in sorted(self._where.pop(pair)):
            changed |= self._add(number, -1)
            pieces, times = self._words[number]
            self._words[number] = (_join(pieces, pair), times)
            changed |= self._add(number, +1)
        for other in sorted(changed):
            if self._counts[other] > 0:
                heapq.heappush(self._heap, (-self._counts[other], other))

    def _add(self, number: int, sign: int) -> set[Pair]:
        pieces, times = self._words[number]
        pairs = list(zip(pieces, pieces[1:], strict=False))
        for pair in pairs:
            self._counts[pair] += sign * times
            if sign > 0:
                self._where[pair].add(number)
        return set(pairs)


def _join(pieces: list[str], pair: Pair) -> list[str]:
    joined: list[str] = []
    place = 0
    while place < len(pieces):
        if tuple(pieces[place : place + 2]) == pair:
            joined.append("".join(pair))
            place += 2
        else:
            joined.append(pieces[place])
            place += 1
    return joined


def _fill_model(content: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Gives added pieces beyond the model a place inside it, so that new pieces can follow with ids of their own."""
    vocabulary = content["model"]["vocab"]
    added = sorted((token["id"], token["content"]) for token in content["added_tokens"])
    if isinstance(vocabulary, list):
        for id, piece in added:
            if id >= len(vocabulary):
                vocabulary.append([piece, NEVER])
    else:
        for id, piece in added:
            vocabulary.setdefault(piece, id)
    if len(vocabulary) != tokenizer.vocab_size:
        raise UnmaskError(
            f"The tokenizer has gaps: {len(vocabulary)} pieces, but ids up to {tokenizer.vocab_size - 1}.",
            do="Only a tokenizer whose ids have no gaps can be extended.",
        )
