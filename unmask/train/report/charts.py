"""The report's charts: what each one shows, as plain data for the page's script, and drawn once as SVG for readers without it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from unmask.train.report.curves import Curve
from unmask.train.report.data import History
from unmask.train.report.text import figure, loss_name, visible

Unit = Literal["number", "share"]
_VIEWS = 8  # losses to choose from
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 10, 26  # pixels around the plot, the same in page.js


@dataclass(frozen=True)
class Line:
    """One curve of a chart: the figure `name` out of the table `steps` or `evaluations`."""

    table: Literal["steps", "evaluations"]
    name: str
    label: str


@dataclass(frozen=True)
class View:
    """What a chart shows at a time.

    `zero` starts the axis at 0, `exact` curves have no noise to smooth away, `reference` is a dashed level and its label.
    """

    label: str
    lines: tuple[Line, ...]
    unit: Unit = "number"
    zero: bool = False
    exact: bool = False
    reference: tuple[float, str] | None = None


@dataclass(frozen=True)
class Chart:
    """A titled picture with one or more views to choose from; `wide` ones take the page's whole width."""

    title: str
    note: str
    views: tuple[View, ...]
    wide: bool = False


def charts(history: History, unigram_entropy: float | None) -> list[Chart]:
    """The charts for which the run has recorded something."""
    steps, held_out = history.steps.names(), history.evaluations.names()
    found = [
        Chart("Loss", "lower is better", tuple(_loss_views(history, unigram_entropy)), wide=True),
        _simple("Scores", "on the dev set; the first decides which checkpoint is kept", _scores(history)),
        _simple("Held-out accuracy", "right answers on text it never trains on", _accuracies(held_out), "share"),
        _simple(
            "Learning rate",
            "as the schedule sets it",
            _lines(steps, learning_rate="learning rate"),
            zero=True,
            exact=True,
        ),
        _simple(
            "Throughput",
            "real tokens a second, padding not counted",
            _lines(steps, tokens_per_second="tokens/s"),
            zero=True,
        ),
        _simple("Gradient norm", "before clipping", _lines(steps, grad_norm="gradient norm"), zero=True),
        _simple(
            "Waste",
            "both should stay near 0",
            _lines(steps, padding="padding", loader_wait="waiting for data"),
            "share",
            zero=True,
        ),
        _simple(
            "Use of the machine",
            "share of its measured matrix-product peak",
            _lines(steps, peak_share="of peak"),
            "share",
            zero=True,
        ),
    ]
    return [chart for chart in found if any(view.lines for view in chart.views)]


def token_term(history: History) -> str:
    """The loss that predicts tokens, whatever its name: the one whose exponential the evaluations record as perplexity."""
    figures = history.last_evaluation
    perplexity = figures.get("perplexity", 0.0)
    if perplexity > 0:
        for name in [n for n in figures if n.startswith("losses.")] + ["loss"]:
            if abs(math.log(perplexity) - figures.get(name, math.inf)) < 1e-3:
                return name
    return "loss"


def label(name: str) -> str:
    """`losses.mlm` as people write it: MLM; `loss` is the total."""
    return "total" if name == "loss" else visible(loss_name(name.partition(".")[2]), 24)


def as_data(history: History, shown: Sequence[Chart]) -> dict[str, Any]:
    """Everything the page's script draws from, with no number that JSON can't hold."""
    tables = {}
    for table, thinned in (("steps", history.steps), ("evaluations", history.evaluations)):
        names = dict.fromkeys(line.name for c in shown for v in c.views for line in v.lines if line.table == table)
        tables[table] = {
            "step": [round(x) for x in thinned.curve("step").steps.tolist()],
            "series": {name: _series(thinned.curve(name)) for name in names},
        }
    resumes = [record["step"] for record in history.resumes.newest]
    views = [[_view(history, v) for v in c.views] for c in shown]
    return {"tables": tables, "charts": views, "resumes": resumes, "phases": history.borders}


