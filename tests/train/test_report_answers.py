"""What a fine-tuned model answers on its dev set, on the page."""

from __future__ import annotations

from pathlib import Path

from report_runs import step, write_run

from unmask.train.report.charts import charts
from unmask.train.report.data import read_history
from unmask.train.report.page import write_report


def test_long_names_of_labels_can_be_told_apart_in_the_matrix(tmp_path: Path) -> None:
    names = [f"a question about the delivery of a parcel, which is {end}" for end in ("late", "lost", '" onclick=x')]
    dev = {"records": 6, "metrics": {"accuracy": 1.0}, "confusion": {"labels": names, "counts": [[2, 0, 0]] * 3}}
    page = _page(tmp_path, dev)
    for name in names[:2]:
        assert page.count(f'title="{name}"') == 2 and page.count(f"<bdi>{name}</bdi>") == 2
    assert 'onclick=x"' not in page.replace("&#34; onclick=x", "")


def test_scores_by_length_are_named_by_the_metric_that_they_are(tmp_path: Path) -> None:
    lengths = [
        {"tokens": "3 to 9", "records": 4, "score": 0.5, "cost": 1.25},
        {"tokens": "11", "records": 2, "score": None, "cost": 0.0},
    ]
    page = _page(tmp_path, {"records": 6, "metrics": {"f1": 0.5}, "lengths": lengths})
    assert "By length" in page and "3 to 9" in page and "0.5000" in page and "and f1 of the records" in page
    assert "<td>2</td><td>–</td>" in page


def test_labels_too_many_for_their_table_are_counted_and_the_rarest(tmp_path: Path) -> None:
    rows = [{"label": f"name {at}", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": at} for at in range(203)]
    page = _page(tmp_path, {"records": 6, "metrics": {"f1": 0.5}, "labels": rows})
    assert "The 3 rarest labels are left out" in page and "name 202<" in page and "name 2<" not in page


def test_no_cost_is_drawn_among_the_scores(tmp_path: Path) -> None:
    metrics = {"spearman": 0.5, "log_loss": 0.25, "mean_squared_error": 0.5, "r_squared": 0.25}
    write_run(tmp_path, [step(1), {"kind": "evaluation", "step": 1, "score": 0.5, "metrics": metrics}])
    history = read_history(tmp_path / "metrics.jsonl")
    (scores,) = [chart for chart in charts(history, None) if chart.title == "Scores"]
    assert {line.label for view in scores.views for line in view.lines} == {"spearman", "r_squared"}


def _page(folder: Path, dev: object) -> str:
    write_run(folder, [step(1)], dev=dev)
    return write_report(folder).read_text(encoding="utf-8")
