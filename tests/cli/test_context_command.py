"""`unmask context` as a command: the page and its JSON, word-in-context accuracy, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Road, unmask

from unmask.static.folder import StaticFolder, write_static_folder
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static") / "vectors"
    matrix = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    write_static_folder(folder, StaticFolder(Vectors(WordCounts(["bank", "the"], np.array([2, 1])), matrix)))
    return folder


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    lines = [
        "The bank is wet.\triver",
        "The Bank is rich.\tmoney",
        "Muddy banks.\triver",
        "No such word.\tmoney",
        "Bank\tmoney",
    ]
    (tmp_path / "s.tsv").write_text("\n".join(lines))
    return tmp_path / "s.tsv"


def test_a_word_is_compared_by_models_named_in_one_row(
    road: Road, static: Path, sentences: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    answer = unmask(
        "context", "bank", "--sentences", sentences, "--models", static, road.model, "-o", page, "--ignore-case",
        "--forms", " banks, ",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "4 uses in 5 sentences, 1 without the word" in answer.out and "same in every sentence" in answer.out
    assert "run/model: The embeddings know a token alone" in answer.out
    assert "warning: so few uses may fall apart by chance: 2 of “river”, 2 of “money”" in answer.err
    found = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    names = [[layer["name"] for layer in model["layers"]] for model in found["models"]]
    assert names == [["static"], ["embeddings", "1", "2"]] and [one["sense"] for one in found["uses"]] == [
        "river", "money", "river", "money",
    ]  # fmt: skip
    assert "run/model" in page.read_text(encoding="utf-8")


def test_the_same_command_gives_the_same_json_and_repeated_options_the_same_models(
    road: Road, static: Path, sentences: Path, tmp_path: Path
) -> None:
    told = ["--sentences", sentences, "--ignore-case", "--most", 2]
    for name, models in (("a", ["--models", static, road.model]), ("b", ["-m", static, "-m", road.model])):
        assert unmask("context", "bank", *told, *models, "--out", tmp_path / f"{name}.html").code == 0
    first, second = ((tmp_path / f"{name}.json").read_bytes() for name in "ab")
    assert first == second and len(json.loads(first)["uses"]) == 2


def test_accuracy_on_pairs_is_a_row_for_each_layer(road: Road, static: Path, tmp_path: Path) -> None:
    row = {"word": "bank", "text_a": "the bank", "text_b": "bank", "span_a": [4, 8], "span_b": [0, 4]}
    for name in ("dev", "test"):
        rows = [{**row, "label": label} for label in ("same", "different", "same")]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    answer = unmask(
        "context", "--wic", tmp_path / "test.jsonl", "--dev", tmp_path / "dev.jsonl", "--models", static, road.model
    )
    assert answer.code == 0, answer.err
    assert "3 pairs" in answer.out and answer.out.count("chosen |") == 2 and answer.out.count("0.6667") == 8
    assert "The commoner answer alone is right for 66.7%" in answer.out


@pytest.mark.parametrize(
    ("words", "where", "do"),
    [
        (["bank", "--models", "x", "--out", "p.html"], "--sentences", "a sentence a line"),
        (["bank", "--sentences", "s.txt", "--models", "x"], "--out", ".html"),
        (["bank", "--sentences", "s.txt", "--models", "x", "--out", "p.pdf"], "--out", ".html"),
        (["--sentences", "s.txt", "--models", "x", "--out", "p.html"], "WORD", "name the word first"),
        (["bank", "--sentences", "nowhere.txt", "--models", "x", "--out", "p.html"], "nowhere.txt", ""),
        (["--wic", "t.jsonl", "--models", "x"], "--dev", "flatter"),
        (["--wic", "t.jsonl", "--dev", "d.jsonl"], "--models", "model folders"),
        (["--wic", "t.jsonl", "--out", "p.html"], "--wic", "leave out"),
        (["--wic", "t.jsonl", "--dev", "./t.jsonl", "-m", "x"], "--dev", "flatter"),
        (["bank", "--dev", "d.jsonl"], "--dev", "--wic"),
        (["bank", "--device", "tpu"], "--device", "cpu"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_message(words: list[str], where: str, do: str) -> None:
    answer = unmask("context", *words)
    assert answer.code == 2 and not answer.out
    message = "\n".join(answer.error())
    assert message.startswith("error: ") and where in message and do in message


def test_the_sentences_are_never_overwritten(static: Path, tmp_path: Path) -> None:
    (tmp_path / "bank.json").write_text('[{"text": "a bank"}, {"text": "my bank"}]')
    told = ("--sentences", tmp_path / "bank.json", "-m", static, "--out", tmp_path / "bank.html")
    before = (tmp_path / "bank.json").read_text()
    answer = unmask("context", "bank", *told)
    assert answer.code == 2 and "overwrite the sentences" in answer.error()[0]
    assert (tmp_path / "bank.json").read_text() == before and not (tmp_path / "bank.html").exists()


def test_a_model_that_is_not_there_is_refused(sentences: Path, tmp_path: Path) -> None:
    told = ("--sentences", sentences, "--ignore-case", "--out", tmp_path / "p.html")
    for models, what in ((["-m", tmp_path / "none"], "no such folder"), ([], "no model is named")):
        answer = unmask("context", "bank", *told, *models)
        assert answer.code == 2 and what in answer.error()[0] and not (tmp_path / "p.html").exists()
