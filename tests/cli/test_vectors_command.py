"""`unmask vectors`: from text to vectors that other programs read, and every mistake told."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import unmask
from made_up import english_documents

from unmask.static import checkpoint
from unmask.static.checkpoint import Checkpoint
from unmask.text.tokenizer import Tokenizer

FAST = ("--min-count", 2, "--dimension", 10, "--epochs", 2, "--threads", 1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(english_documents(150)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "vectors"
    answer = unmask("vectors", "train", "skipgram", text, "-o", out, *FAST)
    assert answer.code == 0, answer.err
    return out


@pytest.mark.parametrize("model", ["cbow", "glove"])
def test_a_model_trains_from_text_alone(model: str, text: Path, tmp_path: Path):
    answer = unmask("vectors", "train", model, text, "-o", tmp_path / "out", *FAST)
    assert answer.code == 0, answer.err
    assert "different words with a vector" in answer.out and "loss of the last, number 2" in answer.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]  # nothing of the work is left


def test_one_thread_gives_the_same_vectors_again(trained: Path, text: Path, tmp_path: Path):
    unmask("vectors", "train", "skipgram", text, "-o", tmp_path / "again", *FAST)
    assert (tmp_path / "again" / "vectors.safetensors").read_bytes() == (trained / "vectors.safetensors").read_bytes()


def test_a_corpus_of_shards_trains_too(small_corpus: Path, tmp_path: Path):
    answer = unmask("vectors", "train", "skipgram", small_corpus, "-o", tmp_path / "out", *FAST)
    assert answer.code == 0, answer.err
    words = (tmp_path / "out" / "words.txt").read_text(encoding="utf-8").split("\n")
    tokenizer = Tokenizer.load(small_corpus / "tokenizer")
    assert 20 < len(words) - 1 <= tokenizer.vocab_size and "[CLS]" not in words
    assert set(words[:-1]) <= set(tokenizer.pieces())


def test_neighbours_and_analogies_in_words_and_in_json(trained: Path):
    words = (trained / "words.txt").read_text(encoding="utf-8").split("\n")[:4]
    found = unmask("vectors", "neighbors", trained, *words[:2], "-k", 3, "--json")
    rows = json.loads(found.out)
    assert list(rows) == words[:2] and all(len(row) == 3 for row in rows.values())
    assert unmask("vectors", "neighbors", trained, words[0]).code == 0
    answer = json.loads(unmask("vectors", "analogy", trained, *words[:3], "--method", "mul", "--json").out)
    assert {one["word"] for one in answer}.isdisjoint(words[:3])


def test_with_n_grams_an_unknown_word_has_neighbours(text: Path, tmp_path: Path):
    command = ("vectors", "train", "skipgram", text, "-o", tmp_path / "out", *FAST, "--set", "ngrams.buckets=500")
    assert unmask(*command).code == 0
    found = json.loads(unmask("vectors", "neighbors", tmp_path / "out", "neverseen", "-k", 2, "--json").out)
    assert len(found["neverseen"]) == 2


def test_word_sets_of_both_kinds_are_measured(trained: Path, tmp_path: Path):
    a, b, c, d = (trained / "words.txt").read_text(encoding="utf-8").split("\n")[:4]
    (tmp_path / "pairs.tsv").write_text(f"one\tother\tscore\n{a}\t{b}\t1\n{a}\t{c}\t2\nnever\tseen\t3\n")
    (tmp_path / "analogies.txt").write_text(f": kind\n{a} {b} {c} {d}\n")
    answer = unmask("vectors", "evaluate", trained, tmp_path / "pairs.tsv", tmp_path / "analogies.txt", "--json")
    pairs, analogies = json.loads(answer.out).values()
    assert (pairs["measure"], pairs["asked"], pairs["used"]) == ("spearman", 3, 2)
    assert (analogies["measure"], analogies["used"]) == ("accuracy", 1)
    assert "never" not in answer.err and unmask("vectors", "evaluate", trained, tmp_path / "pairs.tsv").code == 0


@pytest.mark.parametrize("name", ["out.txt", "out.bin", "out.vec", "folder"])
def test_what_is_converted_loads_back_equal(name: str, trained: Path, tmp_path: Path):
    from unmask.static.load import load_vectors

    assert unmask("vectors", "convert", trained, tmp_path / name).code == 0
    there, back = load_vectors(trained)[0], load_vectors(tmp_path / name)[0]
    assert list(back.words.words) == list(there.words.words) and np.array_equal(back.matrix, there.matrix)
    again = unmask("vectors", "convert", trained, tmp_path / name)
    assert again.code == 2 and "exists already" in again.err
    assert unmask("vectors", "convert", trained, tmp_path / name, "--overwrite").code == 0


@pytest.mark.parametrize(
    "words, said",
    [
        (("train", "bert", "TEXT", "-o", "OUT"), "unknown model 'bert'"),
        (("train", "cbow", "TEXT", "-o", "OUT", "--min-count", 10**6), "No word occurs"),
        (("train", "cbow", "nowhere.txt", "-o", "OUT"), "nowhere.txt"),
        (("train", "cbow", "TEXT", "-o", "OUT", "--words", "letters"), "unknown rule"),
        (("train", "cbow", "TEXT", "-o", "OUT", "--set", "window=0"), "window must be above 0"),
        (("neighbors", "TRAINED", "neverseen"), "has no vector"),
        (("neighbors", "TEXT", "word"), "TEXT"),
        (("analogy", "TRAINED", "one", "two"), "three words"),
        (("convert", "TRAINED", "OUT", "--format", "json"), "unknown format"),
    ],
)
def test_mistakes_are_told_with_exit_code_2(words, said, text: Path, trained: Path, tmp_path: Path):
    places = {"TEXT": text, "OUT": tmp_path / "out", "TRAINED": trained}
    answer = unmask("vectors", *(places.get(word, word) for word in words))
    assert answer.code == 2 and str(places.get(said, said)) in answer.err and "Traceback" not in answer.err, answer.err
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_taken_is_refused_before_any_work(text: Path, trained: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for out, more in ((trained, ()), (tmp_path / "mine", ("--overwrite",))):
        answer = unmask("vectors", "train", "cbow", text, "-o", out, *FAST, *more)
        assert answer.code == 73 and "Traceback" not in answer.err
        assert not out.with_name(f"{out.name}.parts").exists()
    assert unmask("vectors", "train", "cbow", text, "-o", trained.with_name("other"), *FAST).code == 0
    assert unmask("vectors", "train", "cbow", text, "-o", trained.with_name("other"), *FAST, "--overwrite").code == 0


@pytest.mark.parametrize("more", [("TEXT",), ("--words", "spaces")])
def test_a_corpus_is_a_source_alone(more, text: Path, small_corpus: Path, tmp_path: Path):
    given = [text if word == "TEXT" else word for word in more]
    answer = unmask("vectors", "train", "cbow", small_corpus, *given, "-o", tmp_path / "out", *FAST)
    assert answer.code == 2 and "source alone" in answer.err


@pytest.fixture
def begun(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """A training of GloVe that was killed between two epochs, with the parts left as they were: its command."""
    save = Checkpoint.save

    def save_once(self: Checkpoint, stands: dict[str, Any]) -> None:
        save(self, stands)
        raise KeyboardInterrupt

    command = ("vectors", "train", "glove", text, "-o", tmp_path / "out", *FAST)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "_AFTER_EPOCH", 0.0)
        patched.setattr(Checkpoint, "save", save_once)
        assert unmask(*command).code == 130
    assert (tmp_path / "out.parts" / "checkpoint").is_dir()
    return command


def test_a_run_that_was_killed_goes_on_with_the_same_command(begun: tuple[object, ...], tmp_path: Path):
    assert unmask(*begun).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert_as_if_never_stopped(begun, tmp_path)


def assert_as_if_never_stopped(command: tuple[object, ...], folder: Path) -> None:
    assert unmask(*(folder / "whole" if word == folder / "out" else word for word in command)).code == 0
    one, other = ((folder / name / "vectors.safetensors").read_bytes() for name in ("out", "whole"))
    assert one == other


@pytest.mark.parametrize("model", ["skipgram", "glove"])
def test_ctrl_c_saves_and_leaves_and_the_same_command_goes_on(model: str, text: Path, tmp_path: Path, monkeypatch):
    pressed = []

    def press_once(self: Checkpoint, **given: bool) -> bool:
        if not pressed:
            pressed.append(signal.raise_signal(signal.SIGINT))
        return False

    command = ("vectors", "train", model, text, "-o", tmp_path / "out", *FAST, "--epochs", 3)
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "is_due", press_once)
        answer = unmask(*command)
    assert answer.code == 130 and "Stopped and saved" in answer.out, answer
    assert (tmp_path / "out.parts" / "checkpoint").is_dir() and not (tmp_path / "out").exists()
    assert unmask(*command).code == 0
    assert_as_if_never_stopped(command, tmp_path)


def test_other_settings_than_those_a_run_was_begun_with_are_told_before_the_text_is_read(
    begun: tuple[object, ...], tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("unmask.static.learn.read_documents", None)
    answer = unmask(*begun, "--set", "window=3", "--set", "words.min_count=1")
    assert answer.code == 2 and "(settings: window was 10 and is 3, words.min_count was 2 and is 1)" in answer.err
    assert str(tmp_path / "out.parts" / "checkpoint") in answer.err
    other = unmask(*(("skipgram" if word == "glove" else word) for word in begun))
    assert other.code == 2 and "kind was glove and is word2vec" in other.err


def test_other_text_is_told_after_it_was_read_and_the_checkpoint_stays(
    begun: tuple[object, ...], text: Path, tmp_path: Path
):
    (tmp_path / "less.txt").write_text(text.read_text(encoding="utf-8")[:20_000], encoding="utf-8")
    answer = unmask(*(tmp_path / "less.txt" if word == text else word for word in begun))
    assert answer.code == 2 and "(pairs: " in answer.err
    assert (tmp_path / "out.parts" / "checkpoint").is_dir() and unmask(*begun).code == 0


def test_a_mistake_in_the_text_leaves_nothing_behind(tmp_path: Path):
    lines = [*[json.dumps({"text": "a few words"})] * 4, "{", json.dumps({"text": "more"})]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    answer = unmask("vectors", "train", "cbow", tmp_path / "text.jsonl", "-o", tmp_path / "out", *FAST)
    assert answer.code == 2 and "text.jsonl:5" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["text.jsonl"]


def test_what_was_not_taken_as_text_is_told(tmp_path: Path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_bytes(b"\xef\xbb\xbf" + b"one two\0 three\0\n\n" * 20)
    (tmp_path / "texts" / "picture.png").write_bytes(b"x")
    answer = unmask(
        "vectors", "train", "cbow", tmp_path / "texts", "-o", tmp_path / "out", *FAST, "--set", "subsample=0"
    )
    assert answer.code == 0, answer.err
    rows = dict(re.findall(r"\| +(.*?) +\| +(.*?) +\|", answer.out))
    assert rows["NUL characters removed"] == "40" and rows["byte order marks removed"] == "1"
    assert rows["files of kind .png, passed over"] == "1" and rows["documents read"] == "20"
