"""The page of a word in context: for each model and layer a picture of the word's uses, a heat map, and the figures.

It is made of what the JSON beside it holds, asks nothing of the network and runs no script.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup, escape

from unmask.files import write_file
from unmask.train.report import page, text
from unmask.train.report.charts import nice_ticks

TONES, SHAPES = 6, 4  # 12 looks that differ in both
MOST_SENTENCES = 500  # in the table; the JSON has all
_BLUE = (37, 99, 201)
_SIDE, _EDGE = 240, 14  # pixels of a picture, and what stays free around its dots
_WIDE, _TALL, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 260, 52, 18, 12, 30  # of the chart


@dataclass(frozen=True)
class _Shown:
    """A layer as the page has it."""

    name: str
    best: bool
    caption: str
    dots: Markup
    heat: Markup


def write_context(out: Path, found: Mapping[str, Any]) -> None:
    """Writes the page of a comparison (`Comparison.as_dict`) in one atomic step."""
    write_file(out, render(found))


def render(found: Mapping[str, Any]) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(visible=text.visible, figure=_figure, share=_share, sign=_sign, tone=_tone)
    style = page._asset("page.css") + page._asset("context.css")
    made = environment.from_string(page._asset("context.html")).render(
        found=found,
        chart=_chart(found),
        mixed=any(layer["name"] == "mix" for model in found["models"] for layer in model["layers"]),
        models=[(model, list(_layers(found, model))) for model in found["models"]],
        sentences=[_sentence(found, at) for at in range(min(MOST_SENTENCES, len(found["uses"])))],
        reading=[model for model in found["models"] if not model["static"]],
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup(style),  # noqa: S704
        style_hash=page._policy_hash(style),
    )
    return made.encode("utf-8", "replace").decode("utf-8")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{round(value, 3) + 0.0:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _groups(found: Mapping[str, Any], layer: Mapping[str, Any]) -> list[int]:
    """Of each use, the number of its sense, or of its cluster where there are no senses."""
    senses = found["senses"]
    return [senses.index(use["sense"]) for use in found["uses"]] if senses else list(layer["clusters"])


def _misplaced(found: Mapping[str, Any], layer: Mapping[str, Any]) -> list[str]:
    """Of each use, the sense that most others of its cluster have; "" where that is its own."""
    senses = [use["sense"] for use in found["uses"]]
    if not found["senses"]:
        return [""] * len(senses)
    counts: dict[int, dict[str, int]] = {}
    for cluster, sense in zip(layer["clusters"], senses, strict=True):
        own = counts.setdefault(cluster, {})
        own[sense] = own.get(sense, 0) + 1
    usual = {cluster: max(own, key=lambda sense: own[sense]) for cluster, own in counts.items()}
    pairs = zip(layer["clusters"], senses, strict=True)
    return ["" if usual[cluster] == sense else usual[cluster] for cluster, sense in pairs]


def _layers(found: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[_Shown]:
    for at, layer in enumerate(model["layers"]):
        groups, misplaced = _groups(found, layer), _misplaced(found, layer)
        titles = [_title(use, wrong) for use, wrong in zip(found["uses"], misplaced, strict=True)]
        name = layer["name"] if not layer["name"].isdigit() else f"layer {layer['name']}"
        called = f"{text.visible(model['name'], 60)}, {name}"
        words = [f"silhouette {_figure(layer['silhouette'])}"]
        words += [f"clusters right {_share(layer['purity'])}"] if layer["purity"] is not None else []
        dots = _picture(layer, groups, misplaced, titles, f"{called}: the uses in two dimensions")
        heat = _heat(layer, groups, f"{called}: cosines of the uses")
        yield _Shown(name, at == model["best"] and not model["static"], ", ".join(words), dots, heat)


def _title(use: Mapping[str, Any], wrong: str) -> str:
    words = [text.visible(use["text"], 160)]
    words += [f"({text.visible(use['sense'], 40)})"] if use["sense"] else []
    words += [f"in a cluster with “{text.visible(wrong, 40)}”"] if wrong else []
    return " ".join(words)


def _picture(
    layer: Mapping[str, Any], groups: Sequence[int], misplaced: Sequence[str], titles: Sequence[str], name: str
) -> Markup:
    """A dot for each use; a ring where its cluster is mostly of another sense. Both directions have one scale."""
    points = np.array(layer["points"]).reshape(-1, 2)
    centre = (points.max(0) + points.min(0)) / 2
    reach = max(float(np.abs(points - centre).max()), 1e-9)
    at = _SIDE / 2 + (points - centre) * [1, -1] / reach * (_SIDE / 2 - _EDGE)
    parts = []
    for (x, y), group, wrong, title in zip(at.tolist(), groups, misplaced, titles, strict=True):
        ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="8"/>' if wrong else ""
        parts.append(f"<g><title>{escape(title)}</title>{ring}{_mark(group, x, y)}</g>")
    drawn = "".join(parts)
    return Markup(
        f'<svg class="dots" viewBox="0 0 {_SIDE} {_SIDE}" role="img" aria-label="{escape(name)}">{drawn}</svg>'
    )  # noqa: S704


def _sign(group: int) -> Markup:
    """The mark of a group, for the legend."""
    return Markup(f'<svg class="sign" viewBox="0 0 14 14" aria-hidden="true">{_mark(group, 7, 7)}</svg>')  # noqa: S704


def _mark(group: int, x: float, y: float) -> str:
    tone = f'class="use tone{group % TONES}"'
    match group % SHAPES:
        case 0:
            return f'<circle {tone} cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
        case 1:
            return f'<rect {tone} x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
        case 2:
            return f'<path {tone} d="M{x:.1f} {y - 5.5:.1f}l5 9h-10z"/>'
    return f'<path {tone} d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>'


def _heat(layer: Mapping[str, Any], groups: Sequence[int], name: str) -> Markup:
    """The cosines of the uses, those of one group together, the darker the nearer; lines part the groups."""
    heat, shown = np.array(layer["heat"]), [groups[at] for at in layer["order"]]
    low, high = _range(heat)
    strength = np.ones_like(heat) if high - low < 1e-9 else np.clip((heat - low) / (high - low), 0, 1)
    count = len(heat)
    borders = [at for at in range(1, count) if shown[at] != shown[at - 1]]
    lines = "".join(
        f'<path class="border" d="M{at} 0V{count}M0 {at}H{count}" vector-effect="non-scaling-stroke"/>'
        for at in borders
    )
    image = f'<image width="{count}" height="{count}" image-rendering="pixelated" href="{_png(strength)}"/>'
    title = f"cosines: {low:.3f} and less is pale, {high:.3f} and more dark"
    return Markup(  # noqa: S704
        f'<svg class="heat" viewBox="0 0 {count} {count}" role="img" aria-label="{escape(name)}">'
        f"<title>{title}</title>{image}{lines}</svg>"
    )


def _range(heat: Any) -> tuple[float, float]:
    """Between which cosines of different uses the colours run: a few far ones must not leave one colour for all others."""
    low, high = np.percentile(heat[~np.eye(len(heat), dtype=np.bool_)], [2, 98])
    return float(low), float(high)


def _png(strength: Any) -> str:
    """A picture of shares from 0 to 1 as a data address: one blue, more or less of it (PNG, 8 bits, with alpha)."""
    rows, columns = strength.shape
    pixels = np.zeros((rows, columns, 4), np.uint8)
    pixels[..., :3] = _BLUE
    pixels[..., 3] = np.rint(strength * 255)
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], 1)  # 0: this line has no filter
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
    ]
    data = b"\x89PNG\r\n\x1a\n"
    for kind, content in (*parts, (b"IEND", b"")):
        data += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chart(found: Mapping[str, Any]) -> Markup:
    """The silhouette of each layer, a line for each model; a static model is a dashed level. A mix of layers is none."""
    models = found["models"]
    values_of = [[x["silhouette"] or 0.0 for x in model["layers"] if x["name"] != "mix"] for model in models]
    last = max(map(len, values_of)) - 1
    values = [value for own in values_of for value in own]
    low, high = min(0.0, *values), max(0.1, *values)
    high += 0.06 * (high - low)
    x = lambda at: _LEFT + at / max(last, 1) * (_WIDE - _LEFT - _RIGHT)  # noqa: E731
    y = lambda value: _TALL - _BOTTOM - (value - low) / (high - low) * (_TALL - _TOP - _BOTTOM)  # noqa: E731
    parts = []
    for tick in nice_ticks(low, high, 5):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        place = f'x="{_LEFT - 7}" y="{y(tick):.1f}" dy="0.32em" text-anchor="end"'
        parts.append(f'<text class="tick" {place}>{tick:.2f}</text>')
    for tick in range(0, last + 1, max(1, -(-last // 14))):
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{_TALL - 10}" text-anchor="middle">{tick}</text>')
    for number, (model, own) in enumerate(zip(models, values_of, strict=True)):
        heights = [y(value) for value in own]
        if model["static"]:
            parts.append(
                f'<path class="line still tone{number % TONES}" d="M{_LEFT} {heights[0]:.1f}H{_WIDE - _RIGHT}"/>'
            )
            continue
        path = "L".join(f"{x(at):.1f} {height:.1f}" for at, height in enumerate(heights))
        parts.append(f'<path class="line tone{number % TONES}" d="M{path}"/>')
        parts += [_knot(number, x(at), height) for at, height in enumerate(heights)]
    label = "Silhouette by layer"
    return Markup(f'<svg viewBox="0 0 {_WIDE} {_TALL}" role="img" aria-label="{label}">{"".join(parts)}</svg>')  # noqa: S704


def _tone(number: int) -> Markup:
    """The colour of a model, for the legend."""
    return Markup(f'<svg class="sign" viewBox="0 0 14 14" aria-hidden="true">{_knot(number, 7, 7)}</svg>')  # noqa: S704


def _knot(number: int, x: float, y: float) -> str:
    return f'<circle class="use tone{number % TONES}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _sentence(found: Mapping[str, Any], at: int) -> dict[str, Any]:
    """A row of the table of sentences: what stands before the word, the word, what stands behind it, and where each model that
    reads the sentence puts it in its best layer."""
    use = found["uses"][at]
    placed = []
    for model in found["models"]:
        if not model["static"]:
            layer = model["layers"][model["best"]]
            wrong = _misplaced(found, layer)[at]
            placed.append((wrong or use["sense"] or f"group {layer['clusters'][at] + 1}", bool(wrong)))
    parts = use["text"][: use["start"]], use["text"][use["start"] : use["end"]], use["text"][use["end"] :]
    return {"parts": parts, "sense": use["sense"], "placed": placed}
