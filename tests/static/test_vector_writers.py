"""Writing files of vectors: back to the same bits, and readable by gensim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.static.formats import FileFormat, read_file, write_file
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts

FORMATS: tuple[FileFormat, ...] = ("word2vec", "word2vec-binary", "glove", "fasttext")
WORDS = ["the", "中文", "naïve", "<unk>", "0.5", "-", "😀", "x" * 2000]
letters = st.characters(exclude_categories=["Z", "Cs", "Cc"])


def some_vectors(words: list[str], dimension: int = 5, seed: int = 0) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(len(words), dimension)).astype(np.float32)
    return Vectors(WordCounts(words, np.zeros(len(words), np.int64)), matrix)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=15, deadline=None)
@given(
    words=st.lists(st.text(letters, min_size=1, max_size=6), min_size=1, max_size=6, unique=True),
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=12, max_size=12),
)
def test_what_is_written_is_read_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, form: FileFormat, words: list[str], numbers: list[float]
) -> None:
    path = tmp_path_factory.getbasetemp() / form
    matrix = np.resize(np.array(numbers, np.float32), (len(words), 3))
    write_file(Vectors(WordCounts(words, np.zeros(len(words), np.int64)), matrix), path, form)
    vectors, report = read_file(path)
    assert list(vectors.words.words) == words and not report.warnings
    np.testing.assert_array_equal(vectors.matrix.view(np.int32), matrix.view(np.int32))


def test_floats_that_look_like_text_are_still_floats(tmp_path: Path) -> None:
    """A file so small that no byte of it is one that text never has."""
    numbers = np.array([[69177.0, 79417.0, 319713.0]], np.float32)
    assert not set(numbers.tobytes()) & set(range(9))
    write_file(Vectors(WordCounts(["0"], np.zeros(1, np.int64)), numbers), tmp_path / "v", "word2vec-binary")
    np.testing.assert_array_equal(read_file(tmp_path / "v")[0].matrix, numbers)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves a file open
@pytest.mark.parametrize("form", FORMATS)
def test_gensim_reads_what_we_write(tmp_path: Path, form: FileFormat) -> None:
    keyed = pytest.importorskip("gensim.models.keyedvectors")
    vectors = some_vectors(WORDS)
    write_file(vectors, tmp_path / "v", form)
    theirs = keyed.KeyedVectors.load_word2vec_format(
        str(tmp_path / "v"), binary=form == "word2vec-binary", no_header=form == "glove"
    )
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, vectors.matrix)


@pytest.mark.parametrize(("binary", "header"), [(False, True), (False, False), (True, True)])
def test_we_read_what_gensim_writes(tmp_path: Path, binary: bool, header: bool) -> None:
    keyed = pytest.importorskip("gensim.models.keyedvectors")
    words = WORDS if binary else [*WORDS, "New York", "to\u00a0be"]  # its binary files tear words with spaces apart
    theirs = keyed.KeyedVectors(5)
    theirs.add_vectors(words, some_vectors(words).matrix)
    theirs.save_word2vec_format(str(tmp_path / "v"), binary=binary, write_header=header, sort_attr=None)
    ours, report = read_file(tmp_path / "v")
    assert list(ours.words.words) == words and report.spaced == len(words) - len(WORDS)
    np.testing.assert_array_equal(ours.matrix, theirs.vectors)


@pytest.mark.parametrize(
    ("form", "bad", "safe"),
    [
        ("word2vec", "New York", "New_York"),
        ("glove", "to\u00a0be", "to_be"),
        ("fasttext", "中\u3000文", "中_文"),
        ("glove", "half \ud83d", "half__"),
        ("word2vec-binary", "New York", "New_York"),
    ],
)
def test_words_that_a_file_would_tear_apart_are_refused_by_name_or_get_underscores(
    tmp_path: Path, form: FileFormat, bad: str, safe: str
) -> None:
    path = tmp_path / "v"
    with pytest.raises(UnmaskError) as caught:
        write_file(some_vectors(["a", bad]), path, form)
    assert repr(bad) in caught.value.what and not path.exists()
    write_file(some_vectors(["a", bad]), path, form, spaces="underscore")
    assert list(read_file(path)[0].words.words) == ["a", safe]


def test_underscores_that_make_two_words_equal_are_refused(tmp_path: Path) -> None:
    for words in (["New_York", "New York"], ["New York", "New\u00a0York"]):
        with pytest.raises(UnmaskError, match="New"):
            write_file(some_vectors(words), tmp_path / "v", "word2vec", spaces="underscore")
    assert not (tmp_path / "v").exists()


def test_an_older_file_stays_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "v"
    path.write_text("old")

    def stop(what: str, done: float, total: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(some_vectors(WORDS), path, "word2vec", progress=stop)
    assert path.read_text() == "old" and [item.name for item in tmp_path.iterdir()] == ["v"]
