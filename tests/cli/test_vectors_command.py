"""`unmask vectors`: from text to vectors that other programs read, and every mistake told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import unmask
from made_up import english_documents

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
    assert "different words with a vector" in answer.out and "loss of epoch 2" in answer.out
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


def test_a_run_that_was_killed_goes_on_with_the_same_command(text: Path, tmp_path: Path, monkeypatch):
    """Between two epochs, with the parts left as they were."""
    from unmask.static import glove

    saved, save = 0, glove._save

    def save_once(*given) -> None:
        nonlocal saved
        save(*given)
        saved += 1
        if saved == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(glove, "_save", save_once)
    command = ("vectors", "train", "glove", text, "-o", tmp_path / "out", *FAST)
    assert unmask(*command).code == 130
    assert (tmp_path / "out.parts" / "checkpoint").is_dir()
    assert unmask(*command).code == 0 and saved == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    monkeypatch.setattr(glove, "_save", save)
    assert unmask(*command[:4], "-o", tmp_path / "whole", *FAST).code == 0
    assert (tmp_path / "out" / "vectors.safetensors").read_bytes() == (
        tmp_path / "whole" / "vectors.safetensors"
    ).read_bytes()
