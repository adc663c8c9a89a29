"""Where text comes from: compressed files, archives, folders, patterns, standard input, tables and the hub."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from unmask.errors import UnmaskError
from unmask.text import pydocs, streams
from unmask.text.pydocs import DocFile
from unmask.text.reader import ReadOptions, ReadReport, read_documents
from unmask.text.tables import hub_name

LINES = "".join(f"line {i} {os.urandom(8).hex()}\n" for i in range(2000))


def read(*sources: Path | str, **options) -> tuple[list[str], ReadReport]:
    report = ReadReport()
    documents = list(read_documents([str(s) for s in sources], ReadOptions(**options), report))
    return [d.text for d in documents], report


def packed(kind: str, data: bytes) -> bytes:
    return gzip.compress(data) if kind == "gz" else zstandard.compress(data)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_compressed_files_read_like_plain_ones_and_may_have_several_members(tmp_path, kind):
    middle = len(LINES) // 2
    path = tmp_path / f"a.txt.{kind}"
    path.write_bytes(packed(kind, LINES[:middle].encode()) + packed(kind, LINES[middle:].encode()))
    assert read(path, separator="line")[0] == LINES.splitlines()


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_truncated_file_is_an_error_never_a_shorter_corpus(tmp_path, kind, share):
    path = tmp_path / f"a.txt.{kind}"
    whole = packed(kind, LINES.encode())
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UnmaskError, match="truncated") as error:
        read(path, separator="line")
    assert str(path) in str(error.value)
    texts, report = read(path, separator="line", skip_bad=1)
    assert report.bad_count == 1 and texts == LINES.splitlines()[: len(texts)]


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_damaged_or_mislabelled_compression_is_an_error(tmp_path, kind):
    path = tmp_path / f"a.txt.{kind}"
    whole = bytearray(packed(kind, LINES.encode()))
    for data in (b"plain text", bytes(whole) + b"garbage after the end"):
        path.write_bytes(data)
        with pytest.raises(UnmaskError, match="damaged"):
            read(path, separator="line")
    whole[len(whole) // 2] ^= 0xFF
    if kind == "gz":  # zstd frames written in one call carry no checksum
        path.write_bytes(whole)
        with pytest.raises(UnmaskError):
            read(path, separator="line")


@pytest.mark.parametrize("kind", ["gz", "zst", "zip"])
def test_a_decompression_bomb_is_refused_without_being_held(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(streams, "BOMB_FLOOR", 1 << 20)
    bomb = bytes(50 << 20)
    path = tmp_path / (f"a.txt.{kind}" if kind != "zip" else "a.zip")
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.txt", bomb)
    else:
        path.write_bytes(packed(kind, bomb))
    with pytest.raises(UnmaskError, match="bomb"):
        read(path)


def test_zip_members_are_read_sorted_and_what_is_not_text_is_counted(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("b/two.jsonl", '{"text": "two"}\n')
        archive.writestr("a.txt.gz", gzip.compress(b"one"))
        archive.writestr("picture.png", b"\x89PNG")
        archive.writestr("__MACOSX/._a.txt", b"\x00\x05\x16\x07")
    report = ReadReport()
    documents = list(read_documents([str(path)], ReadOptions(), report))
    assert [(d.text, d.source) for d in documents] == [("one", f"{path}/a.txt.gz"), ("two", f"{path}/b/two.jsonl")]
    assert report.ignored == {".png": 1, "hidden": 1} and report.files == 2


@pytest.mark.parametrize(
    "name", ["../x.txt", "/etc/x.txt", "a/../../x.txt", "C:\\x.txt", "a\\x.txt", "C:x.txt", "a\x1b.txt"]
)
def test_zip_names_that_leave_their_folder_are_refused(tmp_path, name):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good.txt", "good")
        archive.writestr(name, "evil")
    with pytest.raises(UnmaskError, match="leaves its folder"):
        read(path)
    assert read(path, skip_bad=1)[0] == ["good"]


def test_a_damaged_zip_names_the_member(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "good text " * 100)
        archive.writestr("b.txt", "other text " * 100)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"other text", b"0ther text", 1))
    with pytest.raises(UnmaskError, match="CRC") as error:
        read(path)
    assert error.value.where.endswith("a.zip/b.txt")
    path.write_bytes(data[:500])
    with pytest.raises(UnmaskError, match="cannot read this zip"):
        read(path)


def test_folders_are_read_recursively_in_order_and_the_rest_is_counted(tmp_path):
    for name in ("b/2.txt", "a/1.txt", "c.txt", "a.md", ".git/x.txt", "b/.hidden.txt", "noext"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "b/loop").symlink_to(tmp_path)
    texts, report = read(tmp_path)
    assert texts == ["a/1.txt", "b/2.txt", "c.txt"]
    assert report.ignored == {".md": 1, "hidden": 2, "no extension": 1}


def test_globs_are_sorted_and_a_file_named_twice_is_read_once(tmp_path):
    for name in ("b.txt", "a.txt", "c.jsonl"):
        (tmp_path / name).write_text('{"text": "c"}' if name == "c.jsonl" else name)
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    texts, report = read(tmp_path / "*.txt", tmp_path / "a*", tmp_path, tmp_path / "**")
    assert texts == ["a.txt", "b.txt", "c"] and report.repeated == 1 + 1 + 3 + 4
    assert report.documents == 3


def test_a_missing_file_is_an_error_at_once_with_the_nearest_name(tmp_path):
    (tmp_path / "corpus.txt").write_text("x")
    with pytest.raises(UnmaskError, match=r"did you mean .*corpus\.txt"):
        read_documents([str(tmp_path / "corpus.txt"), str(tmp_path / "corpsu.txt")], ReadOptions(), ReadReport())
    with pytest.raises(UnmaskError, match="nothing that can be read matches"):
        read_documents([str(tmp_path / "*.csv")], ReadOptions(), ReadReport())
    (tmp_path / "e").mkdir()
    with pytest.raises(UnmaskError, match="no text file in this folder"):
        read_documents([str(tmp_path / "e")], ReadOptions(), ReadReport())


def test_an_unknown_extension_needs_a_format(tmp_path):
    (tmp_path / "dump.json").write_text('{"text": "a"}\n{"text": "b"}\n')
    with pytest.raises(UnmaskError, match="does not say what it is"):
        read(tmp_path / "dump.json")
    assert read(tmp_path / "dump.json", format="jsonl")[0] == ["a", "b"]
    (tmp_path / "x.parquet.gz").write_bytes(b"")
    with pytest.raises(UnmaskError, match="known are"):
        read(tmp_path / "x.parquet.gz", format="txt")


def test_standard_input_is_text_or_what_the_format_says(monkeypatch):
    def standard_input(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))

    standard_input(b"a\nb\n")
    assert read("-", separator="line")[0] == ["a", "b"]
    standard_input(b'{"text": "x"}\n')
    assert read("-", format="jsonl")[0] == ["x"]


def test_parquet_gives_its_text_column_and_counts_rows(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"text {i}" for i in range(1000)] + ["", "null"]
    table = pa.table({"id": range(1002), "body": pa.array(texts, pa.large_string()).dictionary_encode()})
    pq.write_table(table, path, row_group_size=300)
    report = ReadReport()
    documents = list(read_documents([str(path)], ReadOptions(), report))
    assert [d.text for d in documents] == texts[:1000] + ["null"]
    assert documents[-1].record == 1002 and report.empty_at == [f"{path}:1001"] and report.fields == {"body": 1}
    with pytest.raises(UnmaskError, match="int64"):
        read(path, field="id")


def test_a_missing_or_damaged_parquet_value_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", None, "b"]}), path)
    with pytest.raises(UnmaskError, match="null"):
        read(path)
    texts, report = read(path, skip_bad=1)
    assert texts == ["a", "b"] and report.bad == [f"{path}:2: field 'text' is null, not a string"]
    raw = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": raw}), path)
    with pytest.raises(UnmaskError, match="not UTF-8"):
        read(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UnmaskError, match="parquet"):
        read(path)


def test_the_hub_needs_the_datasets_library_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UnmaskError, match=r"pip install 'unmask\[datasets\]'"):
        read("hf:owner/name")


def test_hub_data_sets_are_streamed_from_the_named_split(monkeypatch):
    asked = []

    def load_dataset(path, config, *, split, streaming):
        asked.append((path, config, split, streaming))
        if path == "absent/x":
            raise FileNotFoundError("no such data set\nmore")
        return [{"id": 1, "body": "one"}, {"id": 2, "body": "two"}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert read("hf:owner/name/conf:test")[0] == ["one", "two"]
    assert asked == [("owner/name", "conf", "test", True)]
    with pytest.raises(UnmaskError, match="no such data set"):
        read("hf:absent/x")


def test_hub_names_have_an_owner_a_configuration_and_a_split():
    assert hub_name("hf:imdb") == ("imdb", None, "train")
    assert hub_name("hf:o/n:validation") == ("o/n", None, "validation")
    assert hub_name("hf:o/n/c:test[:1%]") == ("o/n", "c", "test[:1%]")
    with pytest.raises(UnmaskError):
        hub_name("hf:a/b/c/d")


def test_B026_nothing_is_written_beside_the_source(tmp_path):
    for name, data in {"a.txt": b"x", "b.jsonl.gz": gzip.compress(b'{"text": "y"}')}.items():
        (tmp_path / name).write_bytes(data)
    pq.write_table(pa.table({"text": ["z"]}), tmp_path / "c.parquet")
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr("d.txt", "w")
    code = (
        "import sys\n"
        "sys.addaudithook(lambda e, a: e == 'open' and (a[2] & 3 or isinstance(a[1], str) and a[1][0] in 'wax')"
        " and print('WROTE', a[0]))\n"
        "from unmask.text.reader import *\n"
        "print(*(d.text for d in read_documents([sys.argv[1]], ReadOptions(), ReadReport())))\n"
    )
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=env)
    assert done.stdout == "x y z w\n" and not done.stderr


def test_B017_a_corpus_three_times_the_address_space_streams(tmp_path):
    path = tmp_path / "big.jsonl"
    record = json.dumps({"text": "many words " * 200}) + "\n"
    with path.open("w") as file:
        for _ in range(60):
            file.write(record * 1000)  # 132 MB in all
    code = (
        "import resource, sys\n"
        "from unmask.text.reader import *\n"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (now + 40_000_000,) * 2)\n"
        "for source in sys.argv[1:]:\n"
        "    report = ReadReport()\n"
        "    for document in read_documents([source], ReadOptions(), report): pass\n"
        "    print(report.documents)\n"
    )
    assert path.stat().st_size > 3 * 40_000_000
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout == "60000\n", done.stderr


def test_python_docs_are_a_source_whose_unreadable_files_are_counted(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text('"""' + "A sentence of the documentation of it. " * 9 + '"""')
    (tmp_path / "b.py").write_text("def broken(:")
    files = [DocFile(tmp_path / name, name) for name in ("a.py", "b.py")]
    monkeypatch.setattr(pydocs, "doc_files", lambda: files)
    texts, report = read("python-docs", "python-docs")
    assert len(texts) == 1 and report.files == 2 and report.repeated == 1 and report.ignored == {"does not parse": 1}


def test_real_corpora_are_read_whole(shared):
    name = "zh_csl_abstracts"
    path = shared / "data/corpora" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        records = [json.loads(line) for line in file]
    texts, report = read(path)
    assert texts == [r["text"].strip("\n") for r in records if r["text"].strip()]
    assert report.documents + report.empty == len(records) and not report.bad_count
