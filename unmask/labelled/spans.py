"""Spans of characters: read from the shapes people store them in, checked, and laid over the words of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.errors import UnmaskError
from unmask.labelled.records import Place
from unmask.text.running_text import Parting, text_words

Span = tuple[int, int, str]  # begin, end, type; characters are code points
BEGINS = ("start", "begin", "start_offset", "start_idx", "start_char")
ENDS = ("end", "end_offset", "end_idx", "end_char")
TYPES = ("label", "type", "entity", "entity_group", "tag")
SURFACES = ("text", "word", "surface")


def lay_over_words(
    text: str, spans: Sequence[Span], place: Place, parting: Parting = "runs"
) -> tuple[list[tuple[int, int]], list[Span], int]:
    """The words of a text, the spans counted in words, and how many words were parted: a span that begins or ends inside a
    word parts it."""
    cuts = sorted({at for begin, end, _ in spans for at in (begin, end)})
    words: list[tuple[int, int]] = []
    parted = 0
    for begin, end in text_words(text, parting):
        edges = [begin, *(at for at in cuts if begin < at < end), end]
        words += zip(edges[:-1], edges[1:], strict=True)
        parted += len(edges) > 2
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    counted = []
    for begin, end, label in spans:
        first, last = int(np.searchsorted(begins, begin)), int(np.searchsorted(ends, end, "right"))
        if first >= last:
            what = f"the span [{begin}, {end}, {label!r}] holds no word but {text[begin:end]!r}"
            raise UnmaskError(what, where=str(place), do="remove it or move it to the words it means")
        counted.append((first, last, label))
    return words, counted, parted


def read_spans(value: Any, text: str, place: Place) -> list[Span]:
    """Spans, sorted, from [[begin, end, type], …], from objects, or from {type: {surface: [[begin, last], …]}} (CLUENER).

    UnmaskError for a shape that is none of these, for offsets that are not in the text or whose surface the text does not
    have there, and for two spans that overlap. A span given twice is one.
    """
    match value:
        case dict():
            found = _by_type(value, place)
        case list():
            found = [_span(one, place) for one in value]
        case _:
            raise _no_span(value, place)
    for begin, end, label, surface in found:
        shown = f"[{begin}, {end}, {label!r}]"
        if not 0 <= begin < end <= len(text):
            do = "begin and end count characters (code points) from 0, and the end is the first that is outside"
            raise UnmaskError(f"the span {shown} is not in the text of {len(text)} characters", where=str(place), do=do)
        if surface is not None and text[begin:end] != surface:
            what = f"the span {shown} is said to be {surface!r}, but the text has {text[begin:end]!r} there"
            raise UnmaskError(what, where=str(place), do="offsets count characters (code points), the end is outside")
    spans = sorted({(begin, end, label) for begin, end, label, _ in found})
    for one, other in zip(spans, spans[1:], strict=False):
        if other[0] < one[1]:
            what = f"the spans {list(one)} and {list(other)} overlap"
            raise UnmaskError(what, where=str(place), do="a word has one tag: keep one of the two")
    return spans


def _by_type(value: dict[str, Any], place: Place) -> list[tuple[int, int, str, str | None]]:
    found: list[tuple[int, int, str, str | None]] = []
    for label, surfaces in value.items():
        if not isinstance(surfaces, dict):
            raise _no_span({label: surfaces}, place)
        for surface, ranges in surfaces.items():
            for one in ranges if isinstance(ranges, list) else [ranges]:
                match one:
                    case [int() as begin, int() as last]:
                        found.append((begin, last + 1, label, surface))
                    case _:
                        raise _no_span(one, place)
    return found


def _span(value: Any, place: Place) -> tuple[int, int, str, str | None]:
    match value:
        case [int() as begin, int() as end, str() as label] if label:
            return begin, end, label, None
        case dict():
            begin, end, label, surface = (_first(value, names) for names in (BEGINS, ENDS, TYPES, SURFACES))
            if isinstance(begin, int) and isinstance(end, int) and isinstance(label, str) and label:
                return begin, end, label, surface if isinstance(surface, str) else None
    raise _no_span(value, place)


def _first(value: dict[str, Any], names: Sequence[str]) -> Any:
    return next((value[name] for name in names if name in value), None)


def _no_span(value: Any, place: Place) -> UnmaskError:
    do = 'write [begin, end, "TYPE"], {"start": …, "end": …, "label": …} or {"TYPE": {"surface": [[begin, last]]}}'
    return UnmaskError(f"{value!r} is not a span", where=str(place), do=do)
