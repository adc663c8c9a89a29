"""`unmask finetune --search` and `--per-label`: several runs of a task, and which was best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import Road, unmask

from unmask.cli.search import _compare
from unmask.config import FineTuning, Keeping
from unmask.tasks.search import Unpromising
from unmask.train.journal import update_run
from unmask.train.report.data import read_history

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


def result(data: Path, trial: int) -> dict[str, Any]:
    path = data.parent / "out" / f"trial{trial:02d}" / "run.json"
    noted: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["result"]
    return noted


def forget(data: Path, trial: int) -> None:
    """The end of a trial, as after a kill that came before it was written down."""
    update_run(data.parent / "out" / f"trial{trial:02d}", result={"status": "running"})


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


def test_trials_that_are_over_are_shown_whatever_the_minutes(road: Road, data: Path) -> None:
    assert unmask(*words(road, data, "-d", data, "--search", 2, *RATE)).code == 0
    before = found(data)
    assert unmask(*words(road, data, "-d", data, "--search-minutes", 1e-6, *RATE)).code == 0
    assert found(data) == before and len(before["trials"]) == 2
    training = read_history(data.parent / "out" / "trial00" / "metrics.jsonl").last_step["seconds"]
    assert before["trials"][0]["seconds"] > training, "reading, evaluating and saving take time too"


def test_trials_that_diverge_have_lost_and_where_all_do_it_is_said(road: Road, data: Path) -> None:
    answer = unmask(*words(road, data, "-d", data, "--search", 1, "--set", "optimizer.learning_rate=1e30"))
    assert answer.code == 2 and "no trial has a score" in answer.err and "trial00 has diverged" in answer.err
    assert [row["status"] for row in found(data)["trials"]] == ["diverged"] and found(data)["best"] is None
    noted, before = result(data, 0), (data.parent / "out" / "trial00" / "metrics.jsonl").stat().st_mtime_ns
    assert noted["status"] == "diverged" and "finite" in noted["why"]
    assert unmask(*words(road, data, "-d", data, "--search", 1, "--set", "optimizer.learning_rate=1e30")).code == 2
    assert (data.parent / "out" / "trial00" / "metrics.jsonl").stat().st_mtime_ns == before, "it is not begun again"


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
    noted = result(data, 1)
    assert noted["status"] == "given up" and "behind the median" in noted["why"] and noted["metrics"] == {}
    assert "behind the median" in (data.parent / "out" / "trial01" / "report.html").read_text(encoding="utf-8")
    forget(data, 1)
    assert unmask(*words(road, data, "-d", data, "--search", 3, *RATE)).code == 0
    assert result(data, 1)["status"] == "given up"
    assert (data.parent / "out" / "trial01" / "metrics.jsonl").read_bytes() == before, "it is not begun again"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--search", 2), "give --dev"),
        (("--search", 2, "-d", "-"), "standard input can be read once"),
        (("--search", 2, "--seeds", 2), "one seed"),
        (("--search", 2, "--resume"), "keeps the settings"),
        (("--per-label", 2, "--resume"), "keeps the settings"),
    ],
)
def test_what_a_search_needs_is_named(road: Road, data: Path, more: tuple[object, ...], said: str) -> None:
    answer = unmask(*words(road, data, *more))
    assert answer.code == 2 and said in answer.err


def test_folders_of_other_runs_are_refused_and_left_alone(road: Road, data: Path) -> None:
    out = data.parent / "out"
    assert unmask(*words(road, data, "-d", data, "--search", 1, *RATE)).code == 0
    report, before = (out / "report.html").read_bytes(), (out / "trial00" / "run.json").read_bytes()
    for more, said in (
        (("--set", "seed=9"), "there is a run in this folder"),
        (("--map", "text=text"), "other columns"),
    ):
        answer = unmask(*words(road, data, "-d", data, "--search", 1, *RATE, *more))
        assert answer.code == 2 and said in answer.err and "trial00" in answer.err
    (out / "run.json").write_bytes(before)
    answer = unmask(*words(road, data, "-d", data, "--search", 1, *RATE))
    assert answer.code == 2 and "give the search another --out" in answer.err
    assert (out / "report.html").read_bytes() == report and (out / "trial00" / "run.json").read_bytes() == before


def test_finished_runs_are_not_taken_for_those_of_other_files(road: Road, data: Path) -> None:
    """Neither trials nor seeds; nor is a plain run put into the folder of a search."""
    several = (("--search", 1, "trial00", ()), ("--seeds", 2, "seed0", ("--per-label", 3)))
    for option, count, _, more in several:
        answer = unmask(*words(road, data, "-d", data, option, count, *more, *RATE))
        assert answer.code == 0, answer.err
        assert unmask(*words(road, data, "-d", data, option, count, *more, *RATE)).code == 0
    answer = unmask(*words(road, data, "-d", data, *RATE))
    assert answer.code == 2 and "there is a search in this folder" in answer.err
    answer = unmask(*words(road, data, "-d", data, "--seeds", 2, "--per-label", 3, *RATE, "--map", "text=text"))
    assert answer.code == 2 and "other columns" in answer.err and "seed0" in answer.err
    data.write_text(data.read_text(encoding="utf-8").replace("good", "fine"), encoding="utf-8")
    for option, count, folder, more in several:
        answer = unmask(*words(road, data, "-d", data, option, count, *more, *RATE))
        assert answer.code == 2 and "are not those that the run in this folder learned from" in answer.err
        assert folder in answer.err
        update_run(data.parent / "out" / folder, records="as it was written before")
    answer = unmask(*words(road, data, "-d", data, "--search", 1, *RATE))
    assert answer.code == 0, "an older run says nothing that could be compared"


def test_who_stops_a_trial_is_told_how_the_search_goes_on(
    road: Road, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise typer.Exit(130)

    monkeypatch.setattr("unmask.cli.search.again", stop)
    answer = unmask(*words(road, data, "-d", data, "--search", 2))
    assert answer.code == 130 and "give its command again" in answer.out


def test_a_trial_of_few_steps_is_not_given_up_at_its_end(tmp_path: Path) -> None:
    run, others = FineTuning(keeping=Keeping(evaluations=3)), [[0.0, 0.5, 0.5, 0.5]] * 3
    for steps in (9, 2):
        records: list[dict[str, Any]] = [{"kind": "evaluation", "step": 0, "score": 0.1}]
        for step in (1, 2):
            records.append({"kind": "step", "step": step, "total_steps": steps})
            records.append({"kind": "evaluation", "step": step, "score": 0.1})
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if steps == 9:
            with pytest.raises(Unpromising):
                _compare(run, tmp_path, others)
    _compare(run, tmp_path, others)


def test_each_seed_draws_its_own_few_records(road: Road, data: Path) -> None:
    answer = unmask(*words(road, data, "-d", data, "--per-label", 3, "--seeds", 2))
    assert answer.code == 0, answer.err
    assert "6 of 24 records kept, 3 per label" in answer.err
    runs = [json.loads((data.parent / "out" / f"seed{n}" / "run.json").read_text(encoding="utf-8")) for n in (0, 1)]
    assert [run["data"]["train"] for run in runs] == [6, 6] and runs[0]["records"] != runs[1]["records"]


def test_few_records_of_each_number_are_refused(road: Road, data: Path) -> None:
    answer = unmask("finetune", "regress", "-m", road.model, "-t", data, "--per-label", 2)
    assert answer.code == 2 and "none to draw by" in answer.err
