"""The report in a real browser: its script runs without an error, and hostile text stays text there too."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from report_runs import evaluation, hostile_run, ordinary_run, phased_run, step, write_run

from unmask.train.report.page import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=1500""".split()


def opened(page: Path, profile: Path) -> tuple[str, str]:
    """The document after its script ran, and what the browser's console said."""
    assert BROWSER
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", "--dump-dom", page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True, encoding="utf-8")
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def unscripted(folder: Path) -> Path:
    records = [evaluation(0, 9.0), *map(step, range(1, 5))]
    return write_run(folder, records)


@pytest.mark.skipif(
    BROWSER is None, reason="needs a browser: none of chromium, chromium-browser, google-chrome is installed"
)
@pytest.mark.parametrize(
    "make", [ordinary_run, hostile_run, phased_run, unscripted, lambda folder: write_run(folder, [])]
)
def test_the_page_works_in_a_browser(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    page = write_report(make(tmp_path / "a run"))
    document, console = opened(page, tmp_path / "profile")
    assert console == ""  # no script error, nothing refused by the policy
    assert 'class="scripted"' in document and "<title>a run" in document
    assert "<img" not in document and document.count("<script") == 2
    if make is phased_run:
        assert document.count('<line class="phase"') == document.count("<figure") > 1
        assert (
            '<mark class="right"><bdi title="80.0 %">dog</bdi></mark> <u><bdi title="20.0 %">ran</bdi></u>' in document
        )
    if make in (ordinary_run, hostile_run):
        assert ">step 1" in document.split('id="sample-label"')[1][:30]  # the last thing the script does


@pytest.mark.skipif(
    BROWSER is None, reason="needs a browser: none of chromium, chromium-browser, google-chrome is installed"
)
def test_a_script_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    page = write_report(ordinary_run(tmp_path / "run"))
    page.write_text(
        page.read_text().replace(
            "<main>", "<main><script>document.title = 'broken out'</script><img src=x onerror='document.title=1'>"
        )
    )
    document, console = opened(page, tmp_path / "profile")
    assert "<title>run" in document
    assert "Content Security Policy" in console


@pytest.mark.skipif(
    BROWSER is None, reason="needs a browser: none of chromium, chromium-browser, google-chrome is installed"
)
def test_a_confusion_of_many_long_labels_can_be_read(tmp_path: Path) -> None:
    names = [f"cash_withdrawal_not_recognised_by_the_app_{at:02d}" for at in range(24)]
    dev = {"records": 24, "confusion": {"labels": names, "counts": [[int(a == b) for a in names] for b in names]}}
    page = write_report(write_run(tmp_path / "run", [step(1)], dev=dev))
    text = page.read_text(encoding="utf-8")
    policy = text[text.index("<meta http-equiv") : text.index("<meta name")]
    measure = "Math.max(...[...document.querySelectorAll('.confusion tbody tr')].map((row) => row.offsetHeight))"
    text = text.replace(policy, "").replace("</body>", f"<script>document.title = {measure}</script></body>")
    page.write_text(text, encoding="utf-8")
    document, _ = opened(page, tmp_path / "profile")
    height = int(document.split("<title>")[1].split("</title>")[0])
    assert 20 < height < 80, "names of rows are not pressed to a letter a line"