def draw(history: History, chart: Chart) -> Markup:
    """The first view of a chart as SVG, on a linear axis."""
    width, height = (720, 300) if chart.wide else (460, 210)
    view, (left, right) = chart.views[0], _steps_span(history)
    low, high, ticks = _axis(history, view)
    x = lambda step: _LEFT + (step - left) / (right - left) * (width - _LEFT - _RIGHT)  # noqa: E731
    y = lambda value: height - _BOTTOM - (np.clip(value, low, high) - low) / (high - low) * (height - _TOP - _BOTTOM)  # noqa: E731
    parts = []
    for tick in ticks:
        at = f"{y(tick):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 7}" y="{at}" dy="0.32em" text-anchor="end">{_tick(tick, ticks, view.unit)}</text>'
        )
    parts.append(f'<text class="tick" x="{_LEFT - 7}" y="{height - 8}" text-anchor="end">step</text>')
    for tick in nice_ticks(left, right, 6):
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 8}" text-anchor="middle">{_step(tick)}</text>')
    for step in history.borders:
        at = f"{x(step):.1f}"
        parts.append(f'<line class="phase" x1="{at}" x2="{at}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
    if view.reference:
        at = f"{y(view.reference[0]):.1f}"
        parts.append(f'<line class="reference" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at}" y2="{at}"/>')
    for place, line in enumerate(view.lines):
        parts += _drawn(_curve(history, line), place, x, y)
    name = escape(f"{chart.title} over the steps, {view.label}" if view.label else f"{chart.title} over the steps")
    return Markup(f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{name}">{"".join(parts)}</svg>')  # noqa: S704


def nice_ticks(low: float, high: float, wanted: int) -> list[float]:
    """About `wanted` round numbers (1, 2 or 5 times a power of ten) from `low` to `high`."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _loss_views(history: History, unigram_entropy: float | None) -> Iterator[View]:
    trained, held_out = history.steps.names(), history.evaluations.names()
    main = token_term(history)
    terms = [n for n in dict.fromkeys(trained + held_out) if n == "loss" or n.startswith("losses.")]
    if len(terms) == 2:  # one goal: the total says the same
        terms = [n for n in terms if n == main] or ["loss"]
    for term in sorted(terms, key=lambda n: (n != main, n == "loss"))[:_VIEWS]:
        lines = [Line("steps", term, "training")] if term in trained else []
        lines += [Line("evaluations", term, "held-out")] if term in held_out else []
        at_level = unigram_entropy is not None and term == main
        level = (unigram_entropy, "guessing by word frequency") if unigram_entropy is not None and at_level else None
        yield View(label(term), tuple(lines), reference=level)


def _simple(
    title: str, note: str, lines: tuple[Line, ...], unit: Unit = "number", *, zero: bool = False, exact: bool = False
) -> Chart:
    return Chart(title, note, (View("", lines, unit, zero, exact),))


def _lines(recorded: list[str], **wanted: str) -> tuple[Line, ...]:
    return tuple(Line("steps", name, label) for name, label in wanted.items() if name in recorded)


def _accuracies(recorded: list[str]) -> tuple[Line, ...]:
    return tuple(Line("evaluations", name, label(name)) for name in recorded if name.startswith("accuracy."))


_COSTS = (
    "log_loss",
    "calibration_error",
    "mean_squared_error",
    "mean_absolute_error",
    "illegal_tags",
)  # lower is better


def _scores(history: History) -> tuple[Line, ...]:
    """Those that are shares or correlations: an error in other units would press them flat."""
    last = history.last_evaluation
    recorded = [name for name in history.evaluations.names() if name.startswith("metrics.")]
    recorded = [name for name in recorded if name.partition(".")[2] not in _COSTS]
    names = [name for name in recorded if abs(last.get(name, 2.0)) <= 1][:3]  # as many as there are tones
    return tuple(Line("evaluations", name, visible(name.partition(".")[2], 24)) for name in names)


def _curve(history: History, line: Line) -> Curve:
    """A line's curve without the places where it was not recorded."""
    curve = (history.steps if line.table == "steps" else history.evaluations).curve(line.name)
    there = np.isfinite(curve.mean)
    return Curve(curve.steps[there], curve.mean[there], curve.low[there], curve.high[there])


def _steps_span(history: History) -> tuple[float, float]:
    seen = np.concatenate([history.steps.curve("step").steps, history.evaluations.curve("step").steps])
    return float(seen.min()), max(float(seen.max()), float(seen.min()) + 1)


def _axis(history: History, view: View) -> tuple[float, float, list[float]]:
    """Lowest and highest value shown and the ticks between them. A rare outlier may leave the top; it never flattens the rest."""
    curves = [_curve(history, line) for line in view.lines]
    low, high = min(float(c.low.min()) for c in curves), max(float(c.high.max()) for c in curves)
    usual = max(float(np.percentile(c.high, 98)) for c in curves)
    if high - low > 3 * (usual - low) > 0:
        high = low + 1.5 * (usual - low)
    if view.reference:
        low, high = min(low, view.reference[0]), max(high, view.reference[0])
    low = min(low, 0.0) if view.zero else low
    if high - low <= abs(high) * 1e-6:
        low, high = low - (abs(low) * 0.1 or 1) * (not view.zero), high + (abs(high) * 0.1 or 0.01 if view.zero else 1)
    margin = 0.04 * (high - low)
    low, high = (low if view.zero else low - margin), high + margin
    return low, high, nice_ticks(low, high, 5)


def _tick(value: float, ticks: list[float], unit: Unit) -> str:
    """The label of a tick: as many decimals as its neighbours need, per cent for shares."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(value) or 1.0
    if unit == "share":
        return f"{100 * value:.{_decimals(100 * step)}f}%"
    if step < 1e-3 or step >= 1e6:
        return figure(value) if value else "0"
    return (
        f"{value / 1000:,.{_decimals(step / 1000)}f} k" if step >= 1000 and value else f"{value:,.{_decimals(step)}f}"
    )


def _step(value: float) -> str:
    return f"{value:g}" if value < 1000 else f"{value / 1000:g} k" if value < 1e6 else f"{value / 1e6:g} M"


def _decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _view(history: History, view: View) -> dict[str, Any]:
    low, high, ticks = _axis(history, view)
    return {
        "label": view.label,
        "lines": [[line.table, line.name, line.label] for line in view.lines],
        "share": view.unit == "share",
        "exact": view.exact,
        "reference": list(view.reference) if view.reference else None,
        "low": low,
        "high": high,
        "ticks": [[tick, _tick(tick, ticks, view.unit)] for tick in ticks],
    }


def _series(curve: Curve) -> list[list[float | None]]:
    """[mean] or [mean, low, high]: one step a bucket needs no range."""
    parts = (
        [curve.mean] if np.array_equal(curve.low, curve.high, equal_nan=True) else [curve.mean, curve.low, curve.high]
    )
    return [[float(f"{x:.5g}") if math.isfinite(x) else None for x in part.tolist()] for part in parts]


def _drawn(curve: Curve, place: int, x: Any, y: Any) -> list[str]:
    """The band between lowest and highest and the line of means, one point a pixel."""
    across = x(curve.steps)
    starts = np.unique(across.astype(int), return_index=True)[1]
    across, down = across[starts], y(np.add.reduceat(curve.mean, starts) / np.diff(starts, append=len(curve.mean)))
    low, high = y(np.fmin.reduceat(curve.low, starts)), y(np.fmax.reduceat(curve.high, starts))
    parts = []
    if not np.allclose(low, high):
        around = np.concatenate([across, across[::-1]]), np.concatenate([high, low[::-1]])
        parts.append(f'<path class="band tone{place}" d="M{_points(*around)}Z"/>')
    if len(across) == 1:
        return [*parts, f'<circle class="dot tone{place}" cx="{across[0]:.1f}" cy="{down[0]:.1f}" r="3.5"/>']
    return [*parts, f'<path class="line tone{place}" d="M{_points(across, down)}"/>']


def _points(across: NDArray[np.float64], down: NDArray[np.float64]) -> str:
    return "L".join(f"{a:.1f} {d:.1f}" for a, d in zip(across.tolist(), down.tolist(), strict=True))
