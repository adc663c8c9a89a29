"""Words to tags: features, answers, scores.

Legend: W words of all records end to end, N windows, E records, K tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import Layout
from unmask.config import Tagging
from unmask.errors import UnmaskError
from unmask.labelled.records import Place, TaggedExample
from unmask.measure.spans import Span, span_scores, spans, tag_scores
from unmask.nn.crf import CRF, allowed_transitions
from unmask.objectives.tag import UNKNOWN
from unmask.text.aligned import AlignedEncoder, Words
from unmask.text.running_text import Parting, text_words
from unmask.text.sequences import Labels, Sequences

OVERLAP = 32  # words that neighbouring windows of a long record share: half of them give context on each side
TOGETHER = 32  # long records whose paths are found at once


@dataclass(frozen=True)
class Entity:
    """Words `first` to `last` (exclusive) are one `label`; `begin` and `end` count characters (code points) of the record's
    text, or of its words joined by single spaces where it has none. `confidence` is that of the least sure word."""

    label: str
    text: str
    begin: int
    end: int
    first: int
    last: int
    confidence: float


@dataclass(frozen=True)
class Tagged:
    """What is said about a record: a tag for each word, how probable each is, and the spans that the tags make (none in a
    plain scheme)."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    confidence: tuple[float, ...]
    spans: tuple[Entity, ...]


def from_text(
    texts: Sequence[str], places: Sequence[Place] | None = None, parting: Parting = "runs"
) -> list[TaggedExample]:
    """Running text as records of words to be tagged, which know where they stand in it."""
    places = [Place("", 0, number + 1) for number in range(len(texts))] if places is None else places
    found = []
    for text, place in zip(texts, places, strict=True):
        offsets = tuple(text_words(text, parting))
        found.append(TaggedExample(tuple(text[a:b] for a, b in offsets), None, place, text, offsets))
    return found


def sequences(
    examples: Sequence[TaggedExample], encoder: AlignedEncoder, task: Tagging, *, overlap: int = OVERLAP
) -> tuple[Sequences, int]:
    """Windows of whole words, and how many words are longer than a window and lost their end.

    A word has its label in the window that shows most of what is around it, and in no other: so it is learned from once and
    answered once, in the order of the records. A record without words has no window. UnmaskError, with a CRF, for tags that
    break the scheme: no path would lead through them.
    """
    words = encoder.words([example.words for example in examples], overlap)
    value_W = _values(examples, task)
    if task.decoder != "linear":
        _require_legal(examples, value_W, task)
    window_M = np.repeat(np.arange(len(words.row_N)), np.diff(words.word_starts))[words.best_M]
    assert len(window_M) == len(value_W), "every word has one best window"
    counts_N = np.bincount(window_M, minlength=len(words.row_N))
    labels = {
        "tag": Labels(np.r_[0, counts_N.cumsum()], words.place_M[words.best_M], value_W),
        "tag_edges": Labels.one_each(_edges(words, window_M, _starts(examples))),
    }
    # Each window is dealt on its own: all of a book at once would not fit into memory.
    return replace(words.sequences(labels), unit_N=np.arange(len(words.row_N))), words.cut


def _starts(examples: Sequence[TaggedExample]) -> NDArray[np.int64]:
    """[E+1] which of the W words belong to each record."""
    return np.cumsum([0, *(len(example.words) for example in examples)])


def _values(examples: Sequence[TaggedExample], task: Tagging) -> NDArray[np.int64]:
    ids = {label: at for at, label in enumerate(task.labels)}
    rows = ([UNKNOWN] * len(e.words) if e.tags is None else [ids[tag] for tag in e.tags] for e in examples)
    return np.array([value for row in rows for value in row], np.int64)


