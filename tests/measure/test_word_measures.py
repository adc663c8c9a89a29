"""Scores of static vectors: by hand, and as gensim and scipy have them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from unmask.config.static import CharacterNgrams
from unmask.errors import UnmaskError
from unmask.measure.word_sets import Analogy, WordPair, read_analogies, read_pairs
from unmask.measure.words import word_analogies, word_similarity
from unmask.static.ngrams import Ngrams
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts


def vectors_of(words: list[str], dimension: int = 8, ngrams: Ngrams | None = None) -> Vectors:
    matrix = np.random.default_rng(3).normal(size=(len(words), dimension)).astype(np.float32)
    return Vectors(WordCounts(words, np.arange(len(words), 0, -1)), matrix, ngrams)


@pytest.fixture(scope="module")
def wordsim(shared: Path) -> Path:
    if not (shared / "data/wordsim").is_dir():
        pytest.skip("needs the shared word sets")
    return shared / "data/wordsim"


# Files


def test_the_shared_word_sets_are_read_whole(wordsim: Path) -> None:
    for entry in json.loads((wordsim / "index.json").read_text()):
        path = wordsim / f"{entry['name']}.tsv"
        read = read_pairs if entry["kind"] == "wordsim-similarity" else read_analogies
        rows: list[tuple[object, ...]] = [*read(path)]
        assert len(rows) == entry["rows"], path.name
        assert all(isinstance(field, float) or field for row in rows for field in row)


@pytest.mark.parametrize(
    "text",
    [
        "word1\tword2\tscore\ncat\tdog\t7.5\n中文\tNew York\t-1\n",
        "# remark\nWord 1,Word 2,Human (mean)\r\ncat,dog,7.5,extra\r\n中文,New York,-1\r\n",
        "\ufeffcat\tdog\t7.5\n\n中文\tNew York\t-1",
    ],
)
def test_pairs_are_read_as_their_authors_wrote_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "pairs").write_text(text, encoding="utf-8")
    assert read_pairs(tmp_path / "pairs") == [WordPair("cat", "dog", 7.5), WordPair("中文", "New York", -1)]
    (tmp_path / "pairs").write_text("cat dog 7.5\n")
    assert read_pairs(tmp_path / "pairs") == [WordPair("cat", "dog", 7.5)]


def test_analogies_are_read_as_google_wrote_them(tmp_path: Path) -> None:
    wanted = [Analogy("capital-world", "a", "b", "c", "d"), Analogy("gram1 x", "e", "f", "g", "h")]
    (tmp_path / "q").write_text(": capital-world\na b c d\n: gram1 x\ne f g h\n")
    assert read_analogies(tmp_path / "q") == wanted
    rows = ["section\ta\tb\tc\td", *("\t".join(question) for question in wanted)]
    (tmp_path / "q").write_text("\n".join(rows))
    assert read_analogies(tmp_path / "q") == wanted


@pytest.mark.parametrize(
    ("read", "text", "where", "what"),
    [
        (read_pairs, b"a b 1\na b\n", ":2", "two words and a number"),
        (read_pairs, b"a b 1\na b nan\n", ":2", "two words and a number"),
        (read_pairs, b"a\tb\tscore\n\nx\ty\tz\n", ":3", "two words and a number"),
        (read_pairs, b"a b c\n", "", "no pair"),
        (read_pairs, b"a b 1\nc \xff 1\n", ":2", "UTF-8"),
        (read_pairs, b"\n", "", "empty"),
        (read_analogies, b": s\na b c\n", ":2", "four words"),
        (read_analogies, b"section\ta\tb\tc\td\nx\ta\tb\n", ":2", "section and four"),
        (read_analogies, b": s\n", "", "no analogy"),
    ],
)
def test_what_is_wrong_in_a_word_set_is_named(tmp_path: Path, read, text: bytes, where: str, what: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "set").write_bytes(text)
    with pytest.raises(UnmaskError) as caught:
        read(tmp_path / "set")
    assert what in caught.value.what and caught.value.where == f"{tmp_path / 'set'}{where}"
    with pytest.raises(UnmaskError, match="cannot read"):
        read(tmp_path / "absent")


# Similarity


def test_similarity_by_hand() -> None:
    words = WordCounts(["Sun", "moon", "sun", "star", "mars"], np.arange(5, 0, -1))
    vectors = Vectors(words, np.array([[1, 0], [1, 0.1], [0, 1], [0, 0], [0.3, 0.7]], np.float32))
    pairs = [
        WordPair("sun", "MOON", 9),  # "Sun" is meant: more frequent than "sun"
        WordPair("sun", "mars", 5),
        WordPair("moon", "star", 4),
        WordPair("sun", "sun", 10),
        WordPair("sun", "comet", 3),
        WordPair("comet", "dust", 1),
    ]
    score = word_similarity(vectors, pairs)
    assert (score.pairs, score.used, score.unknown_pairs, score.unknown) == (6, 4, 2, ("comet", "dust"))
    assert score.spearman == pytest.approx(1)  # 0 with a zero vector, then 0.39, 0.995, 1
    assert word_similarity(vectors, pairs, ignore_case=False).unknown == ("MOON", "comet", "dust")
    assert word_similarity(vectors, pairs, limit=2).used == 2
    assert math.isnan(word_similarity(vectors, pairs[4:]).spearman)


def test_similarity_is_scipy_s_and_gensim_s(tmp_path: Path) -> None:
    keyed = pytest.importorskip("gensim.models.keyedvectors")
    words = [f"{'W' if row % 3 else 'w'}{row % 40}" for row in range(60)]
    words = list(dict.fromkeys(words))
    vectors, random = vectors_of(words), np.random.default_rng(5)
    pairs = [WordPair(f"w{a}", f"W{b}", float(s)) for a, b, s in random.integers(0, 45, (80, 3))]
    ours = word_similarity(vectors, pairs, limit=30)
    (tmp_path / "pairs").write_text("".join(f"{one}\t{other}\t{score}\n" for one, other, score in pairs))
    theirs = keyed.KeyedVectors(8)
    theirs.add_vectors(words, vectors.matrix)
    _, spearman, unknown = theirs.evaluate_word_pairs(str(tmp_path / "pairs"), restrict_vocab=30)
    assert ours.spearman == pytest.approx(spearman[0], abs=1e-12)
    assert 100 * ours.unknown_pairs / ours.pairs == pytest.approx(unknown) and ours.unknown_pairs
    known = [pair for pair in pairs if int(pair.one[1:]) < 40 and int(pair.other[1:]) < 40]
    first = {word.lower(): word for word in reversed(words)}
    cosines = [vectors.similarity(first[pair.one.lower()], first[pair.other.lower()]) for pair in known]
    wanted = stats.spearmanr([pair.score for pair in known], np.round(cosines, 7)).statistic
    assert word_similarity(vectors, known, limit=0).spearman == pytest.approx(wanted, abs=1e-12)


def test_n_grams_leave_no_word_unknown() -> None:
    ngrams = Ngrams(CharacterNgrams(buckets=9), np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32))
    pairs = [WordPair("a", "b", 1), WordPair("a", "new", 2), WordPair("newer", "b", 3)]
    assert word_similarity(vectors_of(["a", "b"], ngrams=ngrams), pairs).used == 3
    assert word_similarity(vectors_of(["a", "b"]), pairs).used == 1


# Analogies


def test_analogies_by_hand() -> None:
    words = ["man", "woman", "king", "queen", "Queen", "uncle"]
    matrix = np.array([[0, 1, 0.1], [0, -1, 0.1], [1, 1, 0.1], [1, -1, 0.1], [1, -1, 0.1], [0.3, 1, 1]], np.float32)
    vectors = Vectors(WordCounts(words, np.arange(6, 0, -1)), matrix)
    questions = [
        Analogy("gram1", "man", "king", "woman", "queen"),
        Analogy("gram1", "Man", "King", "Woman", "QUEEN"),
        Analogy("family", "man", "uncle", "woman", "aunt"),
        Analogy("family", "man", "king", "woman", "uncle"),
    ]
    for method in ("add", "mul"):
        score = word_analogies(vectors, questions, method=method)  # type: ignore[arg-type]
        assert [tuple(vars(section).values()) for section in score.sections] == [
            ("gram1", 2, 2, 2),
            ("family", 2, 1, 0),
        ]
        assert (score.total.questions, score.total.used, score.total.correct) == (4, 3, 2)
        assert score.total.accuracy == pytest.approx(2 / 3)
        assert score.syntactic.accuracy == 1 and score.semantic.accuracy == 0
    assert word_analogies(vectors, questions, ignore_case=False).total.used == 2
    assert math.isnan(word_analogies(vectors, questions, limit=2).total.accuracy)
    assert word_analogies(vectors, []).total.questions == 0


@pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`")  # by gensim itself
def test_analogies_are_gensim_s(tmp_path: Path) -> None:
    keyed = pytest.importorskip("gensim.models.keyedvectors")
    random = np.random.default_rng(0)
    stems, ends = random.normal(size=(12, 6)), random.normal(size=(4, 6))
    words = [f"{'s' if (stem + end) % 2 else 'S'}{stem}e{end}" for stem in range(12) for end in range(4)]
    matrix = (stems[:, None] + ends + random.normal(scale=0.8, size=(12, 4, 6))).reshape(-1, 6).astype(np.float32)
    vectors = Vectors(WordCounts(words, np.arange(48, 0, -1)), matrix)
    questions = [
        Analogy(f"part{end}", f"s{one}e0", f"s{one}e{end}", f"S{other}e0", f"s{other}e{end}")
        for end in (1, 2, 3, 4)
        for one in range(12)
        for other in range(12)
        if one != other
    ]
    lines = [f": {section}\n" + "".join(" ".join(q[1:]) + "\n" for q in questions if q[0] == section) for section in dict.fromkeys(q[0] for q in questions)]  # fmt: skip # noqa: E501
    (tmp_path / "questions").write_text("".join(lines))
    theirs = keyed.KeyedVectors(6)
    theirs.add_vectors(words, matrix)
    for limit in (300_000, 30):
        ours = word_analogies(vectors, questions, limit=limit)
        accuracy, sections = theirs.evaluate_word_analogies(str(tmp_path / "questions"), restrict_vocab=limit)
        counts = [(len(part["correct"]), len(part["correct"]) + len(part["incorrect"])) for part in sections[:-1]]
        assert [(section.correct, section.used) for section in ours.sections] == counts
        assert ours.total.accuracy == pytest.approx(accuracy) and 0.05 < accuracy < 0.95
    written = {word.lower(): word for word in words}
    known = [[written[word.lower()] for word in q[1:]] for q in questions if q.section != "part4"]
    right = [
        theirs.most_similar_cosmul([b, c], [a], topn=1)[0][0] == d for a, b, c, d in known
    ]  # its evaluation has no 3CosMul
    assert word_analogies(vectors, questions, method="mul").total.correct == sum(right) != ours.total.correct
