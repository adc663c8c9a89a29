"""Files of vectors that others could not read, read wrongly, or ran programs from; and what looking words up must leave alone."""

from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.measure.word_sets import Analogy, WordPair
from unmask.measure.words import word_analogies, word_similarity
from unmask.static.formats import read_file
from unmask.static.load import load_vectors
from unmask.static.nearest import unit_rows
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts


def vectors_of(words: list[str], seed: int = 0, dimension: int = 3) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(len(words), dimension)).astype(np.float32)
    return Vectors(WordCounts(words, np.arange(len(words), 0, -1)), matrix)


# --- files that are no vectors -----------------------------------------------------------------------------------------------
class Hostile:
    """Makes a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_no_pickle_is_ever_opened_whatever_its_protocol(protocol: int, pack: Callable[[bytes], bytes], tmp_path: Path):
    (tmp_path / "v.kv").write_bytes(pack(pickle.dumps(Hostile(tmp_path / "marker"), protocol)))
    with pytest.raises(UnmaskError):
        load_vectors(tmp_path / "v.kv")
    assert not (tmp_path / "marker").exists()


def test_what_gensim_saves_in_its_own_way_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its .kv and .model are pickles, with a .npy beside them when they are large."""
    models = pytest.importorskip("gensim.models")
    trained = models.Word2Vec([["a", "b", "c"]] * 20, vector_size=4, min_count=1, workers=1)
    trained.save(str(tmp_path / "v.model"))
    trained.wv.save(str(tmp_path / "v.kv"))
    trained.wv.save(str(tmp_path / "large.kv"), separately=["vectors"])
    saved = sorted(path for path in tmp_path.iterdir())
    assert [path.name for path in saved] == ["large.kv", "large.kv.vectors.npy", "v.kv", "v.model"]
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *given, **more: pytest.fail("a pickle was opened"))
    for path in saved:
        with pytest.raises(UnmaskError, match="NumPy" if path.suffix == ".npy" else "pickle") as caught:
            load_vectors(path)
        assert "word2vec format" in caught.value.do and str(path) in caught.value.where


@pytest.mark.parametrize("dimension", [2, 10, 50, 300])
@pytest.mark.parametrize("kind", ["<f2", "<f8"])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_files_of_other_floats_are_refused_with_a_hint(dimension: int, kind: str, end: bytes, tmp_path: Path):
    """gensim#1682: files of 16-bit floats are word2vec's binary format but for the width, of which the header says nothing."""
    draw = np.random.default_rng(dimension)
    rows = [b"word%d " % row + draw.normal(0, 0.1, dimension).astype(kind).tobytes() + end for row in range(200)]
    (tmp_path / "v.bin").write_bytes(b"200 %d\n" % dimension + b"".join(rows))
    with pytest.raises(UnmaskError, match="damaged|cut off") as caught:
        read_file(tmp_path / "v.bin")
    assert "16-bit" in caught.value.do or "32-bit" in caught.value.do


# --- odd words ---------------------------------------------------------------------------------------------------------------
def test_words_that_were_cut_apart_and_became_equal_are_one_row(tmp_path: Path):
    """gensim#2402: two words that differ in their broken bytes alone were one word of two vectors, and all behind it were wrong."""
    cut = [b"\xe6\xbc\xa2\xe5\xad", b"\xe6\xbc\xa2\xe5\xad\x97", b"\xe6\xbc\xa2\xe5\x8d", b"last"]
    for header, rows in (
        (b"4 1\n", [b"%s %d\n" % (word, row) for row, word in enumerate(cut)]),
        (b"4 1\n", [word + b" " + np.float32(row).tobytes() + b"\n" for row, word in enumerate(cut)]),
    ):
        (tmp_path / "v").write_bytes(header + b"".join(rows))
        vectors, report = read_file(tmp_path / "v")
        assert list(vectors.words.words) == ["漢\ufffd", "漢字", "last"] and vectors.matrix[:, 0].tolist() == [0, 1, 3]
        assert (report.broken, report.duplicates, len(report.warnings)) == (2, 1, 2)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_first_letter_of_a_word_stays_whether_line_feeds_part_the_records_or_not(end: bytes, tmp_path: Path):
    """word2vec#54, #58, gensim#567: a reader had to be told, and ate a letter of each word when it was told wrongly."""
    words = [b"a", b"bb", "é".encode(), "字".encode(), b"\xa0".decode("latin1").encode() + b"x"]
    floats = np.frombuffer(b"\n\n\n\n \n\n ", np.float32)  # bytes that look like what stands between records
    rows = [word + b" " + floats.tobytes() + end for word in words]
    (tmp_path / "v.bin").write_bytes(b"5 2\n" + b"".join(rows))
    vectors, report = read_file(tmp_path / "v.bin")
    assert [word.encode() for word in vectors.words.words] == words and (vectors.matrix == floats).all()
    assert report.format == "word2vec-binary" and report.rows == 5


