"""Files to files: .npy and .parquet as others read them, whole or not there, every damaged record named."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from unmask.errors import CannotWriteError, UnmaskError
from unmask.inference import loaded as module
from unmask.inference.loaded import Loaded
from unmask.inference.stream import EmbedOptions, embed_files
from unmask.inference.writers import vector_writer
from unmask.text.documents import ReadOptions

LINES = ["the cat sat", "a", "mats .", "fig the cat", "the mat"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two lines, an empty one, three more."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*LINES[:2], "", *LINES[2:]]) + "\n")
    return path


def test_npy_holds_the_vectors_of_the_lines_in_order(loaded: Loaded, source: Path, tmp_path: Path) -> None:
    report = embed_files(loaded, [str(source)], tmp_path / "v.npy")
    assert np.array_equal(np.load(tmp_path / "v.npy"), loaded.encode(LINES))
    assert (report.texts, report.dimensions, report.truncated, report.read.empty) == (5, 48, 0, 1)
    assert report.tokens == 5 + 3 + 5 + 5 + 4
    assert np.load(tmp_path / "v.npy", mmap_mode="r").shape == (5, 48)


def test_parquet_says_where_each_vector_comes_from(loaded: Loaded, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "v.parquet"
    embed_files(loaded, [str(source)], out, EmbedOptions(keep_text=True, pooling=("cls",)))
    table = pq.read_table(out)
    assert table["id"].to_pylist() == [0, 1, 2, 3, 4] and table["text"].to_pylist() == LINES
    assert table["record"].to_pylist() == [1, 2, 4, 5, 6] and set(table["source"].to_pylist()) == {str(source)}
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    assert np.array_equal(vectors, loaded.encode(LINES, pooling="cls"))
    assert "fixed_size_list<" in str(table.schema.field("vector").type) and "[48]" in str(
        table.schema.field("vector").type
    )
    assert json.loads(table.schema.metadata[b"unmask"])["pooling"] == ["cls"]


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_half_precision_and_many_blocks(
    loaded: Loaded, source: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW_TEXTS", 2)
    embed_files(loaded, [str(source)], tmp_path / name, EmbedOptions(dtype="float16"))
    found = (
        np.load(tmp_path / name)
        if name == "v.npy"
        else np.stack(pq.read_table(tmp_path / name)["vector"].to_numpy(zero_copy_only=False))
    )
    assert found.dtype == np.float16 and np.abs(found - loaded.encode(LINES)).max() < 0.01


def test_records_and_compressed_files_and_folders_are_read(loaded: Loaded, tmp_path: Path) -> None:
    here = tmp_path / "texts"
    here.mkdir()
    with gzip.open(here / "a.jsonl.gz", "wt") as file:
        file.write('{"title": "the cat", "n": 1}\n{"title": "mat"}\n')
    (here / "b.csv").write_text("title,n\nsat,2\n")
    embed_files(loaded, [str(here)], tmp_path / "v.parquet", EmbedOptions(read=ReadOptions(field="title")))
    table = pq.read_table(tmp_path / "v.parquet")
    assert [Path(name).name for name in table["source"].to_pylist()] == ["a.jsonl.gz", "a.jsonl.gz", "b.csv"]
    vectors = np.stack(table["vector"].to_numpy(zero_copy_only=False))
    assert np.abs(vectors - loaded.encode(["the cat", "mat", "sat"])).max() < 1e-5


def test_a_damaged_record_is_found_before_any_work_and_leaves_what_was_there(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW_TEXTS", 1)
    path, out = tmp_path / "t.jsonl", tmp_path / "v.npy"
    path.write_text('{"text": "the"}\n' * 3 + '{"text": 7}\n')
    out.write_bytes(b"as before")
    told: list[str] = []
    with pytest.raises(UnmaskError, match="field 'text' is int, not a string") as caught:
        embed_files(loaded, [str(path)], out, progress=lambda what, done, total: told.append(what))
    assert caught.value.where == f"{path}:4" and not any("embedding" in what for what in told)
    assert out.read_bytes() == b"as before" and sorted(os.listdir(tmp_path)) == ["t.jsonl", "v.npy"]


def test_nothing_to_embed_and_wrong_names_are_refused(loaded: Loaded, source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UnmaskError, match="no text to embed"):
        embed_files(loaded, [str(tmp_path / "empty.txt")], tmp_path / "v.npy")
    with pytest.raises(UnmaskError, match="v.csv is no .npy and no .parquet"):
        embed_files(loaded, [str(source)], tmp_path / "v.csv")
    with pytest.raises(UnmaskError, match="no place for texts"):
        embed_files(loaded, [str(source)], tmp_path / "v.npy", EmbedOptions(keep_text=True))
    embed_files(loaded, [str(source)], tmp_path / "v.parquet", EmbedOptions(keep_text=True))
    with pytest.raises(CannotWriteError, match="one of the files to read"):
        embed_files(loaded, [str(tmp_path / "v.parquet")], tmp_path / "v.parquet")
    assert sorted(os.listdir(tmp_path)) == ["empty.txt", "texts.txt", "v.parquet"]


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_numbers_beyond_half_precision_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnmaskError, match="beyond float16"), vector_writer(tmp_path / name, "float16") as writer:
        writer.write(np.full((1, 2), 7e4, np.float32), [])
    assert os.listdir(tmp_path) == []


def test_the_header_of_npy_is_right_for_any_number_of_rows(tmp_path: Path) -> None:
    rows = np.arange(30, dtype=np.float32).reshape(10, 3)
    with vector_writer(tmp_path / "v.npy", "float32") as writer:
        for row in rows:
            writer.write(row[None], [])
    assert np.array_equal(np.load(tmp_path / "v.npy"), rows)
    np.save(tmp_path / "theirs.npy", rows)
    assert (tmp_path / "v.npy").read_bytes()[128:] == (tmp_path / "theirs.npy").read_bytes()[128:]


def test_a_killed_writer_leaves_nothing_under_the_name_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    script = """
        import sys, time, pathlib, numpy as np
        from unmask.inference.writers import vector_writer
        with vector_writer(pathlib.Path(sys.argv[1]), "float32") as writer:
            writer.write(np.ones((4, 2), np.float32), [])
            print("written", flush=True)
            time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "v.npy")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    left = os.listdir(tmp_path)
    assert len(left) == 1 and left[0].startswith(".tmp-v.npy-")
    with vector_writer(tmp_path / "v.npy", "float32") as writer:
        writer.write(np.ones((1, 2), np.float32), [])
    assert os.listdir(tmp_path) == ["v.npy"]
