"""A folder laid out as on the Hugging Face Hub is read split by split; standard input as JSON lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmask.errors import UnmaskError
from unmask.labelled.questions import read_questions
from unmask.labelled.records import Place
from unmask.labelled.rows import read_table
from unmask.labelled.tagged import read_tagged
from unmask.labelled.texts import read_texts


def rows(count: int, begin: int = 0) -> list[dict[str, str]]:
    return [{"text": f"text {at}", "label": "ab"[at % 2]} for at in range(begin, begin + count)]


def lines(path: Path, records: list[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
    return path


def parquet(path: Path, records: list[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), path)
    return path


def labels_of(source: Path) -> list[tuple[str, object]]:
    return [(example.text, example.label) for example in read_texts(str(source), kind="label").examples]


@pytest.mark.parametrize("inside", ["", "data"])
@pytest.mark.parametrize("hashed", ["", "-0123456789abcdef"])
def test_the_shards_of_a_split_are_read_in_order_as_one(tmp_path: Path, inside: str, hashed: str) -> None:
    for at in (1, 0, 2):
        parquet(tmp_path / inside / f"train-{at:05}-of-00003{hashed}.parquet", rows(3, 3 * at))
    parquet(tmp_path / inside / f"test-00000-of-00001{hashed}.parquet", rows(1, 90))
    lines(tmp_path / "README.md", [])
    assert labels_of(tmp_path / "train") == [(row["text"], row["label"]) for row in rows(9)]
    assert labels_of(tmp_path / "test") == [("text 90", "a")]
    assert read_table(str(tmp_path / "train")).rows[8].place == Place(str(tmp_path / "train"), 0, 9)


def test_a_folder_of_several_splits_says_how_to_name_one(tmp_path: Path) -> None:
    lines(tmp_path / "train.jsonl", rows(4))
    lines(tmp_path / "validation.jsonl", rows(2))
    with pytest.raises(UnmaskError, match="several splits: train, validation") as caught:
        read_table(str(tmp_path))
    assert str(tmp_path / "train") in caught.value.do
    assert len(labels_of(tmp_path / "validation")) == 2
    with pytest.raises(UnmaskError, match="no such file or folder"):
        read_table(str(tmp_path / "test"))


def test_a_folder_of_one_split_stands_for_it(tmp_path: Path) -> None:
    lines(tmp_path / "train.jsonl", rows(4))
    assert len(labels_of(tmp_path)) == 4


def test_a_folder_for_each_split_is_read(tmp_path: Path) -> None:
    for at in range(2):
        parquet(tmp_path / "train" / f"{at:04}.parquet", rows(2, 2 * at))
    assert len(labels_of(tmp_path / "train")) == 4


def test_a_missing_shard_is_an_error_not_a_smaller_set(tmp_path: Path) -> None:
    for at in (0, 2):
        parquet(tmp_path / f"train-{at:05}-of-00003.parquet", rows(2))
    with pytest.raises(UnmaskError, match="2 files of the split are there, but their names count 3"):
        read_table(str(tmp_path / "train"))


def test_a_shard_that_is_there_twice_does_not_stand_for_one_that_is_missing(tmp_path: Path) -> None:
    lines(tmp_path / "train-00000-of-00002.jsonl", rows(2))
    parquet(tmp_path / "train-00000-of-00002.parquet", rows(2))
    with pytest.raises(UnmaskError, match="there twice: train-00000-of-00002.jsonl"):
        read_table(str(tmp_path / "train"))


def test_a_gap_in_the_numbers_of_files_is_an_error(tmp_path: Path) -> None:
    for at in (0, 2):
        parquet(tmp_path / "train" / f"{at:04}.parquet", rows(2))
    with pytest.raises(UnmaskError, match="2 files of the split are there, but their numbers go up to 2"):
        read_table(str(tmp_path / "train"))
    for year in (2021, 2023):
        parquet(tmp_path / "years" / f"{year}.parquet", rows(2))
    assert len(labels_of(tmp_path / "years")) == 4


def test_a_split_in_two_forms_is_not_read_twice(tmp_path: Path) -> None:
    lines(tmp_path / "train.jsonl", rows(2))
    parquet(tmp_path / "train.parquet", rows(2))
    with pytest.raises(UnmaskError, match="there twice: train.jsonl, train.parquet"):
        read_table(str(tmp_path / "train"))


def test_shards_that_count_their_labels_differently_are_refused(tmp_path: Path) -> None:
    for at, names in enumerate((["neg", "pos"], ["pos", "neg"])):
        features = {"info": {"features": {"label": {"_type": "ClassLabel", "names": names}}}}
        table = pa.Table.from_pylist([{"text": "t", "label": 0}])
        made = table.replace_schema_metadata({"huggingface": json.dumps(features)})
        pq.write_table(made, tmp_path / f"train-{at:05}-of-00002.parquet")
    with pytest.raises(UnmaskError, match="name the numbers of labels differently"):
        read_table(str(tmp_path / "train"))


def test_questions_and_tagged_words_are_read_from_splits_too(tmp_path: Path) -> None:
    for at in range(2):
        asked = {"question": "who?", "context": "the cat", "answers": [{"text": "cat", "start": 4}]}
        parquet(tmp_path / "qa" / f"train-{at:05}-of-00002.parquet", [asked])  # type: ignore[list-item]
        words = {"tokens": ["a", "b"], "tags": ["O", "B-X"]}
        parquet(tmp_path / "ner" / f"train-{at:05}-of-00002.parquet", [words])  # type: ignore[list-item]
    assert [example.id for example in read_questions(str(tmp_path / "qa" / "train")).examples] == ["1", "2"]
    assert len(read_tagged(str(tmp_path / "ner" / "train")).examples) == 2


def test_standard_input_is_read_as_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    data = "\ufeff" + "".join(json.dumps(row) + "\n" for row in rows(3))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data.encode())))
    assert [example.text for example in read_texts("-", asked=True).examples] == ["text 0", "text 1", "text 2"]


def test_standard_input_that_is_read_already_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"text": "a"}\n')))
    assert len(read_texts("-", asked=True).examples) == 1
    with pytest.raises(UnmaskError, match="none is left") as caught:
        read_texts("-", asked=True)
    assert "read once" in caught.value.do


def test_what_is_bad_on_standard_input_is_named_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"tokens": ["a"]}\n{"tokens": 3}\n')))
    with pytest.raises(UnmaskError, match="line 2, record 2"):
        read_tagged("-", asked=True)
