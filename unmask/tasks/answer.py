"""Extractive question answering: windows of a context in, pieces of the user's own text out.

Legend: T tokens end to end, N windows, M context tokens window by window, E examples, K tokens an answer may have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from unmask.config import Answering
from unmask.errors import UnmaskError
from unmask.labelled.records import QuestionExample
from unmask.measure.squad import Language, answer_scores, best_no_answer_threshold, match
from unmask.text.aligned import AlignedEncoder, Windows
from unmask.text.sequences import Labels, Sequences

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)
FAR = 1 << 40  # farther than any token


class Span(NamedTuple):
    """A piece of the context that may be the answer: `text == context[begin:end]`, in characters (code points)."""

    text: str
    begin: int
    end: int
    score: float
    """Its probability among all pieces that are short enough, and no answer where that is allowed."""


@dataclass(frozen=True)
class Answered:
    """What is said to a question. Empty text, from 0 to 0: there is no answer in the context."""

    id: str
    text: str
    begin: int
    end: int
    score: float
    no_answer_score: float
    """How much better no answer is than the best one, in logits; above the threshold it is what is said."""
    n_best: tuple[Span, ...]
    """Answers from the best down, each piece of the context once; also where no answer is said."""


def sequences(
    examples: Sequence[QuestionExample], encoder: AlignedEncoder, task: Answering
) -> tuple[Sequences, Windows]:
    """Questions with their contexts in windows; labelled where all examples have answers, by the first of each.

    A window that does not hold the whole answer is labelled with its first token ([CLS]), as in BERT's code for SQuAD.
    """
    windows = encoder.windows([e.question for e in examples], [e.context for e in examples], task.stride)
    if any(e.answers is None for e in examples):
        return windows.sequences(), windows
    places = zip(("start", "end"), _gold_places(examples, windows), strict=True)
    one_each = np.arange(len(windows.starts))
    labels = {side: Labels(one_each, place_N, np.zeros_like(place_N)) for side, place_N in places}
    return windows.sequences(labels), windows


def decode(
    outputs: Mapping[str, NDArray[np.float32]],
    windows: Windows,
    examples: Sequence[QuestionExample],
    task: Answering,
    *,
    n_best: int = 20,
    threshold: float = 0.0,
) -> list[Answered]:
    """Answers from the logits `start` and `end` [T] of all windows, in the order of `windows`.

    An answer lies inside the context, has at most `max_answer_tokens`, and is read in the one window that shows most of what
    is around it. With `task.impossible` no answer is said where `no_answer_score` is above `threshold`, and where nothing in
    the context can be one; without, only there.
    """
    assert n_best > 0
    where_M = windows.place_M + np.repeat(windows.starts[:-1], np.diff(windows.token_starts))
    null_N = _doubles(outputs["start"], windows.starts[:-1]) + _doubles(outputs["end"], windows.starts[:-1])
    start_M, end_M = (_doubles(outputs[side], where_M) for side in ("start", "end"))
    shown_N2, edges = _shown(windows), np.searchsorted(windows.example_N, np.arange(len(examples) + 1))
    answered = []
    for example, (first, after) in zip(examples, pairwise(edges), strict=True):
        tokens = slice(windows.token_starts[first], windows.token_starts[after])
        best_MK = _best_shown(windows.token_M[tokens], shown_N2[first:after], task.max_answer_tokens)
        spans = _spans(start_M[tokens], end_M[tokens], windows.offsets_M2[tokens], best_MK)
        # a window rightly says that it has no answer if another one has it (BERT, its code for SQuAD 2.0)
        null = float(null_N[first:after].min())
        answered.append(_answered(example, spans, null, n_best, threshold if task.impossible else None))
    return answered


def best_threshold(answered: Sequence[Answered], examples: Sequence[QuestionExample], language: Language) -> float:
    """The threshold for `decode` that gives these examples the highest F1; what was said to them does not matter."""
    truths = _truths(examples)
    guesses = [a.n_best[0].text if a.n_best else "" for a in answered]
    pairs = zip(guesses, truths, strict=True)
    f1_E = np.array([match(guess, truth, impossible=True, language=language).f1 for guess, truth in pairs])
    has_answer_E = np.array([bool(truth) for truth in truths], np.bool_)
    return best_no_answer_threshold(f1_E, [a.no_answer_score for a in answered], has_answer_E, guesses).threshold


def score(answered: Sequence[Answered], examples: Sequence[QuestionExample], language: Language) -> dict[str, float]:
    """`f1`, `exact` and more of what was said, as SQuAD defines them: version 2.0 if there are questions without answers."""
    truths = _truths(examples)
    said = [a.text for a in answered]
    scores = answer_scores(truths, said, impossible=not all(truths), language=language)
    return {"f1": scores.pop("f1"), **scores}


def _truths(examples: Sequence[QuestionExample]) -> list[list[str]]:
    for example in examples:
        if example.answers is None:
            raise UnmaskError(
                "a question without its answers can't be scored",
                where=str(example.place),
                do="give answers, [] for none",
            )
    return [[answer.text for answer in example.answers or ()] for example in examples]


def _gold_places(examples: Sequence[QuestionExample], windows: Windows) -> tuple[Ints, Ints]:
    """[N] first and last token of the answer: those that share a character with it, or 0 for both."""
    gold_E2 = np.array([_gold(e) for e in examples], np.int64).reshape(-1, 2)
    size_N = np.diff(windows.token_starts)
    example_M = np.repeat(windows.example_N, size_N)
    shared = np.maximum(windows.offsets_M2[:, 0], gold_E2[example_M, 0])
    shared_M = shared < np.minimum(windows.offsets_M2[:, 1], gold_E2[example_M, 1])
    first_E, last_E = np.full(len(examples), FAR), np.full(len(examples), -FAR)
    np.minimum.at(first_E, example_M[shared_M], windows.token_M[shared_M])
    np.maximum.at(last_E, example_M[shared_M], windows.token_M[shared_M])
    shown_N2 = _shown(windows)
    first_N, last_N = first_E[windows.example_N], last_E[windows.example_N]
    whole_N = (shown_N2[:, 0] <= first_N) & (first_N <= last_N) & (last_N <= shown_N2[:, 1])
    shift_N, place_M = windows.token_starts[:-1] - shown_N2[:, 0], np.r_[windows.place_M, 0]
    places = (place_M[np.where(whole_N, edge_N + shift_N, 0)] for edge_N in (first_N, last_N))
    first_N, last_N = (np.where(whole_N, place_N, 0) for place_N in places)
    return first_N, last_N


def _gold(example: QuestionExample) -> tuple[int, int]:
    if not example.answers:
        return 0, 0
    first = example.answers[0]
    return first.start, first.start + len(first.text)


def _shown(windows: Windows) -> Ints:
    """[N, 2] numbers of the first and the last context token that a window holds; the last is before the first if none."""
    first_N = np.r_[windows.token_M, 0][windows.token_starts[:-1]]
    return np.stack([first_N, first_N + np.diff(windows.token_starts) - 1], 1)


class _Spans(NamedTuple):
    """Legend: S spans that may be answers, some of them the same piece of the context."""

    score_S: Floats
    begin_S: Ints
    end_S: Ints


def _doubles(logits_T: NDArray[np.float32], where: Ints) -> Floats:
    return logits_T[where].astype(np.float64)


def _best_shown(token_M: Ints, shown_N2: Ints, longest: int) -> NDArray[np.bool_]:
    """[M, K] Is the answer of K + 1 tokens from this one on best read in this window?

    The window that shows most context on the poorer side, the first of two (BERT's code for SQuAD goes by the first token
    alone, and so loses answers that its best window cuts off). From window to window there is less on the left and more on
    the right: one that beats both neighbours beats all.
    """
    last_MK = token_M[:, None] + np.arange(longest)
    beside = np.array([[FAR, -FAR]])  # shows nothing
    shown_N2 = np.concatenate([beside, shown_N2, beside])
    size_N = shown_N2[:, 1] - shown_N2[:, 0] + 1
    window_M = np.repeat(np.arange(len(size_N)), np.maximum(size_N, 0))
    before, here, behind = (
        np.minimum(token_M[:, None] - shown_N2[window_M + step, :1], shown_N2[window_M + step, 1:] - last_MK)
        for step in (-1, 0, 1)
    )
    return (here >= 0) & (here > before) & (here >= behind)


def _spans(start_M: Floats, end_M: Floats, offsets_M2: Ints, best_MK: NDArray[np.bool_]) -> _Spans:
    """All that may be answers; none begins or ends at a token of white space alone."""
    begin_M, stop_M = offsets_M2.T
    solid_M, longest = begin_M < stop_M, best_MK.shape[1]
    allowed_MK = best_MK & solid_M[:, None] & _following(solid_M, longest)
    first_S = np.nonzero(allowed_MK)[0]
    score_S = start_M[first_S] + _following(end_M, longest)[allowed_MK]
    return _Spans(score_S, begin_M[first_S], _following(stop_M, longest)[allowed_MK])


def _following(x_M: NDArray[Number], count: int) -> NDArray[Number]:
    """[M, K] each with those after it, zeros behind the last."""
    return sliding_window_view(np.pad(x_M, (0, count)), count)[:-1]


def _answered(example: QuestionExample, spans: _Spans, null: float, n_best: int, threshold: float | None) -> Answered:
    """No threshold: there is an answer in every context that has a token."""
    if not len(spans.score_S):
        return Answered(example.id, "", 0, 0, float(threshold is not None), null, ())
    top = float(spans.score_S.max())
    everything = top + float(np.log(np.exp(spans.score_S - top).sum()))
    if threshold is not None:
        everything = float(np.logaddexp(everything, null))
    chosen = _distinct_best(spans, n_best)
    probabilities = np.exp(spans.score_S[chosen] - everything).tolist()
    places = zip(spans.begin_S[chosen].tolist(), spans.end_S[chosen].tolist(), probabilities, strict=True)
    best = tuple(Span(example.context[begin:end], begin, end, share) for begin, end, share in places)
    if threshold is not None and null - top > threshold:
        return Answered(example.id, "", 0, 0, math.exp(null - everything), null - top, best)
    return Answered(example.id, *best[0], null - top, best)


def _distinct_best(spans: _Spans, count: int) -> Ints:
    """Numbers of the best spans, each piece of the context once; of equally good ones the first, then the shortest.

    Pieces come up again where a character is several tokens, so more are looked at until enough are different.
    """
    key_S = spans.begin_S * (int(spans.end_S.max()) + 1) + spans.end_S
    looked, found = 0, np.zeros(0, np.int64)
    while len(found) < count and looked < len(key_S):
        looked = min(max(2 * count, 4 * looked), len(key_S))
        chosen = np.flatnonzero(spans.score_S >= np.partition(spans.score_S, -looked)[-looked])
        order = chosen[np.lexsort((key_S[chosen], -spans.score_S[chosen]))]
        found = order[np.sort(np.unique(key_S[order], return_index=True)[1])]
    return found[:count]