def test_a_negative_limit_is_an_error(tmp_path: Path):
    for content in (b"2 1\na 1\nb 2\n", b"1 1\na " + np.float32(0.1).tobytes()):
        (tmp_path / "v").write_bytes(content)
        with pytest.raises(UnmaskError, match="limit is -1"):
            read_file(tmp_path / "v", limit=-1)
    vectors = vectors_of(["a", "b"])
    with pytest.raises(UnmaskError, match="limit is -1"):
        word_similarity(vectors, [WordPair("a", "b", 1.0)], limit=-1)
    with pytest.raises(UnmaskError, match="limit is -1"):
        word_analogies(vectors, [Analogy("s", "a", "b", "a", "b")], limit=-1)


# --- looking up --------------------------------------------------------------------------------------------------------------
def test_looking_words_up_and_measuring_change_nothing():
    """deeplearning4j#3285: asking for neighbours left all vectors at length 1. gensim#2014: measuring changed the vocabulary."""
    vectors = vectors_of([f"{'wW'[row % 2]}{row}" for row in range(30)])
    before, words = vectors.matrix.copy(), list(vectors.words.words)
    first = vectors.neighbors("w0"), vectors.analogy("w0", "W1", "w2", method="mul"), vectors.similarity("w0", "W1")
    word_similarity(vectors, [WordPair("w0", "w1", 1.0), WordPair("w2", "w3", 2.0)])
    word_analogies(vectors, [Analogy("s", "w0", "w1", "w2", "w3")])
    assert np.array_equal(vectors.matrix, before) and list(vectors.words.words) == words
    assert vectors.words.index == {word: row for row, word in enumerate(words)}
    again = vectors.neighbors("w0"), vectors.analogy("w0", "W1", "w2", method="mul"), vectors.similarity("w0", "W1")
    assert again == first


NAMES = ["he", "He", "HE", "she", "She", "king", "King", "queen", "straße", "STRASSE", "ΣΟΦΟΣ", "σοφος"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(NAMES), min_size=3, max_size=3), st.integers(0, 50), st.sampled_from(["add", "mul"]))
def test_no_word_of_a_question_is_its_answer_and_neither_is_another_spelling_of_it(
    asked: list[str], seed: int, method: str
):
    """gensim#804, #2014, #2999: "He" was an answer to a question with "he", and capitals were ignored in some places only.

    Of words that differ in capitals the first is meant, and it alone can be the answer to a question of a set.
    """
    vectors = vectors_of(NAMES, seed)
    found = vectors.analogy(*asked, k=99, method=method)  # type: ignore[arg-type]
    assert {one.word for one in found} == set(NAMES) - set(asked)
    meant = {name.casefold(): row for row, name in reversed(list(enumerate(NAMES)))}
    a, b, c = (unit_rows(vectors.matrix)[meant[word.casefold()]].astype(np.float64) for word in asked)
    score = {}
    for folded, row in meant.items():
        to_a, to_b, to_c = (1 + float(unit_rows(vectors.matrix)[row] @ one) for one in (a, b, c))
        score[folded] = to_b - to_a + to_c if method == "add" else to_b / 2 * (to_c / 2) / (to_a / 2 + 1e-6)
    best = max(score.keys() - {word.casefold() for word in asked}, key=score.__getitem__)
    for answer, right in ((best, 1), (best.upper(), 1), (asked[0], 0)):
        told = word_analogies(vectors, [Analogy("s", *asked, answer)], method=method)  # type: ignore[arg-type]
        assert (told.total.used, told.total.correct) == (1, right)
