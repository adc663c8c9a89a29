"""report.html: one page that shows how a training run went, from its run.json and metrics.jsonl alone.

The page is a single file that asks nothing of the network and runs only the script written into it (a strict
content security policy holds it to that). Without JavaScript it shows the same pictures, not interactive.

Of run.json["result"] the page uses, each when present: `status` ("running", "finished", anything else:
stopped), `why` (words) and `unigram_entropy` (nats a token, of the held-out text). No result: the run counts as running.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from unmask.files import write_file
from unmask.train.report import text
from unmask.train.report.answers import answers
from unmask.train.report.charts import as_data, charts, draw
from unmask.train.report.data import History, read_history, read_run
from unmask.train.report.tables import (
    corpus_parts,
    figures,
    flat,
    phases,
    plans,
    settings_groups,
    status,
    summary,
    table,
    warning,
)


def write_report(run_folder: Path) -> Path:
    """Writes `<run_folder>/report.html` in one atomic step and returns its path. Whatever is not recorded yet is said in words.

    UnmaskError when the folder holds no run.json or it can't be read; DamagedError when it is not JSON.
    """
    run = read_run(run_folder / "run.json")
    history = read_history(run_folder / "metrics.jsonl")
    page = render(run_folder.resolve().name, run, history)
    target = run_folder / "report.html"
    write_file(target, page)
    return target


def render(name: str, run: dict[str, Any], history: History) -> str:
    """The page as text; `name` is the run's."""
    result = table(run.get("result"))
    entropy = text.number(result.get("unigram_entropy"))
    shown = charts(history, entropy)
    samples = history.samples.page()
    style, script = _asset("page.css"), _asset("page.js") + _asset("samples.js")
    page = _template().render(
        name=name,
        status=status(run, history),
        summary=summary(history, entropy),
        warning=warning(history),
        cards=figures(run, history, entropy),
        charts=[(chart, draw(history, chart)) for chart in shown],
        samples=samples,
        data=_for_script({**as_data(history, shown), "samples": samples}),
        settings=settings_groups(table(run.get("run")), exact=True),
        corpus=corpus_parts(table(run.get("corpus"))),
        answers=answers(run.get("dev")),
        tuning="task" in table(run.get("run")),
        machine=flat(table(run.get("machine"))),
        versions=flat(table(run.get("versions"))),
        model=flat(table(run.get("model"))),
        plans=plans(run, history),
        phases=phases(run, history),
        history=history,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        style_hash=_policy_hash(style),
        script_hash=_policy_hash(script),
    )
    return page.encode("utf-8", "replace").decode("utf-8")


@cache
def _template() -> jinja2.Template:
    """Compiling it takes longer than filling it in, and some processes train many runs."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(visible=text.visible, count=text.count, percent=text.percent)
    return environment.from_string(_asset("page.html"))


def _asset(name: str) -> str:
    return package_files("unmask.train.report").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _policy_hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _for_script(data: dict[str, Any]) -> Markup:
    """JSON for a script element: ASCII only, and no character that could end the element or open a comment."""
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return Markup(plain)  # noqa: S704
