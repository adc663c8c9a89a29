"""How good is a tagger? Spans out of tags, and their precision, recall and F1; for plain tags accuracy and F1 of each.

A span counts as found where type, begin and end are all right (CoNLL-2003; Tjong Kim Sang and De Meulder 2003, section 2.3).
What a span is where tags break the rules (I-X after O, a B-X never closed by E-X) differs between two modes, named as in
seqeval, with which both agree:

- strict: only spans that follow the scheme: bio (IOB2) B I*, bioes (IOBES) B I* E or S. All else is no span.
- default: lenient, as conlleval: a tag that cannot go on with the span before it begins a new one.

What the letters of each scheme mean: `labelled.schemes`. No spans at all, neither true nor predicted, is defined: F1 0.

Legend: T tags of all sequences end to end, with an O behind each sequence; M spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.config.tasks import SpanScheme
from unmask.errors import UnmaskError
from unmask.labelled.schemes import going_on, part_of
from unmask.measure.classification import Ints, LabelCounts, accuracy, label_counts

Mode = Literal["strict", "default"]
Tags = Sequence[Sequence[str]]  # of each sequence, each word

_ROLES = ("O", "B", "I", "E", "S")
_O, _B, _I, _E, _S = range(5)


class Span(NamedTuple):
    """Words `begin` to `end` (exclusive) of a sequence are one `type`."""

    type: str
    begin: int
    end: int


class IllegalTag(NamedTuple):
    """A tag that breaks the scheme where it stands; sequence and word are counted from 0."""

    sequence: int
    word: int
    tag: str


@dataclass(frozen=True)
class SpanScores:
    """Scores of predicted spans. `counts` has a row for each type with a span; `labels` there are places in `types`,
    which has every type that any tag names. Primary: `counts.micro().f1`."""

    mode: Mode
    scheme: SpanScheme
    types: tuple[str, ...]
    counts: LabelCounts
    illegal_truth: list[IllegalTag]
    illegal_predicted: int

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores has to know, one sentence each."""
        found = [f"spans of the scheme {self.scheme}, read in seqeval's mode {self.mode}"]
        if not len(self.counts.labels):
            found.append("no spans, neither true nor predicted: F1 is 0 by definition")
        if self.illegal_truth:
            first = self.illegal_truth[0]
            place = f"sequence {first.sequence + 1}, word {first.word + 1}"
            found.append(f"{len(self.illegal_truth)} true tags break the scheme, the first {first.tag} at {place}")
        if self.illegal_predicted:
            found.append(f"{self.illegal_predicted} predicted tags break the scheme")
        return found


def span_scores(truth: Tags, predicted: Tags, *, scheme: SpanScheme = "bio", mode: Mode = "strict") -> SpanScores:
    """Scores of the spans in `predicted`, which has as many tags in each sequence as `truth`.

    Raises UnmaskError for a tag that is none of the scheme, and for sequences of different lengths.
    """
    _check_lengths(truth, predicted)
    alphabet = _Alphabet.of(chain(truth, predicted), scheme)
    true_tags, predicted_tags = alphabet.read(truth), alphabet.read(predicted)
    true, guessed = true_tags.spans(scheme, mode), predicted_tags.spans(scheme, mode)
    _, at, there = np.intersect1d(true.begin_M, guessed.begin_M, assume_unique=True, return_indices=True)
    right = (true.end_M[at] == guessed.end_M[there]) & (true.type_M[at] == guessed.type_M[there])
    found = (true.type_M[at[right]], guessed.type_M, true.type_M)
    counts = [np.bincount(kinds, minlength=len(alphabet.types)) for kinds in found]
    rows = np.flatnonzero(counts[1] + counts[2])
    return SpanScores(
        mode,
        scheme,
        alphabet.types,
        LabelCounts(rows, *(kind[rows] for kind in counts)),
        _places(truth, true_tags.illegal(scheme)),
        len(predicted_tags.illegal(scheme)),
    )


def spans(tags: Tags, *, scheme: SpanScheme = "bio", mode: Mode = "strict") -> list[list[Span]]:
    """The spans of each sequence, in order."""
    alphabet = _Alphabet.of(tags, scheme)
    found = alphabet.read(tags).spans(scheme, mode)
    starts = _starts(tags)
    sequence_M = np.searchsorted(starts, found.begin_M, side="right") - 1
    begins, ends = found.begin_M - starts[sequence_M], found.end_M - starts[sequence_M]
    rows: list[list[Span]] = [[] for _ in tags]
    for row, kind, begin, end in zip(*(a.tolist() for a in (sequence_M, found.type_M, begins, ends)), strict=True):
        rows[row].append(Span(alphabet.types[kind], begin, end))
    return rows


def illegal_tags(tags: Tags, *, scheme: SpanScheme = "bio") -> list[IllegalTag]:
    """The tags that break the scheme where they stand: an I or E that goes on with nothing, and a B or I that nothing
    goes on with though the scheme wants it."""
    return _places(tags, _Alphabet.of(tags, scheme).read(tags).illegal(scheme))


