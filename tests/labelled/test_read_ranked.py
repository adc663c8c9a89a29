"""Queries with positives and negatives, and retrieval collections, in the forms people have."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmask.errors import UnmaskError
from unmask.labelled.ranked import ranked_from_collection, read_asked, read_collection, read_ranked
from unmask.labelled.records import RankedExample, Read


def reading(folder: Path, name: str, data: str, **options) -> Read[RankedExample]:
    (folder / name).write_text(data, encoding="utf-8")
    return read_ranked(str(folder / name), **options)


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(UnmaskError) as error:
        act()
    return str(error.value)


def content(read: Read[RankedExample]) -> list[tuple[object, ...]]:
    return [(e.query, e.positives, e.negatives, e.scores) for e in read.examples]


def test_lists_of_positives_and_negatives_with_scores_of_a_teacher(tmp_path):
    one = {"query": "q", "pos": ["a", "b"], "neg": ["c"], "pos_scores": [3, 2.5], "neg_scores": [-1], "prompt": "p"}
    other = {"query": "r", "pos": ["a"], "neg": []}
    read = reading(tmp_path, "a.jsonl", lines(one, other))
    assert content(read) == [("q", ("a", "b"), ("c",), (3.0, 2.5, -1.0)), ("r", ("a",), (), None)]
    assert read.examples[1].place == (str(tmp_path / "a.jsonl"), 2, 2) and "not used: 'prompt'" in read.understood


def test_passages_with_a_title(tmp_path):
    record = {
        "query_id": "7",
        "query": "q",
        "positive_passages": [{"docid": "1", "title": "T", "text": "a"}],
        "negative_passages": [{"docid": "2", "text": "b"}, {"docid": "3", "title": "", "text": "c"}],
    }
    assert content(reading(tmp_path, "a.jsonl", lines(record))) == [("q", ("T a",), ("b", "c"), None)]
    ids = {"query_id": "7", "query_text": "q", "positive_document_ids": ["1"], "negative_document_ids": []}
    assert "BEIR folder" in refused(lambda: reading(tmp_path, "a.jsonl", lines(ids)))


@pytest.mark.parametrize(
    ("header", "negatives"),
    [
        ("anchor,positive", ()),
        ("query,answer", ()),
        ("question,passage", ()),
        ("sentence1,sentence2", ()),
        ("anchor,positive,negative", ("n",)),
        ("anchor,positive,negative_1,negative_2", ("n", "m")),
        ("query,pos,neg1,hard_negative_2", ("n", "m")),
    ],
)
def test_columns_of_pairs_and_triplets(tmp_path, header, negatives):
    read = reading(tmp_path, "a.csv", f"{header}\nq,p{''.join(',' + n for n in negatives)}\n")
    assert content(read) == [("q", ("p",), negatives, None)]
    tabs = reading(tmp_path, "a.tsv", f"{header}\nq,p{''.join(',' + n for n in negatives)}\n".replace(",", "\t"))
    assert content(tabs) == content(read)
    cells = dict(zip(header.split(","), [["q"], ["p"], *([n] for n in negatives)], strict=True))
    pq.write_table(pa.table(cells), tmp_path / "a.parquet")
    assert content(read_ranked(str(tmp_path / "a.parquet"))) == content(read)


def test_a_mapping_wins_and_an_empty_cell_is_no_negative(tmp_path):
    data = "title,text,wrong,negative\nq,p,w,n\nr,s,,\n"
    read = reading(tmp_path, "a.csv", data, columns={"query": "title", "positive": "text"})
    assert content(read) == [("q", ("p",), ("n",), None), ("r", ("s",), (), None)]
    read = reading(tmp_path, "a.csv", data, columns={"query": "title", "positive": "text", "negative": "wrong"})
    assert content(read) == [("q", ("p",), ("w",), None), ("r", ("s",), (), None)]
    shown = refused(lambda: reading(tmp_path, "a.csv", data))
    assert "hold the query" in shown and "--map query=" in shown and "'wrong'" in shown


def test_scores_of_all_texts_in_one_list(tmp_path):
    record = {"anchor": "q", "positive": "a", "negative": ["b", "c"], "scores": [1, 0.5, 0]}
    assert content(reading(tmp_path, "a.jsonl", lines(record))) == [("q", ("a",), ("b", "c"), (1.0, 0.5, 0.0))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pos": []}, "no text in 'pos'"),
        ({"pos": None}, "'pos' is null"),
        ({"pos": [3]}, "'pos' is a number"),
        ({"query": None}, "'query' is null"),
        ({"neg": [None]}, "'neg' is null"),
        ({"pos_scores": [1]}, "'neg_scores' is 0 scores for 1 texts"),
        ({"pos_scores": [1, 2], "neg_scores": [0]}, "'pos_scores' is 2 scores for 1 texts"),
        ({"pos_scores": [1], "neg_scores": ["x"]}, "'x' in 'neg_scores' is no finite number"),
        ({"pos_scores": [float("nan")], "neg_scores": [0]}, "is no finite number"),
        ({"scores": 3}, "'scores' is a number for 2 texts"),
    ],
)
def test_a_broken_record_is_named(tmp_path, change, said):
    good = {"query": "q", "pos": ["a"], "neg": ["b"]}
    shown = refused(lambda: reading(tmp_path, "a.jsonl", lines(good, {**good, **change})))
    assert said in shown and "a.jsonl, line 2, record 2" in shown


def test_pairs_with_a_label_are_not_taken_for_matches(tmp_path):
    data = "sentence1,sentence2,label\na,b,0\n"
    shown = refused(lambda: reading(tmp_path, "a.csv", data))
    assert "column 'label' says how well 'sentence1' and 'sentence2' fit" in shown
    assert reading(tmp_path, "a.csv", "anchor,positive,label\na,b,0\n").examples[0].positives == ("b",)
    mapped = reading(tmp_path, "a.csv", data, columns={"query": "sentence1", "positive": "sentence2"})
    assert mapped.examples[0].positives == ("b",)


def test_a_positive_is_never_a_negative_of_its_query(tmp_path):
    record = {"query": "q", "pos": ["a"], "neg": ["b", "a", "c"], "pos_scores": [9], "neg_scores": [1, 8, 2]}
    read = reading(tmp_path, "a.jsonl", lines(record, {"query": "q", "pos": ["a", ""], "neg": []}))
    assert content(read)[0] == ("q", ("a",), ("b", "c"), (9.0, 1.0, 2.0))
    assert "also positives: 1 (first: " in read.warnings[0] and "line 1, record 1" in read.warnings[0]
    assert "empty texts: 1" in read.warnings[1] and "line 2, record 2" in read.warnings[1]


def collection(folder: Path, judgements: str, *, name: str = "qrels/test.tsv", **changes: str) -> Path:
    files = {
        "corpus.jsonl": lines({"_id": "d1", "title": "T", "text": "one"}, {"_id": 2, "text": "two"}),
        "queries.jsonl": lines({"_id": "q1", "text": "first"}, {"_id": "q2", "text": "second"}),
    }
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for file, data in (files | {name: judgements} | {k.replace("_", "."): v for k, v in changes.items()}).items():
        (folder / file).write_text(data, encoding="utf-8")
    return folder


HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
    ("name", "judgements"),
    [
        ("qrels/test.tsv", HEADER + "q1\td1\t1\nq1\t2\t0\n"),
        ("qrels/test.tsv", "q1\td1\t1\nq1\t2\t0"),
        ("qrels/test.tsv", "\ufeff" + HEADER.replace("\n", "\r\n") + "q1\td1\t1\r\nq1\t2\t0\r\n\r\n"),
        ("qrels/test.txt", "q1 0 d1 1\nq1 Q0 2 0\n"),
        ("qrels/test.tsv", "q1\t0\td1\t1\nq1\t0\t2\t0\n"),
    ],
)
def test_a_beir_folder_with_judgements_of_beir_or_trec(tmp_path, name, judgements):
    found = read_collection(str(collection(tmp_path, judgements, name=name)), "test")
    assert found.documents == {"d1": "T one", "2": "two"} and found.titles == {"d1": "T"}
    assert found.queries == {"q1": "first"} and found.relevant == {"q1": {"d1": 1, "2": 0}}
    assert "2 judgements of 1 queries over 2 documents" in found.understood[0] and not found.warnings
    read = ranked_from_collection(found)
    assert content(read) == [("first", ("T one",), ("two",), None)]
    assert read.examples[0].place == (str(tmp_path / name), 0, 1)


def test_a_compressed_folder_is_read(tmp_path):
    collection(tmp_path, HEADER + "q2\td1\t2\n")
    for file in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / f"{file}.gz").write_bytes(gzip.compress((tmp_path / file).read_bytes()))
        (tmp_path / file).unlink()
    assert read_collection(str(tmp_path), "test").relevant == {"q2": {"d1": 2}}


def test_judgements_of_unknown_ids_are_left_out_and_counted(tmp_path):
    folder = collection(tmp_path, HEADER + "q1\td1\t1\nq9\td1\t1\nq1\td9\t1\nq2\td8\t1\n")
    found = read_collection(str(folder), "test")
    assert found.relevant == {"q1": {"d1": 1}}
    query, document = found.warnings
    assert "query is not among the queries: 1" in query and "test.tsv, line 3, record 2, query 'q9'" in query
    assert "not in the corpus: 2" in document and "test.tsv, line 4, record 3, document 'd9'" in document
    shown = refused(lambda: read_collection(str(collection(tmp_path, HEADER + "q9\td1\t1\n")), "test"))
    assert "no judgement is about" in shown


def test_queries_without_a_relevant_document_teach_nothing(tmp_path):
    read = ranked_from_collection(read_collection(str(collection(tmp_path, "q1\td1\t1\nq2\td1\t0\n")), "test"))
    assert len(read.examples) == 1 and "without a relevant document: 1" in read.warnings[0]
    with pytest.raises(UnmaskError, match="no query has a relevant document"):
        ranked_from_collection(read_collection(str(collection(tmp_path, "q1\td1\t0\n")), "test"))


@pytest.mark.parametrize(
    ("judgements", "changes", "said"),
    [
        (HEADER + "q1\td1\n", {}, "test.tsv, line 2, record 1"),
        (HEADER + "q1\td1\t1\nq1\td1\t0.5\n", {}, "test.tsv, line 3, record 2"),
        ("q1\td1\t1.0\n", {}, "test.tsv, line 1, record 1"),
        ("q1\td1\t1\nq1\td1\t0\n", {}, "judged twice for query 'q1'"),
        (HEADER, {"corpus_jsonl": lines({"_id": "d", "text": "a"}, {"_id": "d", "text": "b"})}, "line 2, record 2"),
        (HEADER, {"corpus_jsonl": lines({"_id": "d", "text": None})}, "'text' is null"),
        (HEADER, {"corpus_jsonl": lines({"_id": "d", "title": 3, "text": "a"})}, "'title' is a number"),
        (HEADER, {"corpus_jsonl": lines({"text": "a"})}, "the _id is null"),
        (HEADER, {"queries_jsonl": lines({"_id": "", "text": "a"})}, "the _id is empty"),
        (HEADER, {"queries_jsonl": lines({"_id": "q"})}, "'text' is null"),
        (HEADER, {}, "no judgement is about"),
    ],
)
def test_a_broken_folder_is_named(tmp_path, judgements, changes, said):
    folder = collection(tmp_path, judgements, **changes)
    assert said in refused(lambda: read_collection(str(folder), "test"))


def test_missing_files_list_those_there_are(tmp_path):
    folder = collection(tmp_path, HEADER)
    assert "the splits there are: test.tsv" in refused(lambda: read_collection(str(folder), "dev"))
    (folder / "queries.jsonl").unlink()
    assert "no queries.jsonl" in refused(lambda: read_collection(str(folder), "test"))
    assert "there is no such folder" in refused(lambda: read_collection(str(folder / "no"), "test"))


def test_a_beir_folder_is_trained_on_by_the_name_of_its_split(tmp_path):
    folder = collection(tmp_path, "q1\td1\t1\n", name="qrels/train.tsv")
    wanted = ranked_from_collection(read_collection(str(folder), "train"))
    for source in (folder, folder / "train"):
        assert read_ranked(str(source)).examples == wanted.examples
    (folder / "qrels" / "dev.tsv").write_text("q2\td1\t1\n", encoding="utf-8")
    assert f"name one, e.g. {folder / 'dev'}" in refused(lambda: read_ranked(str(folder)))
    assert [example.query for example in read_ranked(str(folder / "dev")).examples] != [wanted.examples[0].query]
    assert "the splits there are" in refused(lambda: read_ranked(str(folder / "nowhere")))


def test_texts_to_rank_need_no_answer_among_them(tmp_path):
    def asked(row, **columns):
        path = tmp_path / "asked.jsonl"
        path.write_text(json.dumps(row), encoding="utf-8")
        (one,) = read_asked(str(path), columns=columns).examples
        assert one.positives == () and one.scores is None
        return one.query, one.negatives

    assert asked({"query": "q", "texts": ["a", "", "a"]}) == ("q", ("a", "", "a"))
    assert asked({"query": "q", "neg": ["a", "b"]}) == ("q", ("a", "b"))
    assert asked({"query": "q", "pos": ["a"], "neg": ["b", "a"]}) == ("q", ("a", "b", "a"))
    assert asked({"anchor": "q", "passage": "a", "label": 0}) == ("q", ("a",)), "no label is looked at"
    assert asked({"query": "q", "hits": ["a"]}, texts="hits") == ("q", ("a",))
    assert asked({"query": "q", "positive": "", "negative": ""}) == ("q", ("",)), "an empty negative is none"
    assert "no text to rank" in refused(lambda: asked({"query": "q", "texts": []}))
    assert "--map texts=COLUMN" in refused(lambda: asked({"query": "q", "hits": ["a"]}))