def _edges(words: Words, window_M: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[N, 2] whether the words that have their label in a window begin and end their record."""
    number_M, row_M = words.word_M[words.best_M], words.row_N[window_M]
    edges_N2 = np.zeros((len(words.row_N), 2), bool)
    edges_N2[window_M[number_M == 0], 0] = True
    edges_N2[window_M[number_M + 1 == np.diff(starts)[row_M]], 1] = True
    return edges_N2


def _require_legal(examples: Sequence[TaggedExample], value_W: NDArray[np.int64], task: Tagging) -> None:
    known = [example.tags is not None for example in examples]
    starts = np.cumsum([0, *(len(e.words) for e, k in zip(examples, known, strict=True) if k)])
    allowed = allowed_transitions(task.labels, task.scheme)
    broken_W = allowed.broken(torch.from_numpy(value_W[value_W != UNKNOWN]), torch.from_numpy(starts)).numpy()
    if not broken_W.any():
        return
    at = int(broken_W.argmax())
    row = int(np.searchsorted(starts, at, side="right")) - 1
    example, word = [e for e, k in zip(examples, known, strict=True) if k][row], at - int(starts[row])
    tag = "" if example.tags is None else example.tags[word]
    raise UnmaskError(
        f"the tag {tag} of word {word + 1} ({example.words[word]!r}) breaks the scheme {task.scheme}, and a CRF knows no path"
        f" through it; {int(broken_W.sum()):,} such tags in all",
        where=str(example.place),
        do="repair the tags, name the scheme that they have, or take decoder=linear",
    )


def decode(
    outputs: Mapping[str, NDArray[Any]],
    sequences: Sequences,
    examples: Sequence[TaggedExample],
    task: Tagging,
    crf: CRF | None = None,
) -> list[Tagged]:
    """Answers in the order of the records, from what `TagObjective.predict` gave for each place of the label `tag`.

    With the objective's `crf`, the best path of a record of several windows is found once more over all its words: that an
    entity lies across two windows then makes no difference.
    """
    if not len(sequences):
        return [Tagged((), (), (), ()) for _ in examples]
    tags_W, confidence_W = outputs["tags"].copy(), outputs["confidence"].copy()
    if crf is not None:
        windows_E = np.bincount(sequences.example_N, minlength=len(examples))
        _across_windows(outputs["scores"], _starts(examples), np.flatnonzero(windows_E > 1), crf, tags_W, confidence_W)
    starts = _starts(examples).tolist()
    names = [task.labels[tag] for tag in tags_W.tolist()]
    tags = [names[begin:end] for begin, end in zip(starts, starts[1:], strict=False)]
    sure = [confidence_W[begin:end].tolist() for begin, end in zip(starts, starts[1:], strict=False)]
    found = [[] for _ in tags] if task.scheme == "plain" else spans(tags, scheme=task.scheme, mode="default")
    rows = zip(examples, tags, sure, found, strict=True)
    return [Tagged(e.words, tuple(t), tuple(c), _entities(e, c, s)) for e, t, c, s in rows]


def _across_windows(
    scores_WK: NDArray[Any],
    starts: NDArray[np.int64],
    chosen: NDArray[np.int64],
    crf: CRF,
    tags_W: NDArray[Any],
    confidence_W: NDArray[Any],
) -> None:
    """Writes the best paths of the chosen records, and how probable each word's tag is, into `tags_W` and `confidence_W`."""
    chosen = chosen[np.argsort(np.diff(starts)[chosen], kind="stable")]
    for first in range(0, len(chosen), TOGETHER):
        rows = [np.arange(starts[row], starts[row + 1]) for row in chosen[first : first + TOGETHER]]
        where = np.concatenate(rows)
        layout = Layout.of(torch.tensor([0, *map(len, rows)]).cumsum(0).int()).to(crf.start.device)
        scores = torch.from_numpy(scores_WK[where]).to(crf.start.device)
        best = crf.best(scores, layout)
        tags_W[where] = best.cpu().numpy()
        confidence_W[where] = crf.marginals(scores, layout).gather(1, best[:, None]).squeeze(1).cpu().numpy()


def _entities(example: TaggedExample, confidence: Sequence[float], found: Sequence[Span]) -> tuple[Entity, ...]:
    text, offsets = example.text, example.offsets
    if text is None or offsets is None:
        text = " ".join(example.words)
        begins = [0, *accumulate(len(word) + 1 for word in example.words)]
        offsets = tuple((begin, begin + len(word)) for begin, word in zip(begins, example.words, strict=False))
    entities = []
    for span in found:
        begin, end = offsets[span.begin][0], offsets[span.end - 1][1]
        least = min(confidence[span.begin : span.end])
        entities.append(Entity(span.type, text[begin:end], begin, end, span.begin, span.end, least))
    return tuple(entities)


def score(predictions: Sequence[Tagged], examples: Sequence[TaggedExample], task: Tagging) -> dict[str, float]:
    """Metrics, the primary one first: F1 of the spans in strict mode, and beside it the lenient (default) one; in a plain
    scheme accuracy. Then F1 of each type or tag."""
    truth, said = [example.tags or () for example in examples], [prediction.tags for prediction in predictions]
    if task.scheme == "plain":
        found = tag_scores(truth, said)
        names = [found.tags[at] for at in found.counts.labels]
        single = {"accuracy": found.accuracy, "macro_f1": found.counts.macro().f1}
        return single | {f"f1 {name}": float(f1) for name, f1 in zip(names, found.counts.f1_L, strict=True)}
    strict, lenient = (span_scores(truth, said, scheme=task.scheme, mode=mode) for mode in ("strict", "default"))
    micro = strict.counts.micro()
    types = [strict.types[at] for at in strict.counts.labels]
    return {
        "f1": micro.f1,
        "precision": micro.precision,
        "recall": micro.recall,
        "f1_default_mode": lenient.counts.micro().f1,
        "illegal_tags": float(strict.illegal_predicted),
        **{f"f1 {kind}": float(f1) for kind, f1 in zip(types, strict.counts.f1_L, strict=True)},
    }


def label_rows(
    predictions: Sequence[Tagged], examples: Sequence[TaggedExample], task: Tagging
) -> list[dict[str, str | float]]:
    """The figures of each type of span, in strict mode, or of each tag of a plain scheme: a row each, for a report."""
    truth, said = [example.tags or () for example in examples], [prediction.tags for prediction in predictions]
    if task.scheme == "plain":
        plain = tag_scores(truth, said)
        names, counts = plain.tags, plain.counts
    else:
        strict = span_scores(truth, said, scheme=task.scheme, mode="strict")
        names, counts = strict.types, strict.counts
    columns = (counts.labels, counts.precision_L, counts.recall_L, counts.f1_L, counts.support_L)
    return [
        {"label": names[at], "precision": p, "recall": r, "f1": f1, "support": support}
        for at, p, r, f1, support in zip(*(column.tolist() for column in columns), strict=True)
    ]
