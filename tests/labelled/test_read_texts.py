"""Texts, pairs, labels and numbers are found in the columns people have, and nothing is guessed that could be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmask.errors import UnmaskError
from unmask.labelled.records import Read, TextExample
from unmask.labelled.texts import PAIRS, TEXTS, read_texts


def reading(folder: Path, name: str, data: str, **options) -> Read[TextExample]:
    (folder / name).write_text(data, encoding="utf-8", newline="")
    return read_texts(str(folder / name), **options)


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(UnmaskError) as error:
        act()
    return str(error.value)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_found_by_its_usual_names(tmp_path, name):
    read = reading(tmp_path, "a.csv", f"id,{name.upper()},Label\n7,Ada,x\n8,Rome,y\n")
    assert [(e.text, e.pair, e.label) for e in read.examples] == [("Ada", None, "x"), ("Rome", None, "y")]
    assert read.examples[1].place == (str(tmp_path / "a.csv"), 3, 2)
    assert read.understood[1:] == (
        f"column {name.upper()!r} holds the text",
        "column 'Label' holds the label",
        "not used: 'id'",
    )


@pytest.mark.parametrize("names", PAIRS)
def test_a_pair_is_found_by_its_usual_names(tmp_path, names):
    read = reading(tmp_path, "a.tsv", f"{names[1]}\tlabel\t{names[0]}\nB\tx\tA\n")
    assert (read.examples[0].text, read.examples[0].pair) == ("A", "B")
    assert f"column {names[1]!r} holds the second text" in read.understood


def test_a_mapping_wins_over_every_name(tmp_path):
    data = "text,label,review,stars\nno,no,yes,5\n"
    read = reading(tmp_path, "a.csv", data, columns={"text": "review", "label": "stars"})
    assert (read.examples[0].text, read.examples[0].label) == ("yes", "5")
    read = reading(tmp_path, "a.csv", data, columns={"pair": "review", "label": "stars"})
    assert (read.examples[0].text, read.examples[0].pair) == ("no", "yes")


def test_the_only_column_of_words_is_the_text(tmp_path):
    read = reading(tmp_path, "a.csv", "id,what,label\n1,Ada is here,0\n2,Rome,1\n")
    assert [e.text for e in read.examples] == ["Ada is here", "Rome"]


def test_missing_and_misspelt_columns_list_those_there_are(tmp_path):
    shown = refused(lambda: reading(tmp_path, "a.csv", "one,two,label\nx,y,z\n"))
    assert "'one', 'two', 'label'" in shown and "--map text=COLUMN" in shown and "a.csv" in shown
    shown = refused(lambda: reading(tmp_path, "a.csv", "review,label\nx,y\n", columns={"text": "reveiw"}))
    assert "did you mean 'review'" in shown
    assert "--map label=COLUMN" in refused(lambda: reading(tmp_path, "a.csv", "text,two\nx,y\n"))
    assert "'txt' cannot be mapped" in refused(lambda: reading(tmp_path, "a.csv", "text\nx\n", columns={"txt": "text"}))
    shown = refused(lambda: reading(tmp_path, "a.jsonl", lines({"text": "a", "label": "x"}, {"text": "b"})))
    assert "no 'label'" in shown and "a.jsonl, line 2, record 2" in shown


def test_labels_may_be_words_numbers_and_truth_values_with_spaces_and_in_any_script(tmp_path):
    given = ["very good", "好評", 3, 4.0, True, " pad "]
    read = reading(tmp_path, "a.jsonl", lines(*({"text": "t", "label": label} for label in given)))
    assert [e.label for e in read.examples] == ["very good", "好評", "3", "4", "true", "pad"]


@pytest.mark.parametrize(
    ("label", "said"),
    [(None, "null"), (float("nan"), "NaN"), ("", "empty"), ("  ", "empty"), (0.5, "the number 0.5"), (["a"], "a list")],
)
def test_a_label_that_is_none_names_file_line_and_record(tmp_path, label, said):
    data = lines({"text": "a", "label": "x"}) + "\n" + lines({"text": "b", "label": label})
    shown = refused(lambda: reading(tmp_path, "a.jsonl", data))
    assert f"'label' is {said}" in shown and "a.jsonl, line 3, record 2" in shown


def test_an_empty_cell_is_no_label_but_null_and_nan_are_words(tmp_path):
    read = reading(tmp_path, "a.csv", "text,label\nnull,NA\nnan,None\n")
    assert [(e.text, e.label) for e in read.examples] == [("null", "NA"), ("nan", "None")]
    assert "line 3, record 2" in refused(lambda: reading(tmp_path, "a.csv", "text,label\na,x\nb,\n"))
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.0, None]}), tmp_path / "a.parquet")
    assert "a.parquet, record 2" in refused(lambda: read_texts(str(tmp_path / "a.parquet")))


def test_B007_an_empty_text_is_kept_and_counted_with_its_line(tmp_path):
    read = reading(tmp_path, "a.csv", "text,label\na,x\n,y\n,x\n")
    assert [e.text for e in read.examples] == ["a", "", ""]
    assert read.warnings == (f"empty texts: 2 (first: {tmp_path / 'a.csv'}, line 3, record 2)",)
    for text in (None, 3, ["a"]):
        shown = refused(lambda text=text: reading(tmp_path, "a.jsonl", lines({"text": text, "label": "x"})))
        assert "not a string" in shown and "line 1, record 1" in shown


def test_B010_B143_scores_written_as_strings_are_numbers(tmp_path):
    read = reading(tmp_path, "a.jsonl", lines(*({"text": "t", "label": s} for s in ("3.8", "0.0", 2.4))), kind="number")
    assert [e.label for e in read.examples] == [3.8, 0.0, 2.4]
    read = reading(tmp_path, "a.csv", "text,score\ngood,0.93\nbad,-1e-3\n", kind="number")
    assert [e.label for e in read.examples] == [0.93, -0.001]


@pytest.mark.parametrize("cell", ["nan", "inf", "-Infinity", "1_0", "", "3,8", "high"])
def test_a_number_that_is_not_finite_is_refused(tmp_path, cell):
    shown = refused(lambda: reading(tmp_path, "a.tsv", f"text\tscore\na\t1\nb\t{cell}\n", kind="number"))
    assert f"'score' is {cell!r}, not a finite number" in shown and "line 3, record 2" in shown


@pytest.mark.parametrize("value", [True, None, float("nan"), 10**400, [1.0]])
def test_a_json_value_that_is_no_number_is_refused(tmp_path, value):
    data = lines({"text": "a", "score": value})
    assert "not a finite number" in refused(lambda: reading(tmp_path, "a.jsonl", data, kind="number"))


def test_several_labels_are_a_list_and_may_be_none(tmp_path):
    data = lines({"text": "a", "labels": ["x", "y", "x"]}, {"text": "b", "labels": []}, {"text": "c", "labels": [3]})
    read = reading(tmp_path, "a.jsonl", data, kind="labels")
    assert [e.label for e in read.examples] == [("x", "y"), (), ("3",)]


def test_a_string_with_a_separator_is_not_taken_apart(tmp_path):
    shown = refused(lambda: reading(tmp_path, "a.csv", 'text,labels\na,"x,y"\n', kind="labels"))
    assert "the string 'x,y', not a list" in shown and "line 2, record 1" in shown


def test_columns_of_0_and_1_are_labels_and_the_rest_is_not(tmp_path):
    data = "id,comment_text,toxic,length,insult\n0,a,1,12,1\n1,b,0,7,0\n"
    read = reading(tmp_path, "a.csv", data, kind="labels")
    assert [e.label for e in read.examples] == [("toxic", "insult"), ()]
    assert "column 'toxic' holds the label 'toxic'" in read.understood
    assert "not used: 'id', 'length'" in read.understood
    read = reading(tmp_path, "a.csv", data, kind="labels", columns={"label": "insult"})
    assert [e.label for e in read.examples] == [("insult",), ()]
    shown = refused(lambda: reading(tmp_path, "a.csv", data, kind="labels", columns={"label": "toxic, length"}))
    assert "'length' is '12', not 0 or 1" in shown and "line 2, record 1" in shown
    records = lines({"text": "a", "x": True, "y": 0}, {"text": "b", "x": 1.0, "y": False})
    assert [e.label for e in reading(tmp_path, "a.jsonl", records, kind="labels").examples] == [("x",), ("x",)]


def test_class_numbers_become_the_names_the_file_gives_them(tmp_path):
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pa.table({"text": ["a", "b", "c"], "label": [1, 0, 1]}).replace_schema_metadata(about)
    pq.write_table(table, tmp_path / "a.parquet")
    assert [e.label for e in read_texts(str(tmp_path / "a.parquet")).examples] == ["pos", "neg", "pos"]
    table = pa.table({"text": ["a"], "label": [-1]}).replace_schema_metadata(about)
    pq.write_table(table, tmp_path / "a.parquet")
    shown = refused(lambda: read_texts(str(tmp_path / "a.parquet")))
    assert "'label' is -1, and the file names the numbers 0 to 1" in shown


def test_asked_texts_need_no_labels_and_may_be_lines(tmp_path):
    assert [e.label for e in reading(tmp_path, "a.csv", "text,label\na,\n", asked=True).examples] == [None]
    read = reading(tmp_path, "a.txt", "one, two\n\nthree\n", asked=True)
    assert [e.text for e in read.examples] == ["one, two", "", "three"]
    assert "empty texts: 1" in read.warnings[0] and "line 2, record 2" in read.warnings[0]
    assert "the label" in refused(lambda: reading(tmp_path, "a.txt", "one\n"))
