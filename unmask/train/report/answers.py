"""What a fine-tuned model answers on its dev set, for the page: confusion, figures of each label, precision against recall.

Everything is read from run.json["dev"], whose parts are there or not: `records`, `metrics` {name: number}, `confusion` {labels,
counts}, `labels` [{label, precision, recall, f1, support}], `curves` {label: {precision, recall}}, `lengths` [{tokens, records,
score}].
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from unmask.train.report import text
from unmask.train.report.tables import table

_MOST_CONFUSED, _LABELS, _CURVES = 24, 200, 3
_WIDE, _TALL, _EDGE = 460, 300, 34


@dataclass
class Answers:
    """Ready for the template; empty lists where nothing is recorded."""

    records: int = 0
    metrics: list[tuple[str, str]] = field(default_factory=list)
    confused: list[str] = field(default_factory=list)  # labels of the matrix
    matrix: list[tuple[str, list[tuple[str, int]]]] = field(default_factory=list)  # row, (count, shade in tenths)
    left_out: int = 0  # labels too many for the matrix
    labels: list[list[str]] = field(default_factory=list)
    labels_left: int = 0  # labels too many for their table
    lengths: list[list[str]] = field(default_factory=list)
    curves: Markup = Markup("")
    curve_names: list[str] = field(default_factory=list)


def answers(recorded: object) -> Answers | None:
    """None where the run was no fine-tuning."""
    found = table(recorded)
    if not found:
        return None
    out = Answers(records=_whole(found.get("records")))
    out.metrics = [(str(name), _figure(value)) for name, value in table(found.get("metrics")).items()]
    _confusion(out, table(found.get("confusion")))
    rows = _rows(found.get("labels"))
    if len(rows) > _LABELS:  # the most frequent ones
        rows.sort(key=lambda row: -_whole(row.get("support")))
        out.labels_left = len(rows) - _LABELS
    for row in rows[:_LABELS]:
        figures = [_figure(row.get(name)) for name in ("precision", "recall", "f1")]
        out.labels.append([str(row.get("label", "")), *figures, text.count(_whole(row.get("support")))])
    for row in _rows(found.get("lengths")):
        out.lengths.append(
            [str(row.get("tokens", "")), text.count(_whole(row.get("records"))), _figure(row.get("score"))]
        )
    curves = {str(name): table(value) for name, value in list(table(found.get("curves")).items())[:_CURVES]}
    if curves:
        out.curves, out.curve_names = _picture(curves), list(curves)
    return out


def _confusion(out: Answers, found: dict[str, Any]) -> None:
    """The matrix of the labels that occur most; a row's cells are shaded by their share of it."""
    labels, counts = found.get("labels"), found.get("counts")
    if not isinstance(labels, list) or not isinstance(counts, list) or len(labels) != len(counts):
        return
    sizes = [sum(map(_whole, row)) if isinstance(row, list) else 0 for row in counts]
    shown = sorted(sorted(range(len(labels)), key=lambda at: -sizes[at])[:_MOST_CONFUSED])
    out.left_out = len(labels) - len(shown)
    out.confused = [str(labels[at]) for at in shown]
    for at in shown:
        row = [_whole(counts[at][other]) for other in shown]
        cells = [(text.count(n), round(9 * n / max(1, sizes[at]))) for n in row]
        out.matrix.append((str(labels[at]), cells))


def _picture(curves: dict[str, dict[str, Any]]) -> Markup:
    """Precision (upwards) against recall (to the right), both from 0 to 1."""
    x, y = (lambda r: _EDGE + r * (_WIDE - 2 * _EDGE)), (lambda p: _TALL - _EDGE - p * (_TALL - 2 * _EDGE))
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<line class="grid" x1="{x(0):.1f}" x2="{x(1):.1f}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(
            f'<text class="tick" x="{x(0) - 6:.1f}" y="{y(tick):.1f}" dy="0.32em" text-anchor="end">{tick:g}</text>'
        )
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{_TALL - 12}" text-anchor="middle">{tick:g}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        pairs = zip(_shares(curve.get("recall")), _shares(curve.get("precision")), strict=False)
        points = " ".join(f"{x(r):.1f},{y(p):.1f}" for r, p in pairs)
        parts.append(
            f'<polyline class="line tone{number}" points="{points}"><title>{html.escape(name)}</title></polyline>'
        )
    label = "Precision against recall"
    return Markup(f'<svg viewBox="0 0 {_WIDE} {_TALL}" role="img" aria-label="{label}">{"".join(parts)}</svg>')  # noqa: S704


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int:
    number = text.number(value)
    return int(number) if number is not None else 0


def _figure(value: object) -> str:
    number = text.number(value)
    return "–" if number is None else f"{number:.4f}"


def _shares(value: object) -> list[float]:
    numbers = map(text.number, value) if isinstance(value, list) else ()
    return [min(1.0, max(0.0, number)) for number in numbers if number is not None]
