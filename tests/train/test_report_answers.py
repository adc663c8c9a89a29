"""What a fine-tuned model answers on its dev set, on the page."""

from __future__ import annotations

from pathlib import Path

from report_runs import step, write_run

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


def _page(folder: Path, dev: object) -> str:
    write_run(folder, [step(1)], dev=dev)
    return write_report(folder).read_text(encoding="utf-8")
