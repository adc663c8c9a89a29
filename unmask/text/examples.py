"""From a pool of documents to examples: which tokens stand together in a sequence.

Everything here is a pure function of the pool's texts and a generator keyed by (seed, epoch, pool), and uses every token of
every document once. Per example there is a little Python, per token there is none.

Legend: N tokens in the stream, E examples, S sentences.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.config import Blocks, Documents, Examples, FullSentences, Pairs
from unmask.text.shards import Texts, ranges
from unmask.text.vocabulary import Role, Vocabulary

Ints = NDArray[np.int64]
CLS, SEP = 0, 1  # where the stream holds these two tokens
_NO_FRAME = (0, 0)


class Packed(NamedTuple):
    """Examples end to end."""

    ids: Ints  # [T]
    starts: NDArray[np.int32]  # [B+1] where each example begins, and the end
    segments: Ints  # [T] 0 in a first text, 1 in a second one
    word_starts: NDArray[np.bool_]  # [T]


@dataclass(frozen=True)
class Pool:
    """Examples as slices of one token stream: [CLS] first [SEP], or [CLS] first [SEP] second [SEP].

    Where the vocabulary has no [CLS], or the examples no frame, these tokens are left out.
    """

    stream: Ints  # [N+2] [CLS], [SEP] (or anything, where there is none), then the texts
    word_starts: NDArray[np.bool_]  # [N+2]
    first: Ints  # [E, 2] from, to
    second: Ints  # [E, 2] from, to; an empty slice: there is none
    label: Ints  # [E] 0 = second follows first, 1 = it does not, -1 = there is no pair
    document: Ints  # [E] number in this pool of the document the example begins in
    frame: tuple[int, int] = (1, 1)  # how many [CLS] stand before each example, and [SEP] behind each text

    def __len__(self) -> int:
        return len(self.first)

    def lengths(self) -> Ints:
        """[E] tokens of each example, special ones included."""
        second = self.second[:, 1] - self.second[:, 0]
        before, after = self.frame
        out: Ints = before + self.first[:, 1] - self.first[:, 0] + after + second + after * (second > 0)
        return out

    def pack(self, chosen: Ints) -> Packed:
        """The tokens of the chosen examples, end to end."""
        from unmask.text import example_loops

        texts = self.stream, self.word_starts, self.first, self.second
        return Packed(*example_loops.pack(*texts, *self.frame, chosen))

    def pack_plainly(self, chosen: Ints) -> Packed:
        """What `pack` gives, bit for bit, in array operations: its specification."""
        places, segments, lengths = self.gather(chosen)
        starts = np.r_[0, lengths.cumsum()].astype(np.int32)
        return Packed(self.stream[places], starts, segments, self.word_starts[places])

    def gather(self, chosen: Ints) -> tuple[Ints, Ints, Ints]:
        """Places in the stream [T], segment of each [T] and lengths [B] of the chosen examples, end to end."""
        a, b = self.first[chosen], self.second[chosen]
        size_b = b[:, 1] - b[:, 0]
        one, is_pair = np.ones(len(chosen), np.int64), (size_b > 0).astype(np.int64)
        before, after = self.frame
        begin = np.stack([one * CLS, a[:, 0], one * SEP, b[:, 0], one * SEP], 1).ravel()
        size = np.stack([one * before, a[:, 1] - a[:, 0], one * after, size_b, is_pair * after], 1).ravel()
        segment = np.repeat(np.tile([0, 0, 0, 1, 1], len(chosen)), size)
        return ranges(begin, size), segment, size.reshape(-1, 5).sum(1)


def cut(texts: Texts, how: Examples, vocabulary: Vocabulary, rng: np.random.Generator) -> Pool:
    """The examples of one pool, in text order (the loader shuffles them).

    UnmaskError where the vocabulary lacks a token they can't do without.
    """
    require_tokens(how, vocabulary)
    match how:
        case Pairs():
            return _pairs(texts, how, vocabulary, rng)
        case FullSentences():
            return _full_sentences(texts, how, vocabulary)
        case Blocks():
            return _blocks(texts, how, vocabulary)
        case Documents():
            return _documents(texts, how, vocabulary)


def require_tokens(how: Examples, vocabulary: Vocabulary) -> None:
    """UnmaskError where the vocabulary lacks a token that such examples can't do without."""
    needed: tuple[Role, ...] = ()
    match how:
        case Pairs():
            needed = ("cls", "sep")
        case FullSentences() | Blocks():
            needed = ("sep",)  # between documents
    for role in needed:
        vocabulary.require(role)


def _stream(texts: Texts, vocabulary: Vocabulary) -> tuple[Ints, NDArray[np.bool_]]:
    special = [id or 0 for id in (vocabulary.cls_token_id, vocabulary.sep_token_id)]
    return np.r_[special, texts.tokens].astype(np.int64, copy=False), np.r_[True, True, texts.word_starts]


