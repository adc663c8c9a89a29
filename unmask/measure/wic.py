"""Word in context: is a word meant in the same way in two sentences? Answered by the cosine of its two vectors alone.

The task of Pilehvar and Camacho-Collados (2019), and their way to answer it without training (section 4.1): one threshold for
the cosine, chosen on pairs that are not those of the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.errors import UnmaskError
from unmask.labelled.records import Place
from unmask.labelled.rows import read_table
from unmask.measure.separation import unit
from unmask.measure.uses import Use, name_of
from unmask.measure.word_states import Device, word_states
from unmask.progress import Progress, quiet

_SAME = {"same": True, "different": False, "true": True, "false": False, "t": True, "f": False, "1": True, "0": False}


class Pair(NamedTuple):
    """A word in two sentences; `same` says whether it is meant alike."""

    one: Use
    other: Use
    same: bool


@dataclass(frozen=True)
class WicLayer:
    """A layer's threshold (a cosine from it on means the same), and its accuracy where that was chosen and on the test pairs."""

    name: str
    threshold: float
    dev_accuracy: float
    accuracy: float


@dataclass(frozen=True)
class WicScore:
    """A model's layers, and the number of the one that did best on the dev pairs: `layers[chosen].accuracy` is its score."""

    name: str
    path: str
    layers: tuple[WicLayer, ...]
    chosen: int
    notes: tuple[str, ...]


def read_pairs_in_context(source: str) -> list[Pair]:
    """Pairs from a file of records (.jsonl, .json, .csv, .parquet), by the names of our set or of SuperGLUE's:

        text_a, text_b, span_a [begin, end], span_b, label same or different
        sentence1, sentence2, start1, end1, start2, end2, label true or false

    Places count characters, the end is exclusive; in .csv, whose cells are strings, they are numbers as written, a span "2 6" or
    "[2, 6]". UnmaskError names the record of anything else.
    """
    return [_pair(row.values, row.place) for row in read_table(source).rows]


def word_in_context(
    model: Path, dev: Sequence[Pair], test: Sequence[Pair], *, device: Device = "auto", progress: Progress = quiet
) -> WicScore:
    """How often the cosine tells rightly, for each layer. The thresholds and the layer are chosen on the dev pairs."""
    pairs = [*dev, *test]
    read = word_states(
        model, [pair.one for pair in pairs] + [pair.other for pair in pairs], device=device, progress=progress
    )
    same = np.array([pair.same for pair in pairs])
    layers = []
    for name, states_UD in zip(read.layers, read.states, strict=True):
        unit_UD = unit(states_UD)
        cosine_N = np.einsum("nd,nd->n", unit_UD[: len(pairs)], unit_UD[len(pairs) :]).round(9)
        threshold = most_accurate_threshold(cosine_N[: len(dev)], same[: len(dev)])
        right_N = (cosine_N >= threshold) == same
        layers.append(WicLayer(name, threshold, float(right_N[: len(dev)].mean()), float(right_N[len(dev) :].mean())))
    chosen = max(range(len(layers)), key=lambda at: (layers[at].dev_accuracy, -at))
    return WicScore(name_of(model), str(model), tuple(layers), chosen, read.notes)


def most_accurate_threshold(scores_N: ArrayLike, truth_N: ArrayLike) -> float:
    """The t for which "score >= t" is right most often: halfway between two scores, the lowest of equally good ones.

    Above all scores or below them where saying the same of everything is best, one away from the last.
    """
    scores, truth = np.asarray(scores_N, np.float64), np.asarray(truth_N, np.bool_)
    values_K, at_N = np.unique(scores, return_inverse=True)
    true_K = np.bincount(at_N, truth, len(values_K))
    false_K = np.bincount(at_N, ~truth, len(values_K))
    # from each value on: the true ones there and above are right, and the false ones below; last: nothing is let in
    right: NDArray[np.float64] = np.r_[true_K[::-1].cumsum()[::-1], 0] + np.r_[0, false_K.cumsum()]
    edges = np.r_[values_K[0] - 1, (values_K[1:] + values_K[:-1]) / 2, values_K[-1] + 1]
    return float(edges[right.argmax()])


def commonest_answer(pairs: Sequence[Pair]) -> float:
    """The accuracy of always giving the commoner answer."""
    same = sum(pair.same for pair in pairs)
    return max(same, len(pairs) - same) / len(pairs)


def _pair(values: Mapping[str, Any], place: Place) -> Pair:
    theirs = "sentence1" in values
    label = str(values.get("label")).lower()
    if label not in _SAME:
        do = "write same or different, or true or false"
        raise UnmaskError(f"the label is {values.get('label')!r}", where=str(place), do=do)
    if theirs:
        one, other = (_use(values, f"sentence{n}", values.get(f"start{n}"), values.get(f"end{n}"), place) for n in "12")
    else:
        one, other = (_use(values, f"text_{n}", *_span(values.get(f"span_{n}")), place) for n in "ab")
    return Pair(one, other, _SAME[label])


def _span(value: object) -> tuple[object, object]:
    if isinstance(value, str):
        value = value.strip("[] ").replace(",", " ").split()
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    return None, None


def _use(values: Mapping[str, Any], name: str, start: object, end: object, place: Place) -> Use:
    text = values.get(name)
    if not isinstance(text, str):
        do = 'write {"text_a", "text_b", "span_a": [begin, end], "span_b", "label"}'
        raise UnmaskError(f"the record has no {name}", where=str(place), do=do)
    begin, stop = _number(start), _number(end)
    if 0 <= begin < stop <= len(text) and text[begin:stop].strip():
        return Use(text, begin, stop, text[begin:stop], "", place)
    do = "count characters from 0; the end is the first character behind the word"
    raise UnmaskError(f"the place of the word in {name} is {start} to {end}", where=str(place), do=do)


def _number(value: object) -> int:
    """A whole number, also one of a .csv; -1 for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else -1
