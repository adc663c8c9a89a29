"""What other tools lose or tear apart on the way from a text to its vectors: here every word is read, kept and trained on."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config.static import CharacterNgrams, Glove, Word2Vec, Words
from unmask.errors import UnmaskError
from unmask.static import glove, tokens, word2vec
from unmask.static.formats import FileFormat, read_file, write_file
from unmask.static.learn import Learned, learn
from unmask.static.load import load_vectors
from unmask.static.pairs import Pairs, count
from unmask.static.split import Splitting
from unmask.static.tokens import Tokens, tokens_of_lines
from unmask.static.vectors import Vectors
from unmask.text.documents import Document, ReadOptions

ALL = Words(min_count=1)
WORD2VEC = Word2Vec(dimension=4, window=2, epochs=2, subsample=0.0, words=ALL)
TRAINERS: dict[str, Word2Vec | Glove] = {
    "skipgram": WORD2VEC,
    "cbow": replace(WORD2VEC, model="cbow"),
    "skipgram, hierarchical": replace(WORD2VEC, loss="hierarchical"),
    "cbow, hierarchical": replace(WORD2VEC, model="cbow", loss="hierarchical"),
    "n-grams": replace(WORD2VEC, ngrams=CharacterNgrams(buckets=40)),
    "glove": Glove(dimension=4, window=2, epochs=2, memory=2**20, words=ALL),
}
SPACES = Splitting(rule="spaces", lowercase=False)
WHITE = [chr(code) for code in range(0x3001) if chr(code).isspace()]
GENSIM_LEAVES_A_FILE_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
FORMATS: tuple[FileFormat, ...] = ("word2vec", "word2vec-binary", "glove", "fasttext")


def learned(
    folder: Path, text: str, settings: Word2Vec | Glove, splitting: Splitting = SPACES, **options: int
) -> Learned:
    """Trains on a file of this text, whose vectors are in `folder / "v"` then."""
    (folder / "text.txt").write_text(text, encoding="utf-8", newline="")
    return learn(
        [str(folder / "text.txt")], folder / "v", settings, splitting, ReadOptions(separator="line"), **options
    )


def vectors_of(folder: Path) -> Vectors:
    return load_vectors(folder / "v")[0]


def tokens_of(folder: Path, text: str, words: Words = ALL) -> Tokens:
    folder.mkdir()
    return tokens_of_lines(SPACES.lines([Document(text, "text", 1)]), folder, words)


def pairs_trained(found: Pairs, size: int, settings: Glove, threads: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many pairs GloVe's loops say they have trained."""
    done, loop = list[int](), glove.train_tiles

    def counting(*given: object) -> tuple[float, int]:
        cost, number = loop(*given)  # type: ignore[arg-type]
        done.append(number)
        return cost, number

    with monkeypatch.context() as patch:
        patch.setattr(glove, "train_tiles", counting)
        glove.train(found, size, settings, threads=threads)
    return sum(done)


# --- long texts, and every word of them --------------------------------------------------------------------------------------
def test_a_text_of_100_000_words_in_one_line_is_trained_on_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """gensim#2880: what comes after 10,000 words of a text is counted, but not trained on."""
    text = " ".join(f"w{number * number % 97}" for number in range(100_000))
    distinct = len(set(text.split()))
    for name in ("skipgram", "cbow"):
        (tmp_path / name).mkdir()
        found = learned(tmp_path / name, text, replace(TRAINERS[name], epochs=1))
        assert (found.tokens, found.kept, found.words) == (100_000, 100_000, distinct)
    read = tokens_of(tmp_path / "tokens", text)
    epoch = word2vec.train(read, replace(WORD2VEC, epochs=1)).epochs[0]
    assert (epoch.words, epoch.kept) == (100_000, 100_000)
    pairs = count(read, tmp_path / "tokens", window=1, memory=2**20)
    assert sum(counts_both_ways(pairs)) == pytest.approx(2 * 99_999)
    assert pairs_trained(pairs, distinct, Glove(epochs=1, dimension=2), 1, monkeypatch) == pairs.num_ordered


