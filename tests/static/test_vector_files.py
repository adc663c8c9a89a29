"""Reading other programs' files of vectors: what is right, what is odd and counted, what is wrong and where."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.static.formats import VectorReport, read_file
from unmask.static.formats.text import RowError, plain_row
from unmask.static.vectors import Vectors


def read(path: Path, content: str | bytes, **options: int) -> tuple[Vectors, VectorReport]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_file(path, **options)


def refused(path: Path, content: str | bytes, **options: int) -> UnmaskError:
    with pytest.raises(UnmaskError) as caught:
        read(path, content, **options)
    assert str(path) in caught.value.where
    return caught.value


def record(word: bytes, *numbers: float, end: bytes = b"\n") -> bytes:
    return word + b" " + struct.pack(f"<{len(numbers)}f", *numbers) + end


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "vectors"


# Which format it is


def test_the_content_tells_the_format_whatever_the_name(tmp_path: Path) -> None:
    rows, wanted = "cat 1 2\ndog -3 4.5\n", [[1, 2], [-3, 4.5]]
    for name, content, form in [
        ("a.bin", f"2 2\n{rows}", "word2vec"),
        ("a.txt", b"2 2\n" + record(b"cat", 1, 2) + record(b"dog", -3, 4.5), "word2vec-binary"),
        ("a.vec", rows, "glove"),
        ("plain", b"2 2\n" + record(b"cat", 1, 2, end=b"") + record(b"dog", -3, 4.5, end=b""), "word2vec-binary"),
        ("bom", b"\xef\xbb\xbf2 2\n" + rows.encode(), "word2vec"),
        ("windows", f"2 2\r\n{rows}".replace("\n", "\r\n").replace("\r\r", "\r"), "word2vec"),
        ("tabs", rows.replace(" ", "\t"), "glove"),
        ("fasttext", f"2 2\n{rows}".replace("\n", " \n").replace("2 2 ", "2 2"), "word2vec"),
        ("no-final-line-feed", f"2 2\n{rows}"[:-1], "word2vec"),
    ]:
        vectors, report = read(tmp_path / name, content)
        assert (list(vectors.words.words), vectors.matrix.tolist(), report.format) == (["cat", "dog"], wanted, form), (
            name
        )
        assert not report.warnings and report.rows == 2 and report.dimension == 2
        assert vectors.matrix.dtype == np.float32


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_compressed_files_are_read_and_broken_ones_named(file: Path, pack) -> None:  # type: ignore[no-untyped-def]
    text = b"".join(b"word%d 0.25 %d\n" % (row, row) for row in range(3000))
    vectors, _ = read(file, pack(text))
    assert len(vectors.words) == 3000 and vectors.matrix[2999].tolist() == [0.25, 2999]
    assert "early" in refused(file, pack(text)[:-200]).what


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (pickle.dumps({"vectors": 1}), "pickle"),
        (pickle.dumps(["v"], protocol=2), "pickle"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}", "NumPy"),
        (b"PK\x03\x04rest", "zip"),
        (b"\xba\x16\x4f\x2f\x0c\x00\x00\x00", "fastText model"),
        ("2 2\ncat 1 2\n".encode("utf-16"), "UTF-16"),
        (bz2.compress(b"2 2\ncat 1 2\n"), "bzip2"),
        (lzma.compress(b"2 2\ncat 1 2\n"), "xz"),
    ],
)
def test_what_would_have_to_be_unpickled_or_is_no_such_file_is_refused_with_advice(
    tmp_path: Path, content: bytes, word: str
) -> None:
    error = refused(tmp_path / "model.kv", content)
    assert word in error.what and error.do


@pytest.mark.parametrize("content", ["", "\n \n", "2 3\n", "1 0\nx \n", "just a sentence\nand another\n"])
def test_a_file_without_vectors_is_an_error(file: Path, content: str) -> None:
    refused(file, content)
    with pytest.raises(UnmaskError, match="cannot read"):
        read_file(file.parent / "absent")


# Words


def test_a_word_is_everything_before_the_last_numbers(file: Path) -> None:
    words = [
        ".",
        ". . .",
        "at name@domain.com",
        "to\u00a0be",
        "中\u3000文",
        "line\u2028sep",
        "next\u0085line",
        "1/2",
        "3 1/2",
        "0.5",
    ]
    text = "".join(f"{word} {row} 0.5 -1e-3\n" for row, word in enumerate(words))
    vectors, report = read(file, text)
    assert list(vectors.words.words) == words
    assert vectors.matrix[:, 0].tolist() == list(range(len(words)))
    assert report.spaced == 7 and "white space" in report.warnings[0]
    binary = [word for word in words if " " not in word]
    vectors, report = read(file, f"{len(binary)} 1\n".encode() + b"".join(record(word.encode(), 1) for word in binary))
    assert list(vectors.words.words) == binary and report.spaced == 4


def test_words_of_any_length_are_read(file: Path) -> None:
    word = "長" * 2000
    assert list(read(file, f"1 2\n{word} 1 2\n")[0].words.words) == [word]
    assert list(read(file, b"1 2\n" + record(word.encode(), 1, 2))[0].words.words) == [word]


def test_broken_utf8_is_replaced_and_counted(file: Path) -> None:
    cut = "漢字".encode()[:-1]
    for content in (b"2 1\n" + cut + b" 1\nok 2\n", b"2 1\n" + record(cut, 1) + record(b"ok", 2)):
        vectors, report = read(file, content)
        assert list(vectors.words.words) == ["漢\ufffd", "ok"] and report.broken == 1
        assert "UTF-8" in report.warnings[0]


def test_the_first_of_equal_words_stays_and_nameless_rows_go(file: Path) -> None:
    text = "a 1 1\nb 2 2\na 3 3\n 4 4\nc 5 5\n"
    data = b"5 2\n" + b"".join(record(w, v, v) for w, v in [(b"a", 1), (b"b", 2), (b"a", 3), (b"", 4), (b"c", 5)])
    for content in (text, data):
        vectors, report = read(file, content)
        assert list(vectors.words.words) == ["a", "b", "c"] and vectors.matrix[:, 0].tolist() == [1, 2, 5]
        assert (report.duplicates, report.nameless, report.rows, len(report.warnings)) == (1, 1, 5, 2)


def test_a_word_is_known_again_however_far_away_it_was(file: Path) -> None:
    text = "".join(f"word{row} 0.125 {row}\n" for row in range(120_000)) + "word5 9 9\nlast 1 2\n"
    assert len(text) > 2**21
    vectors, report = read(file, text)
    assert report.duplicates == 1 and vectors.words.words[-1] == "last" and vectors.matrix[-1].tolist() == [1, 2]
    assert vectors.matrix[:-1, 1].tolist() == list(range(120_000))


# Headers and limits


def test_a_header_that_counts_wrongly_is_told_and_the_rows_are_trusted(file: Path) -> None:
    """As GloVe's -write-header, which does not count <unk>."""
    for promised in (1, 3):
        vectors, report = read(file, f"{promised} 2\na 1 2\n<unk> 3 4\n")
        assert list(vectors.words.words) == ["a", "<unk>"]
        assert report.promised == promised and "promises" in report.warnings[0]
    vectors, report = read(file, b"1 1\n" + record(b"a", 1) + record(b"b", 2))
    assert len(vectors.words) == 2 and report.warnings


