"""Files of every format give the same rows, each with its place; what cannot be read is named by file, line and record."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.labelled.records import Place
from unmask.labelled.rows import Table, read_table

ODD = "one\u2028still one\u2029x\u0085y\x0bz\x1cw"
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=12)
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\r\n\t"\0'), max_size=12)


def table_of(folder: Path, name: str, data: str | bytes) -> Table:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_table(str(path))


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(UnmaskError) as error:
        act()
    return str(error.value)


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """Rows as the standard tools of each format write them."""
    match path.name.split(".")[1]:
        case "jsonl":
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        case "json":
            text = json.dumps(rows, indent=1)
        case "csv" | "tsv" as kind:
            out = io.StringIO()
            lines = csv.writer(out, delimiter="," if kind == "csv" else "\t", quoting=csv.QUOTE_ALL)
            if kind == "csv":
                lines.writerow(rows[0])
                lines.writerows(row.values() for row in rows)
                text = out.getvalue()
            else:
                text = "".join("\t".join(cells) + "\n" for cells in [list(rows[0]), *(row.values() for row in rows)])
        case _:
            pq.write_table(pa.Table.from_pylist(rows), path)
            return
    data = text.encode()
    match path.suffix:
        case ".gz":
            data = gzip.compress(data)
        case ".zst":
            data = zstandard.compress(data)
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "a.jsonl.gz", "a.csv.zst", "a.json.gz"])
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_what_is_written_is_read_whatever_the_format(name, rows):
    wanted = [{"text": text, "other": other} for text, other in rows]
    with TemporaryDirectory() as folder:
        write(Path(folder) / name, wanted)
        table = read_table(str(Path(folder) / name))
    assert [row.values for row in table.rows] == wanted and table.columns == ("text", "other")
    assert [row.place.record for row in table.rows] == list(range(1, len(rows) + 1)) and not table.warnings


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=5))
def test_what_is_written_with_tabs_is_read(rows):
    wanted = [{"text": text, "other": other} for text, other in rows]
    with TemporaryDirectory() as folder:
        write(Path(folder) / "a.tsv", wanted)
        assert [row.values for row in read_table(str(Path(folder) / "a.tsv")).rows] == wanted


def test_B004_B005_a_byte_order_mark_changes_nothing_and_is_mentioned(tmp_path):
    for count, lines in ((4, "\n"), (6, "\r\n")):
        text = "".join(json.dumps({"m": {"ab"[i % 2]: i}}) + lines for i in range(count))
        with_mark, without = table_of(tmp_path, "a.jsonl", "\ufeff" + text), table_of(tmp_path, "a.jsonl", text)
        assert with_mark.rows == without.rows and len(with_mark.rows) == count
        assert with_mark.understood == (*without.understood, "a byte order mark was removed")
    assert table_of(tmp_path, "a.csv", "\ufefftext,label\na,b\n").columns == ("text", "label")
    assert table_of(tmp_path, "a.json", "\ufeff[{}, {}]").rows[1].values == {}


def test_B001_unusual_separators_end_no_line(tmp_path):
    for name, data in (("a.jsonl", json.dumps({"text": ODD}, ensure_ascii=False)), ("a.csv", "text\n" + ODD)):
        table = table_of(tmp_path, name, data + "\n")
        assert [row.values["text"] for row in table.rows] == [ODD]
    assert [row.values["text"] for row in table_of(tmp_path, "a.txt", f"{ODD}\r\nb").rows] == [ODD, "b"]


def test_newlines_in_quoted_fields_and_blank_lines_keep_line_numbers_right(tmp_path):
    table = table_of(tmp_path, "a.csv", 'text,label\r\n"one\r\ntwo, ""three""",a\r\n\r\nfour,b\r\n')
    assert [row.values["text"] for row in table.rows] == ['one\ntwo, "three"', "four"]
    assert [row.place[1:] for row in table.rows] == [(2, 1), (5, 2)]
    assert str(table.rows[1].place) == f"{tmp_path / 'a.csv'}, line 5, record 2"
    bad = refused(lambda: table_of(tmp_path, "a.csv", 'text,label\n"one\ntwo",a\nfour\n'))
    assert "1 fields, but the header has 2" in bad and "a.csv, line 4, record 2" in bad


def test_B007_words_that_look_like_missing_values_are_words(tmp_path):
    table = table_of(tmp_path, "a.csv", "text,label\nnull,1\nNA,0\nNone,1\nnan,0\n,1\n")
    assert [row.values["text"] for row in table.rows] == ["null", "NA", "None", "nan", ""]


