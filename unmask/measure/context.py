"""One word in many sentences, by one model after the other: where do its senses part?

A static vector is the same in every sentence. What ELMo and the encoders after it make of a word depends on the words around
it, layer by layer; here that is measured and made into pictures. Legend: U uses of the word, S of them that are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.errors import UnmaskError
from unmask.measure.separation import (
    Floats,
    choose_clusters,
    cosines,
    gap,
    k_means,
    principal_axes,
    purity,
    silhouette,
    unit,
)
from unmask.measure.uses import Uses, name_of
from unmask.measure.word_states import Device, WordStates, word_states
from unmask.progress import Progress, quiet

PARTED = 0.8  # of the uses that the commonest sense alone names wrongly, the share that clusters must put right
SHOWN = 60  # uses in a heat map
FEW = 5  # uses of a sense: fewer may fall apart by chance


@dataclass(frozen=True)
class Layer:
    """One layer of a model, all uses of the word in it.

    Mean cosines of all pairs, and where senses are given, of pairs with the same and with different ones. `silhouette` is that
    of the senses, or else of the clusters. `clusters` are found without the senses; `purity` says how well they meet them.
    `points` are the picture, `variance` is what its two directions show of the whole; `order` are the uses in the heat map
    (number in `Comparison.uses`), `heat` their cosines.
    """

    name: str
    similarity: float
    within: float | None
    between: float | None
    gap: float | None
    silhouette: float | None
    purity: float | None
    clusters: tuple[int, ...]
    points: tuple[tuple[float, float], ...]
    variance: tuple[float, float]
    order: tuple[int, ...]
    heat: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class ModelView:
    """A model and all its layers. `parts_from` is the first in which the senses part (None: in no layer, or no senses are
    given), `best` the one with the greatest silhouette, of those in which they part if there are any; `verdict` says both in
    a sentence. `reads` is how such a model reads a sentence."""

    name: str
    path: str
    static: bool
    reads: str
    layers: tuple[Layer, ...]
    best: int
    parts_from: int | None
    verdict: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """What was found; `commonest` is the share of the commonest sense, the purity of one cluster of all. `notes` say what makes
    the figures doubtful."""

    word: str
    sentences: int
    without: int
    uses: tuple[dict[str, Any], ...]
    senses: tuple[str, ...]
    commonest: float | None
    models: tuple[ModelView, ...]
    verdict: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def compare(
    uses: Uses, models: Sequence[Path], *, device: Device = "auto", seed: int = 0, progress: Progress = quiet
) -> Comparison:
    """What each model makes of the word in each sentence. Clusters are as many as there are senses; where the file names fewer
    than two, as many as fit best. UnmaskError where a model cannot be read or does not know the word."""
    if not models:
        raise UnmaskError("no model is named", where="models", do="give files or folders of vectors, or model folders")
    senses = uses.senses if len(uses.senses) > 1 else ()
    numbers = [senses.index(use.sense) for use in uses.uses] if senses else []
    commonest = max(np.bincount(numbers)) / len(numbers) if senses else None
    views = []
    for path, name in zip(models, _names(models), strict=True):
        read = word_states(path, uses.uses, device=device, progress=progress)
        layers = tuple(
            _layer(layer, states_UD, numbers, seed) for layer, states_UD in zip(read.layers, read.states, strict=True)
        )
        views.append(_view(name, str(path), layers, read, senses, commonest))
    return Comparison(
        uses.word,
        uses.sentences,
        uses.without,
        tuple(
            {"text": use.text, "start": use.start, "end": use.end, "sense": use.sense, "place": str(use.place)}
            for use in uses.uses
        ),
        senses,
        None if commonest is None else float(commonest),
        tuple(views),
        _verdict(uses.word, views),
        _doubts(uses),
    )


def _doubts(uses: Uses) -> tuple[str, ...]:
    """What makes the figures of these uses doubtful, whatever the models."""
    if len(uses.senses) == 1:
        return (f"all uses have the sense “{uses.senses[0]}”: groups are looked for as if none were given",)
    counts = {sense: sum(use.sense == sense for use in uses.uses) for sense in uses.senses}
    few = [f"{count} of “{sense}”" for sense, count in counts.items() if count < FEW]
    if not few and (counts or len(uses.uses) >= FEW):
        return ()
    told = ", ".join(few) if few else f"{len(uses.uses)} in all"
    return (f"so few uses may fall apart by chance: {told}",)


def _layer(name: str, states_UD: Any, senses: Sequence[int], seed: int) -> Layer:
    """Of `senses`, one for each use; () where none are given."""
    unit_UD = unit(states_UD)
    cosine_UU = cosines(unit_UD)
    if senses:
        cluster_U = k_means(unit_UD, len(set(senses)), seed=seed)
    else:
        cluster_U = choose_clusters(unit_UD, cosine_UU, seed=seed)
    groups = senses or cluster_U.tolist()
    picture = principal_axes(unit_UD)
    found = gap(cosine_UU, senses) if senses else None
    order = _order(groups)
    return Layer(
        name=name,
        similarity=_short(gap(cosine_UU, [0] * len(groups)).within),
        within=found and _known(found.within),
        between=found and _known(found.between),
        gap=found and _known(found.size),
        silhouette=_known(silhouette(cosine_UU, groups)),
        purity=_short(purity(cluster_U, senses)) if senses else None,
        clusters=tuple(cluster_U.tolist()),
        points=tuple((_short(x), _short(y)) for x, y in picture.points_U2.tolist()),
        variance=(_short(picture.share_2[0]), _short(picture.share_2[1])),
        order=tuple(order),
        heat=_rounded(cosine_UU[np.ix_(order, order)]),
    )


def _order(groups: Sequence[int]) -> list[int]:
    """Uses in the order of their groups, `SHOWN` at most."""
    order = np.argsort(groups, kind="stable")
    shown = min(SHOWN, len(order))
    return [int(order[at]) for at in np.arange(shown) * len(order) // shown]


def _view(
    name: str,
    path: str,
    layers: tuple[Layer, ...],
    read: WordStates,
    senses: Sequence[str],
    commonest: float | None,
) -> ModelView:
    parting = list[int]()
    if commonest is not None and not read.static:
        needed = 1 - (1 - commonest) * (1 - PARTED)
        parting = [at for at, layer in enumerate(layers) if (layer.purity or 0) >= needed - 1e-4]  # purity is rounded
    best = max(parting or range(len(layers)), key=lambda at: (_clear(layers[at]), -at))
    parts = parting[0] if parting else None
    verdict = _sentence(name, layers, best, parts, read.static, senses, commonest)
    return ModelView(name, path, read.static, read.reads, layers, best, parts, verdict, read.notes)


def _clear(layer: Layer) -> float:
    """The silhouette; below all others where there is none."""
    return -2.0 if layer.silhouette is None else layer.silhouette


def _sentence(
    name: str,
    layers: Sequence[Layer],
    best: int,
    parts: int | None,
    static: bool,
    senses: Sequence[str],
    commonest: float | None,
) -> str:
    if static:
        return f"{name} has one vector for the word, the same in every sentence: it cannot tell its senses apart."
    layer = layers[best]
    if commonest is None:
        if layer.silhouette is None and layer.similarity == 1:
            return f"In {name} the uses do not differ."
        if layer.silhouette is None:
            return f"In {name} the uses differ, but two are too few for groups."
        count = max(layer.clusters) + 1
        return f"{_at(layer)} of {name} the uses fall into {count} groups most clearly (silhouette {layer.silhouette:.2f})."
    means = f"clusters made without the senses put {layer.purity:.0%} of the uses with their sense"
    if layer.within is not None:
        means = (
            f"uses of the same sense have a mean cosine of {layer.within:.2f}, uses of different senses "
            f"{layer.between:.2f}, and {means}"
        )
    several = "two senses" if len(senses) == 2 else f"{len(senses)} senses"
    if parts is None:
        return (
            f"In no layer of {name} do the {several} part: {_at(layer).lower()}, the best, {means}; the commonest sense alone "
            f"makes {commonest:.0%}."
        )
    first = f" They part {_at(layers[parts]).lower()} already." if parts < best else ""
    return f"{_at(layer)} of {name} the {several} part most clearly: {means}.{first}"


def _at(layer: Layer) -> str:
    words = {"embeddings": "At the embeddings", "mix": "In the mix of all layers"}
    return words.get(layer.name, f"At layer {layer.name}")


def _verdict(word: str, views: Sequence[ModelView]) -> str:
    """The best of the models that read the sentence, how far the others come, and what static vectors can't."""
    reading = [view for view in views if not view.static]
    static = [view.name for view in views if view.static]
    sentences = []
    if reading:
        best = max(reading, key=lambda view: (view.parts_from is not None, _clear(view.layers[view.best])))
        sentences += [best.verdict, *(_beside(view) for view in reading if view is not best)]
    if static:
        have = "has one vector" if len(static) == 1 else "have one vector each"
        sentences.append(f"{', '.join(static)} {have} for the word, the same in every sentence.")
    return f"“{word}”: " + " ".join(sentences)


def _beside(view: ModelView) -> str:
    """A model that is not the best, in short."""
    layer = view.layers[view.best]
    if layer.purity is None:
        return view.verdict
    parts = "part too" if view.parts_from is not None else "do not part"
    return f"In {view.name} they {parts}: {_at(layer).lower()}, its best, {layer.purity:.0%} of the uses are with their sense."


def _names(models: Sequence[Path]) -> list[str]:
    """Short ones, with a number where two are alike."""
    names = [name_of(path) for path in models]
    return [
        f"{name} ({names[: at + 1].count(name)})" if names.count(name) > 1 else name for at, name in enumerate(names)
    ]


def _known(value: float) -> float | None:
    return _short(value) if math.isfinite(value) else None


def _short(value: float) -> float:
    """Four digits behind the point, and no -0.0."""
    return round(float(value), 4) + 0.0


def _rounded(cosine_SS: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(_short(value) for value in row) for row in cosine_SS.tolist())
