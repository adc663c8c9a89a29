"""The page of a search over settings: every trial is there, in the table and in the pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from unmask.train.report.trials import write_trials


def trial(number: int, score: float | None, **more: Any) -> dict[str, Any]:
    return {
        "trial": f"trial{number:02d}",
        "learning_rate": 5e-5 * (number + 1),
        "epochs": 3.0,
        "examples": 32,
        "score": score,
        "reached": score,
        "seconds": 70.0,
        "status": "finished",
        "metrics": {},
    } | more


def page(folder: Path, best: str | None, *trials: dict[str, Any]) -> str:
    found = {"metric": "<b>f1", "best": best, "trials": list(trials)}
    return write_trials(folder, found).read_text(encoding="utf-8")


def test_each_trial_with_a_score_is_a_dot_in_each_picture(tmp_path: Path) -> None:
    lost = trial(2, None, status="given up", reached=0.4), trial(3, None, status="diverged", reached=None)
    made = page(tmp_path, "trial01", trial(0, 0.5), trial(1, 0.75), *lost)
    assert made.count("<svg") == 3 and made.count("<circle") == 9
    assert [made.count(f'class="try {kind}"') for kind in ("best", "finished", "given-up", "diverged")] == [3, 3, 3, 0]
    assert "trial02, given up: 0.00015, 0.4000" in made and "Without any score: 1" in made
    heights = re.findall(r'class="try (\w+(?:-\w+)?)" cx="[\d.]+" cy="([\d.]+)"', made)[:3]
    assert sorted(heights, key=lambda one: float(one[1])) == sorted(
        heights, key=lambda one: ["best", "finished", "given-up"].index(one[0])
    ), "the better, the higher"


def test_the_table_links_to_every_trial_the_best_first(tmp_path: Path) -> None:
    made = page(tmp_path, "trial01", trial(0, 0.5), trial(1, 0.75), trial(2, None, reached=0.9, status="given up"))
    table = made[made.index("<tbody>") :]
    assert re.findall(r'href="(trial\d\d)/report.html"', table) == ["trial01", "trial00", "trial02"]
    assert "3 trials in 3 min 30 s" in made and "&lt;b&gt;f1" in made and "<b>f1" not in made


def test_one_trial_and_none_with_a_score_make_a_page_too(tmp_path: Path) -> None:
    assert page(tmp_path, "trial00", trial(0, 0.0)).count("<circle") == 3
    made = page(tmp_path, None, trial(0, None, status="diverged"))
    assert "<svg" not in made and "None has a score" in made and "1 trial in" in made
