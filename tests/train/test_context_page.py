"""The page of a word in context: it works in a real browser without a script, and hostile text stays text."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from test_report_browser import BROWSER, opened

from unmask.train.report.context import render, write_context

HOSTILE = "<script>document.title='x'</script>\u202e\x1b[31m&amp;\"'"


def layer(name: str, shift: int = 0, senses: bool = True) -> dict[str, Any]:
    heat = [[1.0 if i == j else round(0.9 - 0.1 * abs(i - j), 4) for j in range(4)] for i in range(4)]
    return {
        "name": name, "similarity": 0.7, "within": 0.8 if senses else None, "between": 0.6 if senses else None,
        "gap": 0.2 if senses else None, "silhouette": 0.1 * shift, "purity": 0.75 if senses else None,
        "clusters": [0, 0, 1, 0], "points": [[0.1 * shift, 0.5], [0, 0], [-0.3, 0.2], [1, 1]], "variance": [0.5, 0.2],
        "order": [0, 1, 2, 3], "heat": heat,
    }  # fmt: skip


def comparison(name: str = "bank", senses: bool = True) -> dict[str, Any]:
    still = {
        **layer("static"),
        "points": [[0, 0]] * 4,
        "clusters": [0] * 4,
        "heat": [[1.0] * 4] * 4,
        "silhouette": None,
    }
    uses = [
        {"text": f"by the {name}.", "start": 7, "end": 7 + len(name), "sense": sense if senses else "", "place": "f, 1"}
        for sense in (name, name, "money", "money")
    ]
    read = [layer("embeddings", 0, senses), layer("1", 3, senses), layer("mix", 1, senses)]
    models = [("w2v", True, [still]), (name, False, read), ("elmo", False, read[:2])]
    return {
        "word": name, "sentences": 9, "without": 5, "uses": uses, "senses": [name, "money"] if senses else [],
        "commonest": 0.5 if senses else None, "verdict": f"about {name}", "notes": [f"doubts {name}"],
        "models": [
            {"name": n, "path": n, "static": s, "reads": f"reads {n}", "layers": ls, "best": len(ls) // 2,
             "parts_from": None, "verdict": n, "notes": [f"note {n}"]}
            for n, s, ls in models
        ],
    }  # fmt: skip


@pytest.mark.skipif(
    BROWSER is None, reason="needs a browser: none of chromium, chromium-browser, google-chrome is there"
)
@pytest.mark.parametrize(("name", "senses"), [("bank", True), ("苹果", False), (HOSTILE, True)])
def test_the_page_works_in_a_browser(tmp_path: Path, name: str, senses: bool) -> None:
    write_context(tmp_path / "page.html", comparison(name, senses))
    document, console = opened(tmp_path / "page.html", tmp_path / "profile")
    assert document.count("reads ") == 3 and document.count("doubts ") == 1
    assert console == "" and "<script" not in document  # nothing refused by the policy
    assert document.count('class="dots"') == document.count("<image") == 6
    assert document.count("<g><title>") == 24  # a dot for each use
    assert document.count('class="chart best"') == 2 and "5 of them without the word" in document
    ringed = 6 * senses - senses  # in each layer one use of "money" lies with the others; in the static one, two
    assert document.count('class="ring"') == ringed + 2 * senses
    if name == HOSTILE:
        assert "\u202e" not in document and "⟨U+202E⟩" in document and "\x1b" not in document


@pytest.mark.skipif(
    BROWSER is None, reason="needs a browser: none of chromium, chromium-browser, google-chrome is there"
)
def test_it_does_not_run_out_of_a_narrow_screen(tmp_path: Path) -> None:
    page = render(comparison())
    policy = page[page.index("<meta http-equiv") : page.index("<meta name")]
    frame = "<iframe id=f width=380 height=900 srcdoc='{}'></iframe>".format(
        page.replace(policy, "").replace("'", "&#39;")
    )
    script = "<script>onload = () => { document.title = document.getElementById('f').contentDocument.documentElement.scrollWidth }</script>"  # noqa: E501
    (tmp_path / "outer.html").write_text(f"<!doctype html><meta charset=utf-8>{frame}{script}", encoding="utf-8")
    document, _ = opened(tmp_path / "outer.html", tmp_path / "profile")
    assert int(document.split("<title>")[1].split("</title>")[0]) <= 380


def test_the_heat_map_is_a_png_of_the_cosines() -> None:
    page = render(comparison())
    pictures = [base64.b64decode(one) for one in re.findall(r'href="data:image/png;base64,([^"]+)"', page)]
    chunks, at = {}, 8
    while at < len(pictures[1]):
        size, kind = struct.unpack(">I4s", pictures[1][at : at + 8])
        content = pictures[1][at + 8 : at + 8 + size]
        assert struct.unpack(">I", pictures[1][at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + content)
        chunks[kind], at = content, at + 12 + size
    assert struct.unpack(">IIBB", chunks[b"IHDR"][:10]) == (4, 4, 8, 6)
    rows = zlib.decompress(chunks[b"IDAT"])
    alpha = [[rows[17 * y + 1 + 4 * x + 3] for x in range(4)] for y in range(4)]
    assert alpha == [list(row) for row in zip(*alpha, strict=True)] and alpha[0][0] == 255
    assert alpha[0] == sorted(alpha[0], reverse=True) and alpha[0][3] == 0


def test_a_mix_of_layers_is_no_point_on_the_line_of_layers() -> None:
    page = render(comparison())
    chart = page[page.index('aria-label="Silhouette by layer"') : page.index("<table")]
    assert chart.count("<circle") == 4 and "stands in the table" in page  # two models of two layers each
    assert re.findall(r'text-anchor="middle">(\d+)<', chart) == ["0", "1"]


def test_the_page_is_made_of_the_json_alone() -> None:
    found = comparison()
    again = json.loads(json.dumps(found))
    strip = lambda page: re.sub(r"written [^<]*", "", page)
    assert strip(render(found)) == strip(render(again))
