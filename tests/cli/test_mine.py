"""`unmask mine`: what it writes is read by `unmask finetune`, and holds no known answer among the negatives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Road, unmask

FAST = ("--set", "machine.threads=1", "--set", "machine.device=cpu", "--set", "max_length=32", "--set", "examples=4")


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def mined(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two answers of one query, in two records, and one of another."""
    rows = [("what is one", "one is a number"), ("What is  one", "the first"), ("what is two", "two is a number")]
    return lines(tmp_path / "pairs.jsonl", [{"ask": query, "positive": text} for query, text in rows])


def test_negatives_come_from_the_corpus_and_are_never_known_answers(road: Road, pairs: Path, tmp_path: Path) -> None:
    documents = [{"_id": f"d{n}", "title": "", "text": f"{n} is near a number"} for n in range(9)]
    corpus = lines(
        tmp_path / "documents.jsonl", [*documents, {"text": "One is  a NUMBER"}, {"text": "what is one"}, {"text": ""}]
    )
    answer = unmask(
        "mine", road.model, pairs, "--corpus", corpus, "-o", tmp_path / "mined.jsonl", "--map", "query=ask",
        "--negatives", 20, "--margin", -2,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    one, two = mined(tmp_path / "mined.jsonl")
    assert one["query"] == "what is one" and one["pos"] == ["one is a number", "the first"]
    others = {f"{n} is near a number" for n in range(9)}
    assert set(one["neg"]) == others | {"two is a number"}, (
        "each text once, neither answers nor the query nor an empty one"
    )
    assert set(two["neg"]) == others | {"one is a number", "the first", "what is one"}
    for task in ("contrast", "rank"):
        tuned = unmask(
            "finetune",
            task,
            "-m",
            road.model,
            "-t",
            tmp_path / "mined.jsonl",
            "-o",
            tmp_path / task,
            "--epochs",
            1,
            *FAST,
        )
        assert tuned.code == 0, tuned.err


def test_without_a_corpus_the_file_s_own_texts_are_searched(road: Road, pairs: Path, tmp_path: Path) -> None:
    words = ("mine", road.model, pairs, "-o", tmp_path / "m.jsonl", "--map", "query=ask", "--margin", -2)
    answer = unmask(*words)
    assert answer.code == 0, answer.err
    assert "documents, " not in answer.err, "none is there twice"
    again = lines(tmp_path / "again.jsonl", [{"text": "One is a  NUMBER"}, {"text": ""}, {"text": "new"}])
    said = unmask(*words, "--corpus", again, "-o", tmp_path / "more.jsonl")
    assert said.code == 0 and "6 documents, 4 of them different" in said.err
    assert [row["neg"] for row in mined(tmp_path / "m.jsonl")][0] == ["two is a number"]
    answer = unmask(*words, "--skip", 3)
    assert answer.code == 0 and "queries without a negative: 2" in answer.err


@pytest.mark.parametrize("form", ["beir", "beside"])
def test_a_beir_folder_is_searched_whole_and_its_judgements_are_known_by_id(
    road: Road, tmp_path: Path, form: str
) -> None:
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    lines(beir / "corpus.jsonl", [{"_id": f"d{n}", "title": "A", "text": f"number {n}"} for n in range(6)])
    lines(beir / "queries.jsonl", [{"_id": "q1", "text": "which"}, {"_id": "q2", "text": "Which "}])
    judged = "query-id\tcorpus-id\tscore\nq1\td0\t1\nq2\td1\t1\nq1\td2\t0\n"
    (beir / "qrels" / "train.tsv").write_text(judged, encoding="utf-8")
    rows = [{"query": "which", "pos": ["a number 0", "A number 1"]}]
    source = beir if form == "beir" else lines(tmp_path / "pairs.jsonl", rows)
    corpus = () if form == "beir" else ("--corpus", beir)
    answer = unmask("mine", road.model, source, *corpus, "-o", tmp_path / "m.jsonl", "--negatives", 9, "--margin", -2)
    assert answer.code == 0, answer.err
    for row in mined(tmp_path / "m.jsonl"):
        assert set(row["neg"]) == {f"A number {n}" for n in (2, 3, 4, 5)}, "an equal query's answer is this one's too"


def test_a_split_without_an_answer_and_scores_that_get_lost_are_named(road: Road, tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    lines(tmp_path / "corpus.jsonl", [{"_id": "d1", "text": "one"}])
    lines(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "which"}])
    (tmp_path / "qrels" / "train.tsv").write_text("q1\td1\t0\n", encoding="utf-8")
    answer = unmask("mine", road.model, tmp_path, "-o", tmp_path / "m.jsonl")
    assert answer.code == 2 and "no query has a text that answers it" in answer.err
    row = {"query": "which", "pos": ["one"], "neg": ["two"], "pos_scores": [2.0], "neg_scores": [1.0]}
    answer = unmask("mine", road.model, lines(tmp_path / "scored.jsonl", [row]), "-o", tmp_path / "m.jsonl")
    assert answer.code == 0 and "scores are not kept" in answer.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("-o", "pairs.jsonl"), "overwrite"),
        (("-o", "m.jsonl", "--corpus", "m.jsonl"), "m.jsonl"),
        (("-o", "m.txt"), "ends in .jsonl"),
        (("-o", "m.jsonl", "--skip", 5, "--depth", 5), "--skip"),
        (("-o", "m.jsonl", "--corpus", "numbers.csv"), "text"),
    ],
)
def test_what_can_t_be_mined_is_named(
    road: Road, pairs: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...], said: str
) -> None:
    monkeypatch.chdir(pairs.parent)
    Path("numbers.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    answer = unmask("mine", road.model, pairs, "--map", "query=ask", *more)
    assert answer.code == 2 and said in answer.err
