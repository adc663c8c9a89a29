"""The published MiniLM beside sentence-transformers itself: the same vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unmask.inference.loaded import Loaded, TruncationWarning, load

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # their library and a model of 90 MB

TEXTS = [
    "The quick brown fox jumps over the lazy dog.", "", "Hi", "  two   spaces\n\nand lines ", "中文 too, in Münster",
    "e\u0301 accents", "a very long text " * 200, "\U0001f642 ok", "Hi",
]  # fmt: skip


@pytest.fixture(scope="module")
def ours(minilm: Path) -> Loaded:
    return load(minilm)


@pytest.fixture(scope="module")
def theirs(minilm: Path) -> Any:
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(minilm), device="cpu", local_files_only=True)


def test_vectors_equal_sentence_transformers(ours: Loaded, theirs: Any) -> None:
    with pytest.warns(TruncationWarning, match="1 of 9 texts have more than 256 tokens"):
        vectors = ours.encode(TEXTS)
    assert np.abs(vectors - theirs.encode(TEXTS)).max() < 1e-5
    assert ours.max_length == theirs.max_seq_length == 256


def test_a_prompt_that_is_not_pooled_equals_theirs(ours: Loaded, theirs: Any, minilm: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    again = library.SentenceTransformer(
        str(minilm), device="cpu", prompts={"query": "Find: "}, default_prompt_name="query"
    )
    again[1].include_prompt, again[1].pooling_mode = False, ("cls", "mean")
    again.save(str(tmp_path / "saved"))
    texts = TEXTS[:6]
    assert np.abs(load(tmp_path / "saved").encode(texts) - again.encode(texts)).max() < 1e-5
    assert np.abs(ours.encode(texts, prompt="Find: ") - theirs.encode(texts, prompt="Find: ")).max() < 1e-5
