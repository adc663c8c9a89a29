"""`unmask embed`: files in, a file of vectors out, and what a person is told."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import Road, unmask

from unmask.inference.loaded import load


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command sets for its own process ends with the test."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("The garden\n\nA river and a road\n" + "very long " * 200 + "\n")
    return path


def test_lines_become_vectors_and_counts_are_told(road: Road, texts: Path, tmp_path: Path) -> None:
    answer = unmask("embed", road.model, texts, "-o", tmp_path / "v.npy", "--pooling", "cls,mean", "--normalize")
    assert answer.code == 0, answer.err
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (3, 64) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    wanted = load(road.model).encode(["The garden"], pooling=["cls", "mean"], normalize=True)
    assert np.abs(vectors[0] - wanted[0]).max() < 1e-5
    words = " ".join(answer.out.split())
    assert "| texts | 3 |" in words and "| dimensions | 64 |" in words and "tokens/s" in words
    assert "| empty, left out | 1 |" in words and "| cut to 512 tokens | 1 |" in words
    assert "texts of more than 512 tokens: 1" in answer.err and "rows and records are not numbered alike" in answer.err
    assert "embedding: 3 texts" in answer.err


def test_parquet_with_texts_from_a_field(road: Road, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"body": "The garden", "id": "x"}\n{"body": "A road", "id": "y"}\n')
    out = tmp_path / "v.parquet"
    answer = unmask(
        "embed", road.model, tmp_path / "t.jsonl", "-o", out, "--field", "body", "--keep-text", "--dtype", "float16"
    )
    assert answer.code == 0, answer.err
    assert pq.read_table(out)["text"].to_pylist() == ["The garden", "A road"] and "warning" not in answer.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--pooling", "average"], "unknown pooling 'average'"),
        (["--layer", "9"], "there is no layer 9"),
        (["--prompt-name", "query"], "the folder has no prompt 'query'"),
        (["--dtype", "float64"], "unknown type 'float64'"),
        (["--prompt-name", "query", "--prompt", ""], "--prompt and --prompt-name exclude each other"),
        (["--backend", "tf"], "unknown backend 'tf'"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--keep-text"], "a .npy file has no place for texts"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    road: Road, texts: Path, tmp_path: Path, words: list[str], what: str
) -> None:
    answer = unmask("embed", road.model, texts, "-o", tmp_path / "v.npy", *words)
    assert answer.code == 2 and answer.error()[0].startswith(f"error: {what}")
    assert not (tmp_path / "v.npy").exists() and "Traceback" not in answer.err


def test_a_bad_record_is_named_with_its_place_or_left_out(road: Road, tmp_path: Path) -> None:
    path, out = tmp_path / "t.jsonl", tmp_path / "v.npy"
    path.write_text('{"text": "The garden"}\n{"text": \n')
    answer = unmask("embed", road.model, path, "-o", out)
    assert answer.code == 2 and f"{path}:2" in answer.err and not out.exists()
    answer = unmask("embed", road.model, path, "-o", out, "--skip-bad", 1)
    assert answer.code == 0 and np.load(out).shape[0] == 1


def test_the_tokenizer_uses_all_cores(road: Road, texts: Path, tmp_path: Path) -> None:
    assert unmask("embed", road.model, texts, "-o", tmp_path / "v.npy").code == 0
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