def test_a_header_with_another_width_than_the_rows_is_an_error(file: Path) -> None:
    error = refused(file, "2 2\na 1 2 3\nb 4 5 6\n")
    assert "says 2" in error.what and "have 3" in error.what and error.where.endswith(":1")
    assert "says 4" in refused(file, "2 4\na 1 2 3\nb 4 5 6\n").what


def test_a_header_that_promises_far_too_much_costs_no_memory(file: Path) -> None:
    assert len(read(file, "999999999999999 2\na 1 2\n")[0].words) == 1
    assert "cut off" in refused(file, b"999999999999999 2\n" + record(b"a", 1, 2)).what


def test_a_limit_reads_the_most_frequent_words_alone(file: Path) -> None:
    rows = [(f"w{row}", float(row)) for row in range(50_000)]
    text = "50000 1\n" + "".join(f"{word} {value}\n" for word, value in rows) + "broken\n"
    data = b"50000 1\n" + b"".join(record(word.encode(), value) for word, value in rows) + b"bro"
    for content in (text, data):
        vectors, report = read(file, content, limit=7)
        assert list(vectors.words.words) == [f"w{row}" for row in range(7)] and vectors.matrix.shape == (7, 1)
        assert report.rows == 7 and not report.warnings


def test_progress_counts_bytes_to_the_end(file: Path) -> None:
    told: list[tuple[str, float, float | None]] = []
    file.write_text("".join(f"word{row} 0.125 0.25\n" for row in range(150_000)))
    read_file(file, progress=lambda *step: told.append(step))
    assert told[-1][1] == told[-1][2] == file.stat().st_size
    assert len(told) > 2 and all(done < (total or 0) for _, done, total in told[:-1])


