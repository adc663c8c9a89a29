"""`unmask finetune --search` and `--per-label`: several runs of a task, and which was best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Road, unmask

FAST = ("--set", "machine.threads=1", "--set", "machine.device=cpu", "--set", "max_length=32", "--set", "examples=8")
RATE = ("--set", "optimizer.learning_rate=1e-3")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"text": f"the {'good' if n % 2 else 'bad'} one {n}", "label": "no" if n % 2 else "yes"} for n in range(24)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path / "data.jsonl"


def words(road: Road, data: Path, *more: object) -> tuple[object, ...]:
    return (
        "finetune",
        "classify",
        "-m",
        road.model,
        "-t",
        data,
        "-o",
        data.parent / "out",
        "--epochs",
        1,
        *FAST,
        *more,
    )


def found(data: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((data.parent / "out" / "search.json").read_text(encoding="utf-8"))
    return table


def test_a_search_tries_settings_and_names_the_best(road: Road, data: Path) -> None:
    answer = unmask(*words(road, data, "-d", data, "--search", 3, *RATE))
    assert answer.code == 0, answer.err
    table = found(data)
    assert table["metric"] == "accuracy" and [row["trial"] for row in table["trials"]] == [
        "trial00",
        "trial01",
        "trial02",
    ]
    first = table["trials"][0]
    assert (first["learning_rate"], first["epochs"], first["examples"], first["status"]) == (1e-3, 1.0, 8, "finished")
    scores = [row["score"] for row in table["trials"]]
    assert table["best"] == f"trial{scores.index(max(scores)):02d}" and f"{table['best']}/model" in answer.out
    assert all((data.parent / "out" / row["trial"] / "model").is_dir() for row in table["trials"])
    assert "learning_rate" in answer.out and "trial02" in answer.out


def test_finished_trials_are_taken_as_they_are(road: Road, data: Path) -> None:
    first = unmask(*words(road, data, "-d", data, "--search", 1, *RATE))
    assert first.code == 0, first.err
    model, before = data.parent / "out" / "trial00" / "model", found(data)["trials"]
    made = model.stat().st_mtime_ns
    again = unmask(*words(road, data, "-d", data, "--search", 2, *RATE))
    assert again.code == 0, again.err
    assert model.stat().st_mtime_ns == made and found(data)["trials"][:1] == before and len(found(data)["trials"]) == 2


def test_minutes_end_a_search_after_the_first_trial(road: Road, data: Path) -> None:
    answer = unmask(*words(road, data, "-d", data, "--search-minutes", 1e-6, *RATE))
    assert answer.code == 0, answer.err
    assert len(found(data)["trials"]) == 1


def test_trials_that_diverge_have_lost_and_where_all_do_it_is_said(road: Road, data: Path) -> None:
    answer = unmask(*words(road, data, "-d", data, "--search", 1, "--set", "optimizer.learning_rate=1e30"))
    assert answer.code == 2 and "no trial has a score" in answer.err and "trial00 is given up" in answer.err
    assert [row["status"] for row in found(data)["trials"]] == ["diverged"]


def test_a_trial_that_falls_behind_does_not_end_the_search(
    road: Road, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unmask.tasks import search

    monkeypatch.setattr(search, "unpromising", lambda scores, others, evaluations: len(others) == 1 and len(scores) > 1)
    answer = unmask(*words(road, data, "-d", data, "--search", 3, *RATE))
    assert answer.code == 0, answer.err
    assert [row["status"] for row in found(data)["trials"]] == ["finished", "given up", "finished"]
    assert found(data)["trials"][1]["score"] is None and "trial01 is given up" in answer.err
    assert not (data.parent / "out" / "trial01" / "model").exists()
    before = (data.parent / "out" / "trial01" / "metrics.jsonl").read_bytes()
    assert unmask(*words(road, data, "-d", data, "--search", 3, *RATE)).code == 0
    assert (data.parent / "out" / "trial01" / "metrics.jsonl").read_bytes() == before, "it is not begun again"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--search", 2), "give --dev"),
        (("--search", 2, "--seeds", 2), "one seed"),
        (("--search", 2, "--resume"), "keeps the settings"),
        (("--per-label", 2, "--resume"), "keeps the settings"),
    ],
)
def test_what_a_search_needs_is_named(road: Road, data: Path, more: tuple[object, ...], said: str) -> None:
    answer = unmask(*words(road, data, *more))
    assert answer.code == 2 and said in answer.err


def test_each_seed_draws_its_own_few_records(road: Road, data: Path) -> None:
    answer = unmask(*words(road, data, "-d", data, "--per-label", 3, "--seeds", 2))
    assert answer.code == 0, answer.err
    assert "6 of 24 records kept, 3 per label" in answer.err
    runs = [json.loads((data.parent / "out" / f"seed{n}" / "run.json").read_text(encoding="utf-8")) for n in (0, 1)]
    assert [run["data"]["train"] for run in runs] == [6, 6] and runs[0]["records"] != runs[1]["records"]


def test_few_records_of_each_number_are_refused(road: Road, data: Path) -> None:
    answer = unmask("finetune", "regress", "-m", road.model, "-t", data, "--per-label", 2)
    assert answer.code == 2 and "none to draw by" in answer.err