def test_json_lines_may_be_called_json_and_json_may_be_a_list(tmp_path):
    lines = table_of(tmp_path, "a.json", '{"text": "a"}\n\n{"text": "b"}\n')
    assert [row.place[1:] for row in lines.rows] == [(1, 1), (3, 2)]
    assert [row.place[1:] for row in table_of(tmp_path, "a.json", '[{"text": "a"},\n{"text": "b"}]').rows] == [
        (0, 1),
        (0, 2),
    ]
    assert "record 2" in refused(lambda: table_of(tmp_path, "a.json", '[{"text": "a"}, 3]'))
    assert "line 2, column 4" in refused(lambda: table_of(tmp_path, "a.json", '{"a":\n 1,,}'))
    assert "a.json, line 2, record 2" in refused(lambda: table_of(tmp_path, "a.json", '{"a": 1}\n{"a": 1,,}'))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "a.jsonl, line 2, record 2, column 10"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', "a.jsonl, line 2, record 2"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', "a.jsonl:2, byte 11 of the line (0xff)"),
        ("a.jsonl", b'\n{"text": "so \\ud83d"}\n', "half a surrogate pair (\\ud83d)"),
        ("a.json", b'[{"text": "so \\ud83d"}]\n', "a.json, record 1"),
        ("a.jsonl", b'\n{"text": "so \\ud83d"}\n', "a.jsonl, line 2, record 1"),
        ("a.jsonl", b"", "there is no record in it"),
        ("a.jsonl", b"\n \n", "there is no record in it"),
        ("a.json", b"", "there is no record in it"),
        ("a.csv", b"", "there is no record in it"),
        ("a.csv", b"text,label\n", "there is no record in it"),
        ("a.csv", b"text;label\na;b\n", "part columns with ',', not ';'"),
        ("a.csv", b"text\tlabel\na\tb\n", "or name the file .tsv"),
        ("a.csv", b"text,text\na,b\n", "2 columns are called 'text'"),
        ("a.csv", b'text,label\n"a,b\nc,d\n', "2 lines lie inside it"),
        ("a.csv", b'text,label\nok,1\n"a\xffb",2\n', "a.csv:3, byte 3 of the line"),
        ("a.csv", "text,label\n".encode("utf-16"), "UTF-16"),
        ("a.tsv", b"text\tlabel\na\tb\tc\n", "a.tsv, line 2, record 1"),
        ("a.csv.gz", gzip.compress(b"text,label\na,b\n" * 99, mtime=0)[:-9], "truncated"),
        ("a.jsonl.zst", zstandard.compress(b'{"text": "a"}\n' * 99)[:-3], "truncated"),
        ("a.parquet", b"PAR1 and no more", "cannot read this parquet file"),
        ("a.parquet.gz", b"", "the file's extension does not say what it is"),
        ("a.xml", b"<a/>", "known are .jsonl"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(tmp_path, name, data, said):
    shown = refused(lambda: table_of(tmp_path, name, data))
    assert said in shown and name in shown


def test_a_missing_file_says_what_is_near(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    assert "did you mean" in refused(lambda: read_table(str(tmp_path / "train.json")))
    assert "no such file" in refused(lambda: read_table(str(tmp_path / "train.json")))
    assert "name one file" in refused(lambda: read_table(str(tmp_path / "*.jsonl")))
    (tmp_path / "empty").mkdir()
    assert "no state.json" in refused(lambda: read_table(str(tmp_path / "empty")))


def test_quotes_that_another_tool_doubled_in_a_tsv_are_a_counted_warning(tmp_path):
    table = table_of(tmp_path, "a.tsv", 'text\tlabel\n"He said ""no"""\ta\n"x" and "y"\tb\n"a ""b"""\ta\n')
    assert table.rows[1].values["text"] == '"x" and "y"'
    (warning,) = table.warnings
    assert ": 2 (first: " in warning and "a.tsv, line 2, record 1" in warning


def test_a_parquet_value_that_is_not_utf8_names_its_record(tmp_path):
    data = pa.array([b"fine", b"\xff"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 2, data.buffers())
    pq.write_table(pa.table({"text": broken}), tmp_path / "a.parquet")
    assert "a.parquet, record 2" in refused(lambda: read_table(str(tmp_path / "a.parquet")))


def test_a_saved_data_set_is_read_as_its_library_reads_it(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"])),
        }
    )
    rows = {"text": [f"t{i}" for i in range(50)], "label": [i % 2 for i in range(50)], "tags": [[0, 1]] * 50}
    data = datasets.Dataset.from_dict(rows, features=features)
    data.shuffle(seed=3).select(range(9)).save_to_disk(tmp_path / "some")
    table = read_table(str(tmp_path / "some"))
    assert [row.values for row in table.rows] == list(datasets.load_from_disk(str(tmp_path / "some")))
    assert table.names == {"label": ("neg", "pos"), "tags": ("O", "B-X")}
    assert table.rows[8].place == Place(str(tmp_path / "some"), 0, 9)
    data.to_parquet(tmp_path / "a.parquet")
    assert read_table(str(tmp_path / "a.parquet")).names == table.names
    datasets.DatasetDict(train=data, test=data).save_to_disk(tmp_path / "all")
    shown = refused(lambda: read_table(str(tmp_path / "all")))
    assert "several splits: train, test" in shown and str(tmp_path / "all" / "train") in shown
    assert len(read_table(str(tmp_path / "all" / "test")).rows) == 50
    (tmp_path / "some" / "data-00000-of-00001.arrow").write_bytes(b"no")
    assert "cannot read this saved data set" in refused(lambda: read_table(str(tmp_path / "some")))