@dataclass(frozen=True)
class TagScores:
    """Scores of plain tags; `labels` of `counts` are places in `tags`. Primary: `accuracy`."""

    accuracy: float
    tags: tuple[str, ...]
    counts: LabelCounts


def tag_scores(truth: Tags, predicted: Tags) -> TagScores:
    """Scores of tags that stand for themselves, such as parts of speech: each word is an example with one label."""
    _check_lengths(truth, predicted)
    names = sorted(set(chain.from_iterable(truth)) | set(chain.from_iterable(predicted)))
    number = {name: i for i, name in enumerate(names)}
    true, guessed = (
        np.fromiter(map(number.__getitem__, chain.from_iterable(tags)), np.int64) for tags in (truth, predicted)
    )
    return TagScores(accuracy(true, guessed), tuple(names), label_counts(true, guessed, len(names)))


class _Found(NamedTuple):
    """Spans as places in the tags of all sequences."""

    begin_M: Ints
    end_M: Ints
    type_M: Ints


@dataclass(frozen=True)
class _Read:
    """Tags as numbers: roles, and types (-1 for O)."""

    role_T: NDArray[np.int8]
    type_T: Ints

    def segments(self) -> _Found:
        """Tags that go on with each other: I or E behind B or I of the same type. Both modes cut here."""
        role, kind = self.role_T, self.type_T
        onward = (role[1:] == _I) | (role[1:] == _E)
        open_before = (role[:-1] == _B) | (role[:-1] == _I)
        joined = np.zeros(len(role) + 1, bool)
        joined[1:-1] = onward & open_before & (kind[1:] == kind[:-1])
        inside = role != _O
        begins = np.flatnonzero(inside & ~joined[:-1])
        return _Found(begins, np.flatnonzero(inside & ~joined[1:]) + 1, kind[begins])

    def spans(self, scheme: SpanScheme, mode: Mode) -> _Found:
        found = self.segments()
        if mode == "default":
            return found
        first = self.role_T[found.begin_M]
        kept = ((first == _B) | (first == _S)) & ~self._unfinished(found, scheme)
        return _Found(*(part[kept] for part in found))

    def illegal(self, scheme: SpanScheme) -> Ints:
        found = self.segments()
        first = self.role_T[found.begin_M]
        headless = found.begin_M[(first == _I) | (first == _E)]
        return np.union1d(headless, found.end_M[self._unfinished(found, scheme)] - 1)

    def _unfinished(self, found: _Found, scheme: SpanScheme) -> NDArray[np.bool_]:
        """[M] whether a span ends where the scheme wants it to go on."""
        return np.isin(self.role_T[found.end_M - 1], [_ROLES.index(role) for role in going_on(scheme)])


@dataclass(frozen=True)
class _Alphabet:
    """Every tag there is, taken apart once, so that reading 600,000 words is one look-up each."""

    number: dict[str, int]
    roles: NDArray[np.int8]
    kinds: Ints
    types: tuple[str, ...]

    @classmethod
    def of(cls, tags: Iterable[Sequence[str]], scheme: SpanScheme) -> _Alphabet:
        names = sorted(set(chain.from_iterable(tags)) | {"O"})
        parts = [_split(name, scheme) for name in names]
        types = sorted({kind for role, kind in parts if role != _O})
        place = {kind: i for i, kind in enumerate(types)}
        kinds = [-1 if role == _O else place[kind] for role, kind in parts]
        roles = np.array([role for role, _ in parts], np.int8)
        return cls({name: i for i, name in enumerate(names)}, roles, np.array(kinds, np.int64), tuple(types))

    def read(self, tags: Tags) -> _Read:
        # The O behind each sequence keeps a span from running into the next one.
        names = chain.from_iterable(chain(row, ("O",)) for row in tags)
        at = np.fromiter(map(self.number.__getitem__, names), np.int64)
        return _Read(self.roles[at], self.kinds[at])


def _split(tag: str, scheme: SpanScheme) -> tuple[int, str]:
    """Role and type; the type of a letter alone is "_", as in seqeval."""
    role, kind = part_of(tag, scheme)
    return _ROLES.index(role), "" if role == "O" else kind or "_"


def _starts(tags: Tags) -> Ints:
    """Where each sequence begins among the tags of all, each followed by an O."""
    lengths = np.fromiter((len(row) + 1 for row in tags), np.int64)
    return np.cumsum(lengths) - lengths


def _places(tags: Tags, at: Ints) -> list[IllegalTag]:
    starts = _starts(tags)
    rows = np.searchsorted(starts, at, side="right") - 1
    return [
        IllegalTag(row, word, tags[row][word])
        for row, word in zip(rows.tolist(), (at - starts[rows]).tolist(), strict=True)
    ]


def _check_lengths(truth: Tags, predicted: Tags) -> None:
    if len(truth) != len(predicted):
        raise UnmaskError(f"{len(predicted)} predicted sequences for {len(truth)}", do="predict the same file")
    for row, (true, guessed) in enumerate(zip(truth, predicted, strict=True)):
        if len(true) != len(guessed):
            raise UnmaskError(f"{len(guessed)} predicted tags for {len(true)} words", where=f"sequence {row + 1}")