def _frame(vocabulary: Vocabulary) -> tuple[int, int]:
    return int(vocabulary.cls_token_id is not None), int(vocabulary.sep_token_id is not None)


# --- sentence pairs --------------------------------------------------------------------------------------------------
def _pairs(texts: Texts, how: Pairs, vocabulary: Vocabulary, rng: np.random.Generator) -> Pool:
    stream, word_starts = _stream(texts, vocabulary)
    room = how.max_length - 3  # [CLS], [SEP], [SEP]
    ends, of_document = _pieces(texts, room)
    chunks = _chunks(ends, of_document, room, how.short_rate, rng)
    begin, middle, end = ends[chunks[:, 0]], _middles(ends, chunks, word_starts[2:], rng), ends[chunks[:, 1]]
    document = of_document[chunks[:, 0]]
    first, second = np.stack([begin, middle], 1) + 2, np.stack([middle, end], 1) + 2
    label = np.where(middle < end, 0, -1)
    negative = (label == 0) & (rng.random(len(label)) < how.negative_rate)
    if how.negatives == "swapped":
        first[negative], second[negative] = second[negative], first[negative]
        label[negative] = 1
    else:
        inside = ~np.isin(
            middle, texts.sentences
        )  # parted within a sentence: exchanged among themselves, or it would tell
        for kind in (negative & inside, negative & ~inside):
            _exchange(first, second, label, document, kind, room, rng)
    return Pool(stream, word_starts, first, second, label, document)


