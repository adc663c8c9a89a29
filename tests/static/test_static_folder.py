"""A folder of static vectors: back to the bit, mapped and not read, and safe against damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from unmask.config.static import CharacterNgrams, Glove, Word2Vec
from unmask.errors import CannotWriteError, DamagedError, UnmaskError
from unmask.files import read_manifest, write_folder
from unmask.static.folder import StaticFolder, is_static_folder, read_static_folder, write_static_folder
from unmask.static.load import load_vectors
from unmask.static.ngrams import Ngrams
from unmask.static.tensor_file import map_tensors, write_tensors
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts

WORDS = ["the", "New York", "to\u00a0be", "line\u2028sep", "tab\there", "中文", "\ud800"]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.fixture
def held() -> StaticFolder:
    cut = CharacterNgrams(buckets=30)
    words = WordCounts(WORDS, np.arange(7, 0, -1) * 10**10)
    return StaticFolder(
        Vectors(words, floats(7, 4), Ngrams(cut, floats(30, 4))), Word2Vec(dimension=4, ngrams=cut), floats(7, 4)
    )


def test_a_folder_gives_back_what_was_put_into_it(tmp_path: Path, held: StaticFolder) -> None:
    write_static_folder(tmp_path / "f", held)
    back = read_static_folder(tmp_path / "f")
    assert back.settings == held.settings and list(back.vectors.words.words) == WORDS
    assert back.vectors.ngrams and held.vectors.ngrams and back.output is not None
    for one, other in [
        (back.vectors.matrix, held.vectors.matrix),
        (back.vectors.words.counts, held.vectors.words.counts),
        (back.vectors.ngrams.matrix, held.vectors.ngrams.matrix),
        (back.output, held.output),
    ]:
        np.testing.assert_array_equal(one, other)
        assert not one.flags.writeable and isinstance(base_of(one), np.memmap)
    assert back.vectors.neighbors("the") == held.vectors.neighbors("the")
    assert back.vectors.neighbors("unknown") == held.vectors.neighbors("unknown")
    config = json.loads((tmp_path / "f/config.json").read_text())
    assert (config["kind"], config["dimension"], config["words"]) == ("word2vec", 4, 7)


def base_of(array: np.ndarray) -> object:
    while not isinstance(array, np.memmap) and array.base is not None:
        array = array.base
    return array


@pytest.mark.parametrize("settings", [None, Glove(dimension=2, window=3), Word2Vec(loss="hierarchical")])
def test_n_grams_and_output_may_be_absent(tmp_path: Path, settings: Glove | Word2Vec | None) -> None:
    vectors = Vectors(WordCounts(["a", "b"], np.zeros(2, np.int64)), floats(2, 2))
    write_static_folder(tmp_path / "f", StaticFolder(vectors, settings))
    back = read_static_folder(tmp_path / "f")
    assert back.settings == settings and back.output is None and back.vectors.ngrams is None


def test_a_folder_is_replaced_only_when_asked_and_only_if_it_is_one(tmp_path: Path, held: StaticFolder) -> None:
    write_static_folder(tmp_path / "f", held)
    with pytest.raises(CannotWriteError):
        write_static_folder(tmp_path / "f", held)
    write_static_folder(tmp_path / "f", StaticFolder(held.vectors, held.settings), overwrite=True)
    assert read_static_folder(tmp_path / "f").output is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    with pytest.raises(CannotWriteError):
        write_static_folder(tmp_path / "other", held, overwrite=True)


def test_a_word_with_a_line_feed_is_refused(tmp_path: Path) -> None:
    vectors = Vectors(WordCounts(["a\nb"], np.ones(1, np.int64)), floats(1, 2))
    with pytest.raises(UnmaskError, match="line feed"):
        write_static_folder(tmp_path / "f", StaticFolder(vectors))
    assert not (tmp_path / "f").exists()


def test_damage_is_noticed(tmp_path: Path, held: StaticFolder) -> None:
    write_static_folder(tmp_path / "whole", held)
    names = [path.name for path in (tmp_path / "whole").iterdir()]
    assert len(names) == 4
    for name in names:
        for harm in ("gone", "cut", "flipped"):
            if name == "vectors.safetensors" and harm == "flipped":
                continue  # only verify_folder reads all of it
            folder = tmp_path / f"{name}-{harm}"
            shutil.copytree(tmp_path / "whole", folder)
            data = (folder / name).read_bytes()
            (folder / name).unlink()
            if harm != "gone":
                (folder / name).write_bytes(data[:-1] if harm == "cut" else bytes([data[0] ^ 1]) + data[1:])
            with pytest.raises(DamagedError):
                read_static_folder(folder)


def test_files_that_do_not_belong_together_are_noticed(tmp_path: Path, held: StaticFolder) -> None:
    """Each as its manifest says, but not of the same words."""
    write_static_folder(tmp_path / "f", held)
    with write_folder(tmp_path / "mixed", about=read_manifest(tmp_path / "f")["about"]) as mixed:
        shutil.copy(tmp_path / "f/config.json", mixed)
        shutil.copy(tmp_path / "f/vectors.safetensors", mixed)
        (mixed / "words.txt").write_text("one\ntwo\n")
    with pytest.raises(DamagedError, match="2 words"):
        read_static_folder(tmp_path / "mixed")
    with write_folder(tmp_path / "other", about={"format": "something else"}) as other:
        (other / "file").write_text("x")
    with pytest.raises(UnmaskError, match="no static vectors"):
        read_static_folder(tmp_path / "other")


def test_vectors_are_loaded_from_a_folder_or_a_file(tmp_path: Path, held: StaticFolder) -> None:
    write_static_folder(tmp_path / "f", held)
    assert is_static_folder(tmp_path / "f") and not is_static_folder(tmp_path)
    vectors, report = load_vectors(tmp_path / "f", limit=2)
    assert report is None and list(vectors.words.words) == WORDS[:2] and vectors.matrix.shape == (2, 4)
    assert vectors.words.counts.tolist() == [7 * 10**10, 6 * 10**10]
    (tmp_path / "file").write_text("a 1 2\nb 3 4\n")
    vectors, report = load_vectors(tmp_path / "file", limit=1)
    assert report and report.format == "glove" and list(vectors.words.words) == ["a"]
    with pytest.raises(UnmaskError, match="no static vectors"):
        load_vectors(tmp_path)


def test_tensor_files_are_safetensors(tmp_path: Path) -> None:
    arrays = {"a": floats(3, 5), "numbers": np.arange(4), "empty": floats(0, 2), "turned": floats(2, 3).T}
    write_tensors(tmp_path / "ours", arrays)
    theirs = load_file(tmp_path / "ours")
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, tmp_path / "theirs")
    ours = map_tensors(tmp_path / "theirs")
    for name, array in arrays.items():
        np.testing.assert_array_equal(theirs[name], array)
        np.testing.assert_array_equal(ours[name], array)
        np.testing.assert_array_equal(map_tensors(tmp_path / "ours")[name], array)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 16]}}',
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}',
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [-16, -8]}}',
        b'{"a": {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}}',
        b'{"a": {"dtype": "I8", "shape": [16], "data_offsets": [0, 16]}}',
        b'{"a": {"dtype": "F32", "shape": "4", "data_offsets": [0, 16]}}',
        b'{"a": 5}',
        b"[" * 100_000,
    ],
)
def test_a_hostile_header_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "t").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(DamagedError):
        map_tensors(tmp_path / "t")
    (tmp_path / "t").write_bytes(b"\xff" * 8 + bytes(16))
    with pytest.raises(DamagedError):
        map_tensors(tmp_path / "t")
