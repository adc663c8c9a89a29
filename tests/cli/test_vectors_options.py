"""`unmask vectors` with numbers that make no sense, and training that fails: told, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Answer, unmask
from made_up import english_documents

FAST = ("--min-count", 2, "--dimension", 4, "--epochs", 1, "--threads", 1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(english_documents(40)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "vectors"
    assert unmask("vectors", "train", "skipgram", text, "-o", out, *FAST).code == 0
    return out


def require_refused(answer: Answer, *said: str) -> None:
    assert answer.code == 2 and "Traceback" not in answer.err and "fault" not in answer.err, answer.err
    shown = " ".join(answer.err.replace("│", " ").split())
    assert all(word in shown for word in said), shown


@pytest.mark.parametrize(
    "option", ["--dimension 0", "--dimension -3", "--epochs -1", "--min-count 0", "--threads -1", "--skip-bad -1"]
)
def test_an_option_below_what_makes_sense_is_refused_before_any_work(option: str, text: Path, tmp_path: Path):
    """gensim#2709: workers=-1 trained nothing and said so nowhere."""
    name, number = option.split()
    require_refused(unmask("vectors", "train", "cbow", text, "-o", tmp_path / "out", *FAST, name, number), name)
    assert not list(tmp_path.iterdir())


SETTINGS = {
    "skipgram": (
        "dimension=0 dimension=-1 dimension=1.5 window=0 window=-1 negatives=0 negatives=-2 negatives=31 epochs=0 epochs=-1 "
        "subsample=-1 subsample=nan learning_rate=-0.1 learning_rate=inf final_learning_rate=-1 words.min_count=0 "
        "words.min_count=-1 words.max_words=-1 ngrams.buckets=-1 ngrams.shortest=0 ngrams.longest=2 seed=0.5"
    ),
    "glove": (
        "dimension=0 window=0 window=-1 window=10001 x_max=0 x_max=-1 x_max=nan power=0 power=-1 epochs=0 learning_rate=0 "
        "learning_rate=-1 learning_rate=-inf memory=0 memory=-1 memory=1000 words.max_words=-1"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "setting"), [(model, one) for model, all_ in SETTINGS.items() for one in all_.split()]
)
def test_a_setting_beyond_its_limits_is_refused_by_name_before_any_work(
    model: str, setting: str, text: Path, tmp_path: Path
):
    answer = unmask("vectors", "train", model, text, "-o", tmp_path / "out", *FAST, "--set", setting)
    require_refused(answer, setting.split("=")[0])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", ["neighbors V the -k 0", "neighbors V the -k -1", "neighbors V the --limit -1", "analogy V the a the -k 0",
              "convert V OUT --limit -1", "evaluate V V --limit -5"],
)  # fmt: skip
def test_a_number_of_answers_or_words_below_what_makes_sense_is_refused(words: str, trained: Path, tmp_path: Path):
    given = [{"V": trained, "OUT": tmp_path / "out"}.get(word, word) for word in words.split()]
    require_refused(unmask("vectors", *given), words.split()[-2])
    assert not list(tmp_path.iterdir())


def test_more_answers_than_there_are_words_are_all_of_them(trained: Path):
    words = (trained / "words.txt").read_text(encoding="utf-8").split()
    answer = unmask("vectors", "neighbors", trained, words[0], "-k", 10**9)
    assert answer.code == 0 and all(f"| {word} " in answer.out for word in words[1:])


def test_a_limit_takes_exactly_so_many_words(trained: Path, tmp_path: Path):
    """gensim#3500: of 10,000 words asked for there came 4,000."""
    words = (trained / "words.txt").read_text(encoding="utf-8").split()
    assert unmask("vectors", "convert", trained, tmp_path / "v.txt", "--limit", 7).code == 0
    rows = (tmp_path / "v.txt").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "7 4" and [row.split()[0] for row in rows[1:]] == words[:7]


@pytest.mark.parametrize("most", [1, 5, 20])
def test_the_most_frequent_words_are_exactly_as_many_as_asked_for(most: int, text: Path, trained: Path, tmp_path: Path):
    answer = unmask("vectors", "train", "cbow", text, "-o", tmp_path / "v", *FAST, "--set", f"words.max_words={most}")
    assert answer.code == 0, answer.err
    words, all_words = ((folder / "words.txt").read_text().split() for folder in (tmp_path / "v", trained))
    assert words == all_words[:most]


def test_how_many_pairs_and_questions_had_vectors_is_shown_beside_the_score(trained: Path, tmp_path: Path):
    """Scores over another part of a set do not compare (gensim#1934 counted it wrongly)."""
    a, b, c, d = (trained / "words.txt").read_text(encoding="utf-8").split()[:4]
    (tmp_path / "pairs.tsv").write_text(
        f"{a}\t{b}\t1\n{a}\t{c}\t2\n{a.upper()}\t{d}\t2.5\nnever\tseen\t3\nnever\t{a}\t4\n"
    )
    (tmp_path / "analogies.txt").write_text(f": kind\n{a} {b} {c} {d}\n{a} {b} {c} never\n")
    for more, pairs in (((), "3"), (("--case",), "2")):
        told = unmask("vectors", "evaluate", trained, tmp_path / "pairs.tsv", tmp_path / "analogies.txt", *more)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.out.splitlines() if ".t" in line]
        assert [row[0] for row in rows] == ["pairs.tsv", "analogies.txt"]
        assert [row[-2:] for row in rows] == [["5", pairs], ["2", "1"]]


@pytest.mark.parametrize("model", ["skipgram", "cbow", "glove"])
def test_training_that_ends_in_nan_says_what_to_do_and_leaves_no_vectors(model: str, text: Path, tmp_path: Path):
    """GloVe#99: a file full of nan."""
    command = ("vectors", "train", model, text, "-o", tmp_path / "out", *FAST)
    require_refused(unmask(*command, "--set", "learning_rate=1e30"), "learning")
    assert not (tmp_path / "out").exists()
    assert unmask(*command).code == 0 and [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["out.txt.gz", "out.vec.zst", "out.kv"])
def test_a_name_that_does_not_say_what_to_write_is_refused_and_nothing_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "v.txt").write_text("2 2\na 1 2\nb 3 4\n")
    answer = unmask("vectors", "convert", tmp_path / "v.txt", tmp_path / name)
    assert answer.code == 2 and "the name does not say what to write" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["v.txt"]


def test_words_of_another_language_and_too_little_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 20)
    trained = unmask("vectors", "train", "cbow", tmp_path / "text.txt", "-o", tmp_path / "out", "--set", "subsample=0")
    assert trained.code == 0 and "400 words were seen in all epochs together" in trained.err
    (tmp_path / "pairs.tsv").write_text("word1\tword2\tscore\n" + "猫\t狗\t5\n狗\t书\t1\n")
    asked = unmask("vectors", "evaluate", tmp_path / "out", tmp_path / "pairs.tsv")
    assert asked.code == 0 and "None of the words in pairs.tsv has a vector" in asked.err