def counts_both_ways(pairs: Pairs) -> Iterator[float]:
    """Of each tile; a pair of equal words has counted itself twice already."""
    for tile, (row, column) in enumerate(pairs.corners.tolist()):
        part = slice(pairs.tiles[tile], pairs.tiles[tile + 1])
        same = (pairs.high[part].astype(int) + row) == (pairs.low[part].astype(int) + column)
        yield float((pairs.counts[part].astype(np.float64) * np.where(same, 1, 2)).sum())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_words_read_kept_and_trained_add_up_for_any_number_of_threads(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """gensim#2693: another number of sentences is trained on than the file has."""
    draw = np.random.default_rng(0)
    lines = [[f"w{word}" for word in draw.zipf(1.5, size).clip(1, 400)] for size in draw.integers(1, 60, 300)]
    text = "\n".join(map(" ".join, lines))
    counts = Counter(text.split())
    kept = sum(number for number in counts.values() if number >= 3)
    assert 0 < kept < len(text.split())
    told = learned(tmp_path, text, replace(WORD2VEC, words=Words(min_count=3)), threads=threads)
    assert (told.tokens, told.kept) == (len(text.split()), kept)
    found = tokens_of(tmp_path / "tokens", text, Words(min_count=3))
    assert (found.read, len(found.ids), int(found.words.counts.sum())) == (told.tokens, kept, kept)
    epochs = word2vec.train(found, WORD2VEC, threads=threads, block=500).epochs
    assert [(epoch.words, epoch.kept) for epoch in epochs] == [(kept, kept)] * WORD2VEC.epochs
    pairs = count(found, tmp_path / "tokens", window=2, memory=2**20)
    trained = pairs_trained(pairs, len(found.words), Glove(epochs=3, dimension=2), threads, monkeypatch)
    assert trained == 3 * pairs.num_ordered


def test_lines_that_come_but_once_are_trained_on_in_every_epoch(tmp_path: Path):
    """gensim#801, #443: a generator was empty in the second pass, and the model stayed untrained, with a warning at most."""
    once = iter([["a", "b", "c", "a"], ["b", "c"]] * 20)
    found = tokens_of_lines(once, tmp_path, ALL)
    start = word2vec.train(found, WORD2VEC, stop=lambda: True)
    trained = [word2vec.train(found, replace(WORD2VEC, epochs=epochs)) for epochs in (1, 3)]
    assert [len(one.epochs) for one in trained] == [1, 3] and {e.words for one in trained for e in one.epochs} == {120}
    assert not any(np.allclose(start.inputs, one.inputs, atol=1e-6) for one in trained)
    with pytest.raises(UnmaskError, match="No word occurs"):
        tokens_of_lines(once, tmp_path, ALL)


@pytest.mark.parametrize("train", ["word2vec", "glove"])
@pytest.mark.parametrize("threads", [0, -1])
def test_no_thread_is_an_error_and_never_a_model_that_was_not_trained(train: str, threads: int, tmp_path: Path):
    """gensim#2709: with workers=-1 nothing was trained."""
    found = tokens_of(tmp_path / "tokens", "a b c d " * 30)
    with pytest.raises((UnmaskError, ValueError)):
        if train == "word2vec":
            word2vec.train(found, WORD2VEC, threads=threads)
        else:
            glove.train(count(found, tmp_path, window=2, memory=2**20), 4, Glove(dimension=2), threads=threads)


def test_distinct_words_beyond_the_limit_cost_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """gensim#361, #3500: the count of a large text ran out of memory, or threw away words at random to avoid it."""
    monkeypatch.setattr(tokens, "CHUNK", 2_000)

    def peak(distinct_words: int, held: int) -> int:
        lines = ([f"often{line % 7}", f"{line:0100}"] for line in range(distinct_words))
        (folder := tmp_path / f"{distinct_words}-{held}").mkdir()
        tracemalloc.start()
        try:
            found = tokens_of_lines(lines, folder, Words(min_count=2), distinct=held)
            assert found.read == 2 * distinct_words and sum(found.words.counts) == distinct_words
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many, unlimited = peak(3_000, 1_000), peak(15_000, 1_000), peak(15_000, 10**6)
    assert many < 2 * few and many < unlimited / 3


# --- what is a word ----------------------------------------------------------------------------------------------------------
@given(st.text(st.sampled_from([*WHITE, *"ab好1'-\u200b\u0301\U0001f642"]), max_size=40))
def test_no_word_is_empty_or_holds_white_space_of_any_kind(text: str):
    """gensim splits the text for its vocabulary by Unicode's white space and for training by that of ASCII, and loses both
    words beside a no-break space (found on 4.4); fastText#327 keeps it within a word. Here there is one way of splitting."""
    whole = [word for line in SPACES.lines([Document(text, "text", 1)]) for word in line]
    assert whole == text.split()
    running = [word for line in Splitting(lowercase=False).lines([Document(text, "text", 1)]) for word in line]
    assert all(word and not any(letter.isspace() for letter in word) for word in running)
    assert "".join(filter(str.isalnum, "".join(running))) == "".join(filter(str.isalnum, text))


@GENSIM_LEAVES_A_FILE_OPEN
@pytest.mark.parametrize("rule", ["spaces", "words"])
def test_white_space_of_any_kind_separates_in_a_file_and_what_is_written_is_read_by_others(rule: str, tmp_path: Path):
    """fastText#1130, #163; spaCy#834; word2vec#32: a .vec with a no-break space in a word could not be read."""
    text = "".join(f"w{number}{space}" for number, space in enumerate(WHITE))
    found = learned(tmp_path, text, TRAINERS["glove"], Splitting(rule=rule))  # type: ignore[arg-type]
    assert found.tokens == found.words == len(WHITE) == 29
    kept = vectors_of(tmp_path)
    assert sorted(kept.words.words) == sorted(f"w{number}" for number in range(29))
    require_readable(kept, tmp_path)


def require_readable(vectors: Vectors, folder: Path) -> None:
    """By us without a warning, and by gensim, to the bit, in every format."""
    words = list(vectors.words.words)
    for form in FORMATS:
        write_file(vectors, folder / form, form)
        back, report = read_file(folder / form)
        assert list(back.words.words) == words and np.array_equal(back.matrix, vectors.matrix) and not report.warnings
    keyed = pytest.importorskip("gensim.models.keyedvectors").KeyedVectors
    for form in FORMATS:
        how = {"binary": form == "word2vec-binary", "no_header": form == "glove"}
        theirs = keyed.load_word2vec_format(str(folder / form), **how)
        assert theirs.index_to_key == words and np.array_equal(theirs.vectors, vectors.matrix)


@GENSIM_LEAVES_A_FILE_OPEN
@pytest.mark.parametrize("name", ["skipgram", "glove"])
def test_marks_that_other_tools_reserve_are_words_like_any_other(name: str, tmp_path: Path):
    """GloVe#32: <unk> in the text broke the file of vectors. fastText#11: a number as a word shifted its vector."""
    text = "\n".join(["the <unk> cat -0.27998 sat 12 </s> 1e5 <s> nan [UNK]"] * 3)
    assert learned(tmp_path, text, TRAINERS[name]).words == 11
    kept = vectors_of(tmp_path)
    assert sorted(kept.words.words) == sorted(text.split("\n")[0].split())
    require_readable(kept, tmp_path)


def test_in_running_text_such_marks_are_the_word_within(tmp_path: Path):
    assert learned(tmp_path, "an <unk> b\n</s> <unk>\n", WORD2VEC, Splitting()).words == 4
    assert sorted(vectors_of(tmp_path).words.words) == ["an", "b", "s", "unk"]


@pytest.mark.parametrize("rule", ["spaces", "words"])
@pytest.mark.parametrize("name", ["skipgram", "glove"])
def test_B012_nuls_are_removed_and_counted_and_every_line_of_the_vocabulary_is_a_word(
    name: str, rule: str, tmp_path: Path
):
    """GloVe#34: a NUL in the text gave a vocabulary with broken lines."""
    found = learned(tmp_path, "good text\n a\0b c\n", TRAINERS[name], Splitting(rule=rule))  # type: ignore[arg-type]
    assert found.read is not None and found.read.nuls == 1 and found.tokens == 4
    assert (tmp_path / "v" / "words.txt").read_bytes() == b"good\ntext\nab\nc\n"


@GENSIM_LEAVES_A_FILE_OPEN
@pytest.mark.parametrize("name", ["skipgram", "n-grams", "glove"])
def test_B141_a_word_is_in_the_vocabulary_once_and_whole_however_long_it_is(name: str, tmp_path: Path):
    """GloVe#70: equal and over-long rows in the vocabulary. word2vec's program cuts words after 100 bytes."""
    long = "长" * 1999
    assert learned(tmp_path, f"mies {long}a mies\n{long}b mies mies\n", TRAINERS[name]).words == 3
    kept = vectors_of(tmp_path)
    assert list(kept.words.words) == ["mies", f"{long}a", f"{long}b"] and kept.words.counts.tolist() == [4, 1, 1]
    assert not np.array_equal(kept.matrix[1], kept.matrix[2])
    require_readable(kept, tmp_path)


# --- small texts -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_thirty_words_and_two_dimensions_are_enough_for_every_trainer(name: str, threads: int, tmp_path: Path):
    """GloVe#14: a text of 33 different words ended in nan or in a crash."""
    draw = np.random.default_rng(1)
    text = "\n".join(" ".join(f"w{word}" for word in draw.permutation(30)) for _ in range(10))
    found = learned(tmp_path, text, replace(TRAINERS[name], dimension=2, epochs=8), threads=threads)
    kept = vectors_of(tmp_path)
    assert kept.matrix.shape == (30, 2) and np.isfinite(kept.matrix).all() and np.isfinite(found.losses).all()
    assert len(found.losses) == 8 and len(kept.neighbors("w3", 29)) == 29