# What is wrong, and where


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("x 1", "1 numbers instead of 2"),
        ("x 1 2.5 3 4.5 6", "more than 2 numbers"),
        ("x 1 two", "'two' is not a number"),
        ("x 1 2,5", "not a number"),
        ("x 1_0 2", "not a number"),
        ("x 1 0x10", "not a number"),
        ("x nan 1", "holds 'nan'"),
        ("x 1 -inf", "holds '-inf'"),
        ("x 1 1e39", "holds '1e39'"),
        ("x 1 １", "not a number"),
        ("y" * 3000, "0 numbers instead of 2"),
    ],
)
def test_a_line_that_is_no_row_is_named(file: Path, row: str, why: str) -> None:
    good = "".join(f"w{number} 1 2\n" for number in range(200_000, 230_000))
    for header in (0, 1):
        error = refused(file, ("30001 2\n" * header) + good + row + "\n" + "z 1 2\n")
        assert why in error.what and error.where.endswith(f":{30_001 + header}"), error
        assert len(str(error)) < 600


def test_a_text_that_was_cut_off_is_an_error(file: Path) -> None:
    assert "cut off" in refused(file, "3 2\na 1 2\nb 3 4").what
    error = refused(file, "3 2\na 1 2\nb 3")
    assert "cut off" in error.do and error.where.endswith(":3")


def test_a_line_without_end_is_an_error_not_all_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.static.formats.text.LONGEST_LINE", 3 * 2**20)
    error = refused(file, b"1 2\na 1 2\n" + b"x" * 6 * 2**20)
    assert "line of more than" in error.what and error.where.endswith(":3")


def test_a_binary_file_that_was_cut_off_names_record_and_byte(file: Path) -> None:
    whole = b"3 2\n" + b"".join(record(word, 1, 2) for word in (b"one", b"two", b"three"))
    for cut in range(10, len(whole) - 1):
        error = refused(file, whole[:cut])
        records = min((cut - 4 + 1) // 13, 2)  # "one" and "two" take 12 bytes each and a line feed, which may be absent
        assert "cut off" in error.what and f"after {records} of 3" in error.what
        assert f"record {records + 1}, byte {4 + 13 * records - (records > 0)}" in error.where
    vectors, _ = read(file, whole[:-3], limit=2)
    assert list(vectors.words.words) == ["one", "two"]


def test_damage_in_a_binary_file_names_record_and_byte(file: Path) -> None:
    good = b"".join(record(b"w%d" % row, 1, 2) for row in range(9))
    at = len(b"10 2\n" + good)
    error = refused(file, b"10 2\n" + good + record(b"bad", np.nan, 1))
    assert "NaN" in error.what and error.where.endswith(f"record 10, byte {at + 4}")
    error = refused(file, b"10 2\n" + good + record(b"b\x00d", 1, 1))
    assert "no word" in error.what and error.where.endswith(f"record 10, byte {at}")
    error = refused(file, b"1 2\n" + b"\x01" * 200_000)
    assert "no word" in error.what and "record 1" in error.where


# Numbers

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
spelled = st.one_of(
    floats.map(repr),
    floats.map(lambda value: f"{value:.9g}"),
    floats.map(lambda value: f"{value:.6f}"),
    floats.map(lambda value: str(np.float32(value))),
    floats.map(lambda value: f"{(value + float(np.nextafter(np.float32(value), np.float32(0)))) / 2:.60g}"),
    st.floats(-1e38, 1e38).map(repr),
    st.from_regex(r"\A[+-]?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,2})?\Z").filter(lambda t: abs(float(t)) < 3e38),
    st.sampled_from(
        ["0", "-0", "-0.0", ".5", "5.", "+1", "1e-400", "0e999", "00012.50", "1E+2", "0.1e-44", "3.4028235e38"]
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(spelled, min_size=3, max_size=3), min_size=1, max_size=5))
def test_numbers_are_the_float32_of_what_python_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "numbers"
    vectors, _ = read(path, "".join(f"w{row} {' '.join(fields)}\n" for row, fields in enumerate(rows)))
    wanted = np.array([[float(field) for field in fields] for fields in rows]).astype(np.float32)
    np.testing.assert_array_equal(vectors.matrix.view(np.int32), wanted.view(np.int32))  # bits: -0.0 is not 0.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["w", " ", "\t", "1", "-2.5", "x", ".", "e", "1e5", "\r", "nan", "é"]), max_size=9).map(
        "".join
    )
)
def test_the_compiled_reader_is_the_plain_one(line: str) -> None:
    from unmask.static.formats import loops

    data, out, places = line.encode(), np.zeros((1, 2), np.float32), np.zeros((1, 4), np.int64)
    loops.text_rows(np.frombuffer(data, np.uint8), 2, loops.POWERS, out, places)
    try:
        word, numbers = plain_row(data, 2)
    except RowError:
        assert not places[0, 3]
        return
    if places[0, 3]:
        assert data[: places[0, 1]] == word and out[0].tolist() == numbers.tolist()
