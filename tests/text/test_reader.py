"""Files of every kind become the same documents, and the report accounts for the rest."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.text.documents import Reading
from unmask.text.formats import parse
from unmask.text.reader import Document, ReadOptions, ReadReport, read_documents
from unmask.text.streams import lines, pieces, plain_text

ODD = "one\u2028still one\ntwo\u2029x\nthree\u0085y\x0bz\x1cw\x0cv\x1du\x1et\n"


def read(*sources: Path | str, **options) -> tuple[list[str], ReadReport]:
    report = ReadReport()
    documents = list(read_documents([str(s) for s in sources], ReadOptions(**options), report))
    return [d.text for d in documents], report


def parsed(data: bytes, kind: str, chunk: int = 7, **options) -> tuple[list[Document], ReadReport]:
    """Reads bytes in small chunks, so that every kind of boundary falls between two of them."""
    report = ReadReport()
    chunks = [data[i : i + chunk] for i in range(0, len(data), chunk)]
    return list(parse("memory", chunks, kind, Reading(ReadOptions(**options), report))), report


def json_lines(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()


# --- lines ------------------------------------------------------------------------------------------------------


def test_B001_only_real_newlines_end_a_line(tmp_path):
    (tmp_path / "a.txt").write_text(ODD, newline="")
    texts, report = read(tmp_path / "a.txt", separator="line")
    assert texts == ODD.removesuffix("\n").split("\n") and report.documents == 3 == ODD.count("\n")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv"])
def test_B001_unusual_separators_stay_inside_records_of_every_format(kind):
    texts = ODD.removesuffix("\n").split("\n")
    data = json_lines(*texts) if kind == "jsonl" else ("text\n" + ODD).encode()
    assert [d.text for d in parsed(data, kind)[0]] == texts


@given(st.text(alphabet="ab\r\n\u2028\x85\x0b", max_size=40), st.integers(1, 9))
def test_crlf_and_lone_cr_end_a_line_wherever_the_chunks_part(text, chunk):
    data = text.encode()
    chunks = [data[i : i + chunk] for i in range(0, len(data), chunk)]
    read_lines = [line.decode() for _, line in lines(plain_text(chunks, Reading(ReadOptions(), ReadReport())), 1000)]
    assert read_lines == [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]


def test_B002_blank_lines_or_any_string_part_documents(tmp_path):
    (tmp_path / "a.txt").write_text("alpha\nbeta\n\n\ngamma\n")
    (tmp_path / "b.txt").write_bytes(b"alpha\r\nbeta\r\n###\r\ngamma\n\ndelta\n")
    assert read(tmp_path / "a.txt", separator="blank")[0] == ["alpha\nbeta", "gamma"]
    assert read(tmp_path / "a.txt", separator="\n###\n")[0] == ["alpha\nbeta\n\n\ngamma"]
    assert read(tmp_path / "b.txt", separator="\n###\n")[0] == ["alpha\nbeta", "gamma\n\ndelta"]
    assert read(tmp_path / "a.txt")[0] == ["alpha\nbeta\n\n\ngamma"]


@given(
    st.lists(st.text(alphabet="ab#\n", max_size=8), max_size=6),
    st.sampled_from(["##", "\n#\n", "a"]),
    st.integers(1, 5),
)
def test_a_separator_string_parts_like_split(parts, separator, chunk):
    text = separator.join(parts)
    data = text.encode()
    found = pieces([data[i : i + chunk] for i in range(0, len(data), chunk)], separator, 1000)
    expected = text.split(separator)
    if expected[-1] == "":
        expected.pop()  # nothing after a final separator
    assert [part.decode() for _, part in found] == expected


def test_records_are_numbered_by_the_line_they_begin_on():
    assert [d.record for d in parsed(b"a\nb\n\n\nc\n", "txt", separator="blank")[0]] == [1, 5]
    assert [d.record for d in parsed(b"a\nb\n--\nc\nd--e", "txt", separator="--")[0]] == [1, 3, 5]
    assert [d.record for d in parsed(b'text\n"a\nb"\nc\n', "csv")[0]] == [2, 4]


# --- encoding and bytes -----------------------------------------------------------------------------------------


def test_B004_B005_a_bom_changes_nothing_but_its_count():
    records = [{"text": f"t{i}", "m": {"ab"[i % 2]: i}} for i in range(6)]
    data = "".join(json.dumps(r) + "\n" for r in records).encode()
    for chunk in (1, 2, 3, 1000):
        with_bom, report = parsed(b"\xef\xbb\xbf" + data, "jsonl", chunk)
        assert with_bom == parsed(data, "jsonl", chunk)[0] and len(with_bom) == 6 and report.boms == 1


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("txt", b"hello\n"),
        ("csv", b"text\nhello\n"),
        ("tsv", b"text\tn\nhello\t1\n"),
        ("jsonl", b'{"text": "hello"}\n'),
    ],
)
def test_B006_a_document_never_begins_with_the_bom(kind, data):
    documents, report = parsed(b"\xef\xbb\xbf" + data, kind)
    assert [d.text for d in documents] == ["hello"] and report.boms == 1


def test_B012_nuls_are_removed_and_counted():
    documents, report = parsed(b"good text\n a\0b c\n", "txt")
    assert documents[0].text == "good text\n ab c" and report.nuls == 1
    documents, report = parsed(b'{"text": "x\\u0000y\\u0000"}\n', "jsonl")
    assert documents[0].text == "xy" and report.nuls == 2
    assert parsed(b"text\nx\0y\n", "csv")[0][0].text == "xy"


def test_invalid_utf8_is_an_error_with_file_line_and_byte():
    with pytest.raises(UnmaskError) as error:
        parsed(b"good\nb\xc3\xa9 bad \xff\n", "txt", separator="line")
    assert "memory:2, byte 9 of the line (0xff)" in str(error.value) and "iconv" in str(error.value)
    with pytest.raises(UnmaskError, match=r"memory:3, byte 2 of the line"):
        parsed(b"a\n\nb\xff\n", "txt")


@pytest.mark.parametrize(
    ("begin", "said"), [(b"\x1f\x8b\x08", "gzip"), (b"\xff\xfeh\0i\0", "UTF-16"), (b"PK\x03\x04\xff", "zip")]
)
def test_a_file_that_is_something_else_is_recognised(begin, said):
    with pytest.raises(UnmaskError, match=said):
        parsed(begin, "txt")


def test_skip_bad_leaves_out_only_the_bad_records_and_counts_them():
    data = b"one\ntwo\xff\nthree\nfour\xfe\nfive\n"
    documents, report = parsed(data, "txt", separator="line", skip_bad=2)
    assert [d.text for d in documents] == ["one", "three", "five"]
    assert report.bad_count == 2 and "memory:2" in report.bad[0] and "memory:4" in report.bad[1]
    with pytest.raises(UnmaskError) as error:
        parsed(data, "txt", separator="line", skip_bad=1)
    assert "memory:2" in str(error.value) and "memory:4" in str(error.value)


# --- JSON lines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"text": "cut', "column"),
        (b"[1, 2]", "list"),
        (b'"text"', "str"),
        (b'{"other": "x"}', "no field 'text'"),
        (b'{"text": null}', "null"),
        (b'{"text": 3}', "int"),
        (b'{"text": "\\ud800"}', "surrogate"),
        (b"[" * 100_000, "JSON"),
        (b'{"text": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_a_record_without_a_text_is_an_error_with_its_line(line, said):
    data = b'{"text": "a"}\n' + line + b'\n{"text": "b"}\n'
    with pytest.raises(UnmaskError, match=said) as error:
        parsed(data, "jsonl", 4096)
    assert "memory:2" in error.value.where
    documents, report = parsed(data, "jsonl", 4096, skip_bad=1)
    assert [d.text for d in documents] == ["a", "b"] and report.bad_count == 1


def test_the_field_is_text_else_the_only_text_field_else_a_question():
    assert parsed(b'{"title": "t", "text": "x"}', "jsonl")[0][0].text == "x"
    documents, report = parsed(b'{"id": 1, "body": "x"}', "jsonl")
    assert documents[0].text == "x" and report.fields == {"body": 1}
    assert parsed(b'{"title": "t", "text": "x"}', "jsonl", field="title")[0][0].text == "t"
    with pytest.raises(UnmaskError, match="title, body"):
        parsed(b'{"title": "t", "body": "x"}', "jsonl")
    assert parsed(b"id,body\n1,x\n2,y\n", "csv")[0][1].text == "y"
    with pytest.raises(UnmaskError, match="did you mean 'body'"):
        parsed(b"id,body\n1,x\n", "csv", field="bodi")


# --- CSV ---------------------------------------------------------------------------------------------------------


def test_B007_words_that_look_like_missing_values_are_ordinary_text():
    data = b"text,label\nnull,1\nNA,0\nNone,1\nnan,0\n,1\n"
    documents, report = parsed(data, "csv")
    assert [d.text for d in documents] == ["null", "NA", "None", "nan"]
    assert report.empty == 1 and report.empty_at == ["memory:6"]
    assert [d.text for d in parsed(data.replace(b",", b"\t"), "tsv")[0]] == ["null", "NA", "None", "nan"]


@settings(max_examples=60)
@given(
    st.lists(st.text(alphabet='ab",\n\u2028é', min_size=1).filter(lambda t: t.strip()), max_size=6), st.integers(1, 9)
)
def test_csv_gives_back_what_the_csv_module_wrote(texts, chunk):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([["id", "text"], *([i, t] for i, t in enumerate(texts))])
    documents, _ = parsed(file.getvalue().encode(), "csv", chunk)
    assert [d.text for d in documents] == [t.strip("\n") for t in texts]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'text\n"a"b\nc\n', "CSV row"),
        (b"text,n\na,1,2\n", "3 fields"),
        (b'text,n\n"open,1\nb,2\nc,3\n', "3 lines lie inside"),
        (b"text;n\na;1\n", "';'"),
        (b"This is already the first text of the file,1\n", "column names"),
        (b"text,text\na,b\n", "2 columns"),
        (b"te\xffxt\nabc\n", "UTF-8"),
    ],
)
def test_a_malformed_table_is_an_error(data, said):
    with pytest.raises(UnmaskError, match=said):
        parsed(data, "csv")


def test_bad_rows_can_be_left_out_and_a_swallowing_quote_counts_every_line():
    documents, report = parsed(b'text,n\na,1\n"x"y,2\nz\xff,3\nb,4,5\nc,6\n', "csv", skip_bad=3)
    assert [d.text for d in documents] == ["a", "c"] and report.bad_count == 3
    with pytest.raises(UnmaskError, match="5 bad records"):
        parsed(b'text,n\na,1\n"open,2\nb,3\nc,4\nd,5\ne,6\n', "csv", skip_bad=4)


def test_a_damaged_header_is_never_replaced_by_the_next_row():
    with pytest.raises(UnmaskError, match="header"):
        parsed(b"te\xffxt\nabc\ndef\n", "csv", skip_bad=5)


def test_a_csv_field_may_be_longer_than_the_csv_module_allows_by_itself():
    assert len(parsed(b'text,n\n"' + b"a" * 200_000 + b'",1\n', "csv", 4096)[0][0].text) == 200_000


def test_quotes_are_ordinary_characters_in_tsv():
    assert [d.text for d in parsed(b'text\tn\n"a\t1\n5" b\t2\n', "tsv")[0]] == ['"a', '5" b']


# --- length and emptiness ----------------------------------------------------------------------------------------


def test_B014_long_lines_are_read_whole():
    data = b"a" * 49 + b"\n"
    documents, report = parsed(data * 1000 + (b"b" * 20_000 + b"\n") * 80, "txt", 4096, separator="line")
    assert len(documents) == 1080 and report.characters == 1000 * 49 + 80 * 20_000 and report.longest == 20_000


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_a_line_of_100_megabytes_is_one_document(tmp_path, kind):
    size = 100_000_000
    path = tmp_path / f"long.{kind}"
    path.write_bytes(b'{"text": "' * (kind == "jsonl") + b"a" * size + b'"}\n' * (kind == "jsonl"))
    texts, report = read(path, separator="line", max_bytes=1 << 27)
    assert len(texts) == 1 and len(texts[0]) == size == report.longest


@pytest.mark.parametrize("separator", ["line", "blank", "--"])
def test_B015_a_document_over_the_cap_is_an_error_that_names_the_limit(separator):
    end = {"line": b"\n", "blank": b"\n\n", "--": b"--"}[separator]
    data = b"ab" + end + b"c" * 100 + end + b"de" + end
    with pytest.raises(UnmaskError, match="20 bytes") as error:
        parsed(data, "txt", separator=separator, max_bytes=20)
    assert "--max-document-megabytes" in error.value.do
    documents, report = parsed(data, "txt", separator=separator, max_bytes=20, skip_bad=1)
    assert [d.text.strip() for d in documents] == ["ab", "de"] and report.bad_count == 1


@pytest.mark.parametrize(("kind", "where"), [("jsonl", "memory:2"), ("csv", "memory:3")])
def test_B021_empty_and_blank_documents_are_skipped_and_counted(kind, where):
    texts = ["x y. z w.", "", "   ", "p q. r s."]
    table = "id,text\n" + "".join(f"{i},{t}\n" for i, t in enumerate(texts))
    documents, report = parsed(json_lines(*texts) if kind == "jsonl" else table.encode(), kind)
    assert [d.text for d in documents] == [texts[0], texts[3]]
    assert report.empty == 2 and report.empty_at[0] == where


def test_an_empty_file_is_an_empty_document():
    assert parsed(b"", "txt")[1].empty == 1


def test_reports_of_workers_add_up():
    first, second = parsed(b"a\n\nbb\n", "txt", separator="line")[1], parsed(b"c\0\n", "txt", separator="line")[1]
    whole = parsed(b"a\n\nbb\nc\0\n", "txt", separator="line")[1]
    first.merge(second)
    assert first.as_dict() == {**whole.as_dict(), "files": 2}