def _pieces(texts: Texts, room: int) -> tuple[Ints, Ints]:
    """Token offsets [P+1] of sentences, those longer than `room` cut into equal parts, and the document of each piece [P]."""
    lengths = np.diff(texts.sentences)
    parts = np.maximum(1, -(-lengths // room))
    sentence = np.repeat(np.arange(len(lengths)), parts)
    nth = ranges(np.zeros(len(parts), np.int64), parts)
    begins = texts.sentences[sentence] + nth * lengths[sentence] // parts[sentence]
    of_document = np.repeat(np.arange(len(texts.documents) - 1), np.diff(texts.documents))
    return np.r_[begins, texts.sentences[-1]], of_document[sentence]


def _chunks(ends: Ints, of_document: Ints, room: int, short_rate: float, rng: np.random.Generator) -> Ints:
    """[E, 2] runs of whole pieces of one document that fit; a `short_rate` share aims at a random shorter length."""
    pieces = len(of_document)
    last = np.searchsorted(of_document, of_document, side="right")  # where the document of each piece ends
    full = np.minimum(np.searchsorted(ends, ends[:-1] + room, side="right") - 1, last).tolist()
    short, shorter = rng.random(pieces) < short_rate, rng.integers(2, room + 1, pieces)
    targets = np.where(short, shorter, room).tolist()
    place, document_end = ends.tolist(), last.tolist()
    begins: list[int] = []
    begin = 0
    while begin < pieces:
        target = targets[len(begins)]
        begins.append(begin)
        if target == room:
            begin = full[begin]
        else:
            fits = bisect_right(place, place[begin] + target, begin + 1, document_end[begin] + 1) - 1
            begin = max(fits, begin + 1)
    edges = np.array([*begins, pieces])
    return np.stack([edges[:-1], edges[1:]], 1)


def _middles(ends: Ints, chunks: Ints, word_starts: NDArray[np.bool_], rng: np.random.Generator) -> Ints:
    """Where each chunk is parted: at a random border between its pieces, or, with one piece, at the word nearest its middle."""
    pieces = chunks[:, 1] - chunks[:, 0]
    border = chunks[:, 0] + 1 + (rng.random(len(chunks)) * (pieces - 1)).astype(np.int64)
    middle = ends[np.minimum(border, chunks[:, 1])]
    words = np.flatnonzero(word_starts)
    alone = np.flatnonzero(pieces == 1)
    begin, end = ends[chunks[alone, 0]], ends[chunks[alone, 1]]
    nearest = words[np.minimum(np.searchsorted(words, (begin + end) // 2), len(words) - 1)] if len(words) else begin
    inside = (nearest > begin) & (nearest < end)
    middle[alone] = np.where(inside, nearest, np.where(end - begin > 1, (begin + end) // 2, end))
    return middle


def _exchange(
    first: Ints,
    second: Ints,
    label: Ints,
    document: Ints,
    negative: NDArray[np.bool_],
    room: int,
    rng: np.random.Generator,
) -> None:
    """Gives each negative the second part of another one, from another document; in place.

    Every text stays in use once. Going by the first part's length makes the exchanged parts fit: the partner's first part is
    about as long, so what follows it fits into the room; the few tokens by which one may not are cut off.
    """
    size = first[:, 1] - first[:, 0]
    chosen = np.flatnonzero(negative)
    chosen = chosen[np.lexsort((rng.random(len(chosen)), size[chosen]))]
    ring = chosen[_strangers(document[chosen].tolist())]
    if len(ring) < 2:
        return
    second[ring] = second[np.roll(ring, -1)]
    label[ring] = 1
    second[ring, 1] = np.minimum(second[ring, 1], second[ring, 0] + room - size[ring])


def _strangers(documents: list[int]) -> list[int]:
    """An order of places, as near to the given one as can be, in which no two neighbours are of one document.

    The last and the first count as neighbours too. Where one document has more than half, some of its places are left out:
    they stay true pairs.
    """
    ring: list[int] = []
    skipped: deque[int] = deque()  # passed over so far; all of one document, that of the ring's last place
    for place, number in enumerate(documents):
        if ring and documents[ring[-1]] == number:
            skipped.append(place)
            continue
        ring.append(place)
        if skipped:
            ring.append(skipped.popleft())
    while len(ring) > 1 and documents[ring[0]] == documents[ring[-1]]:
        ring.pop()
    return ring


# --- one sequence ----------------------------------------------------------------------------------------------------
def _with_separators(texts: Texts, vocabulary: Vocabulary) -> tuple[Ints, NDArray[np.bool_], Ints, Ints]:
    """The stream with a [SEP] before every document but the first; sentence offsets and document offsets in it."""
    stream, word_starts = _stream(texts, vocabulary)
    begins = texts.sentences[texts.documents[1:-1]]
    stream = np.insert(stream, begins + 2, vocabulary.require("sep"))
    word_starts = np.insert(word_starts, begins + 2, True)
    shift = np.searchsorted(texts.documents[1:-1], np.arange(len(texts.sentences)), side="right")
    shift[-1] = len(begins)  # the end of the last sentence is no document's begin
    sentences = texts.sentences + 2 + shift
    return stream, word_starts, sentences, sentences[texts.documents[:-1]]


def _single(
    stream: Ints, word_starts: NDArray[np.bool_], slices: Ints, document_begins: Ints, frame: tuple[int, int]
) -> Pool:
    document = np.maximum(np.searchsorted(document_begins, slices[:, 0], side="right") - 1, 0)
    none = np.zeros_like(slices)
    return Pool(stream, word_starts, slices, none, np.full(len(slices), -1), document, frame)


def _full_sentences(texts: Texts, how: FullSentences, vocabulary: Vocabulary) -> Pool:
    stream, word_starts, sentences, documents = _with_separators(texts, vocabulary)
    frame = _frame(vocabulary)
    room = how.max_length - sum(frame)
    begins, ends = sentences[:-1], sentences[1:].copy()
    ends[texts.documents[1:-1] - 1] -= 1  # the end of a document leaves out the [SEP] that follows it
    fits = np.searchsorted(ends, begins + room, side="right")  # the first sentence that does not
    firsts, after, at = [], np.maximum(fits, np.arange(1, len(fits) + 1)).tolist(), 0
    while at < len(after):
        firsts.append(at)
        at = after[at]
    edge = np.array([*firsts, len(after)])
    begin, size = begins[edge[:-1]], ends[edge[1:] - 1] - begins[edge[:-1]]
    parts = -(-size // room)  # more than one: a sentence longer than the room, in equal parts
    example, nth = np.repeat(np.arange(len(parts)), parts), ranges(np.zeros(len(parts), np.int64), parts)
    edges = (begin[example] + k * size[example] // parts[example] for k in (nth, nth + 1))
    return _single(stream, word_starts, np.stack([*edges], 1), documents, frame)


def _blocks(texts: Texts, how: Blocks, vocabulary: Vocabulary) -> Pool:
    stream, word_starts, _, documents = _with_separators(texts, vocabulary)
    frame = _frame(vocabulary) if how.frame else _NO_FRAME
    edges = np.r_[np.arange(2, len(stream), how.max_length - sum(frame)), len(stream)]
    return _single(stream, word_starts, np.stack([edges[:-1], edges[1:]], 1), documents, frame)


def _documents(texts: Texts, how: Documents, vocabulary: Vocabulary) -> Pool:
    stream, word_starts = _stream(texts, vocabulary)
    frame = _frame(vocabulary)
    room = how.max_length - sum(frame)
    edges = texts.sentences[texts.documents] + 2
    lengths = np.diff(edges)
    parts = -(-lengths // room)
    document = np.repeat(np.arange(len(lengths)), parts)
    begin = edges[document] + ranges(np.zeros(len(parts), np.int64), parts) * room
    slices = np.stack([begin, np.minimum(begin + room, edges[document + 1])], 1)
    return _single(stream, word_starts, slices, edges[:-1], frame)
