"""The page of a search over settings: what each trial scored, by learning rate, epochs and records of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from unmask.files import write_file
from unmask.train.report import page, text
from unmask.train.report.charts import nice_ticks

_WIDE, _TALL, _LEFT, _RIGHT, _TOP, _BOTTOM = 460, 230, 52, 18, 12, 28  # pixels
_PICTURES = {"learning_rate": "Learning rate", "epochs": "Epochs", "examples": "Records of a step"}


@dataclass(frozen=True)
class _Dot:
    """A trial in a picture: its setting and score. `kind`: best, or how it ended."""

    at: float
    score: float
    kind: str
    title: str


def write_trials(folder: Path, search: Mapping[str, Any]) -> Path:
    """Writes `<folder>/report.html` of what search.json holds, in one atomic step, and returns its path."""
    target = folder / "report.html"
    write_file(target, render(folder.resolve().name, search))
    return target


def render(name: str, search: Mapping[str, Any]) -> str:
    """The page as text; `name` is the folder's."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(visible=text.visible, duration=text.duration, short=_short)
    style, trials = page._asset("page.css"), search["trials"]
    made = environment.from_string(page._asset("trials.html")).render(
        name=name,
        metric=search["metric"] or "score",
        best=search["best"],
        trials=[(trial, _score(trial)) for trial in sorted(trials, key=_worse)],
        unscored=sum(_score(trial) is None for trial in trials),
        seconds=sum(trial["seconds"] for trial in trials),
        pictures=[(title, _picture(_dots(search, setting), title)) for setting, title in _PICTURES.items()],
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup(style),  # noqa: S704
        style_hash=page._policy_hash(style),
    )
    return made.encode("utf-8", "replace").decode("utf-8")


def _worse(trial: Mapping[str, Any]) -> tuple[bool, float]:
    """What the table is sorted by: the finished ones first, the best of them first."""
    return trial["score"] is None, -(_score(trial) or 0.0)


def _score(trial: Mapping[str, Any]) -> float | None:
    """Of the finished model; of a trial that was given up what it had reached."""
    return text.number(trial["reached"] if trial["score"] is None else trial["score"])


def _short(value: float) -> str:
    return f"{value:.3g}".replace("e-0", "e-")


def _dots(search: Mapping[str, Any], setting: str) -> list[_Dot]:
    dots = []
    for trial in search["trials"]:
        if (score := _score(trial)) is not None:
            kind = "best" if trial["trial"] == search["best"] else trial["status"]
            title = f"{trial['trial']}, {kind}: {_short(trial[setting])}, {score:.4f}"
            dots.append(_Dot(trial[setting], score, kind.replace(" ", "-"), title))
    return sorted(dots, key=lambda dot: dot.kind == "best")  # drawn last, above the others


def _picture(dots: Sequence[_Dot], title: str) -> Markup:
    """A dot for each trial: the setting to the right, on a logarithmic axis, and the score upwards."""
    if not dots:
        return Markup("")
    left, right = _span([math.log10(dot.at) for dot in dots], 0.1)
    low, high = _span([dot.score for dot in dots], 0.01)
    x = lambda at: _LEFT + (math.log10(at) - left) / (right - left) * (_WIDE - _LEFT - _RIGHT)  # noqa: E731
    y = lambda score: _TALL - _BOTTOM - (score - low) / (high - low) * (_TALL - _TOP - _BOTTOM)  # noqa: E731
    parts, ticks = [], nice_ticks(low, high, 4)
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    for tick in ticks:
        at = f"{y(tick):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{at}" y2="{at}"/>')
        label = f'x="{_LEFT - 7}" y="{at}" dy="0.32em" text-anchor="end">{tick:.{digits}f}'
        parts.append(f'<text class="tick" {label}</text>')
    for tick in _places({dot.at for dot in dots}):
        label = f'x="{x(tick):.1f}" y="{_TALL - 8}" text-anchor="middle">{_short(tick)}'
        parts.append(f'<text class="tick" {label}</text>')
    for dot in dots:
        place = f'cx="{x(dot.at):.1f}" cy="{y(dot.score):.1f}" r="5.5"'
        parts.append(f'<circle class="try {dot.kind}" {place}><title>{escape(dot.title)}</title></circle>')
    name = escape(f"Score by {title.lower()}")
    return Markup(f'<svg viewBox="0 0 {_WIDE} {_TALL}" role="img" aria-label="{name}">{"".join(parts)}</svg>')  # noqa: S704


def _span(values: Sequence[float], least: float) -> tuple[float, float]:
    """The range of an axis: a little more than that of the values, and no less than `least`."""
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) + max(0.0, least - (high - low)) / 2
    return low - margin, high + margin


def _places(values: set[float]) -> list[float]:
    """Where the axis of a setting is marked: at its values if they are few, else at 1, 2 and 5 times powers of ten."""
    if len(values) <= 3:
        return sorted(values)
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for tick in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if low <= tick <= high]
