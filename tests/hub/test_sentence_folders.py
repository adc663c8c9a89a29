"""Folders that unmask writes for sentence-transformers: its library makes the same vectors from them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import SMALL, our_model

from unmask.config import Contrast
from unmask.hub.files import load_model, save_model, save_weights
from unmask.hub.sentence_layout import SentenceLayout, read_sentence_layout, write_sentence_layout
from unmask.inference.loaded import load
from unmask.tasks.contrast import layout_of
from unmask.text.tokenizer import Tokenizer

WORDS = ["the", "cat", "sat", "on", "mat", "##s", "##ting", ".", ":", "find", *"abcdefg"]
TEXTS = ["the cat sat on mats .", "", "a b c", "mat", "the cat on the mat " * 3, "Cat Sat"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of 32 places that says nothing of sentences, every tensor random."""
    here = tmp_path_factory.mktemp("plain")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    pieces += [f"word{i}" for i in range(SMALL.vocab_size - len(pieces))]
    (here / "vocab.txt").write_text("\n".join(pieces) + "\n")
    Tokenizer.load(here).save(here / "tokenizer")
    save_model(here / "model", our_model()[0], None, tokenizer_folder=here / "tokenizer", about={})
    return here / "model"


def copy_of(plain: Path, folder: Path, layout: SentenceLayout) -> Path:
    save_weights(folder, load_model(plain).weights(), tokenizer_folder=plain, about={})
    write_sentence_layout(replace(layout, model_folder=folder), SMALL.hidden_size)
    return folder


LAYOUTS = {
    "mean": SentenceLayout(Path(), normalize=True),
    "cls": SentenceLayout(Path(), ("cls",)),
    "weighted": SentenceLayout(Path(), ("weightedmean",), normalize=True, max_length=9),
    "last": SentenceLayout(Path(), ("lasttoken",), max_length=9),
    "two with a prompt": SentenceLayout(
        Path(), ("cls", "mean"), False, True, 20, True, {"query": "find: ", "document": ""}, "find: "
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_written_is_read_again(plain: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(plain, tmp_path / "model", LAYOUTS[name])
    wanted = replace(LAYOUTS[name], model_folder=folder)
    found = read_sentence_layout(folder)
    assert found == replace(wanted, max_length=wanted.max_length or SMALL.max_position_embeddings)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", LAYOUTS)
def test_their_library_makes_the_same_vectors(
    plain: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FlagEmbedding#1238, uniem#100: without these files the pooling is guessed. vllm#16892: the last token is [SEP]."""
    library = pytest.importorskip("sentence_transformers")
    folder = copy_of(plain, tmp_path / "model", LAYOUTS[name])
    with caplog.at_level(logging.INFO):
        theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert "mean pooling" not in caplog.text.lower() and "no modules.json" not in caplog.text.lower()
    ours = load(folder)
    assert theirs.max_seq_length == ours.max_length == (LAYOUTS[name].max_length or 32)
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5
    for role, prompt in LAYOUTS[name].prompts.items():
        asked = theirs.encode(TEXTS, prompt_name=role)
        assert np.abs(ours.encode(TEXTS, prompt=prompt) - asked).max() < 1e-5
        assert ours.prompt_named(role) == prompt


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("pooling", ["mean", "cls", "weighted"])
def test_what_a_task_was_trained_with_is_what_the_folder_says(plain: Path, tmp_path: Path, pooling: Any) -> None:
    library = pytest.importorskip("sentence_transformers")
    task = Contrast(pooling=pooling, query_prompt="find: ", document_prompt="the ")
    folder = copy_of(plain, tmp_path / "model", layout_of(task, tmp_path, 16))
    theirs, ours = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True), load(folder)
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        vectors = ours.encode(TEXTS[:4], prompt=ours.prompt_named(role))
        assert np.abs(vectors - encode(TEXTS[:4])).max() < 1e-5
        assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6
    assert theirs.similarity_fn_name == "cosine"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_published_model_saved_again_makes_the_same_vectors(minilm: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    loaded, layout, folder = load_model(minilm), read_sentence_layout(minilm), tmp_path / "again"
    save_weights(folder, loaded.weights(), tokenizer_folder=minilm, about={})
    write_sentence_layout(replace(layout, model_folder=folder), loaded.config.hidden_size)
    wanted = load(minilm).encode(TEXTS)
    theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert np.abs(theirs.encode(TEXTS) - wanted).max() < 1e-5
    assert np.abs(load(folder).encode(TEXTS) - wanted).max() < 1e-6
    assert theirs.max_seq_length == 256


def test_every_version_of_their_library_knows_the_spelling(plain: Path, tmp_path: Path) -> None:
    """Version 2 reads switches, version 6 reads them too; neither needs a newer version's module names."""
    folder = copy_of(plain, tmp_path / "model", LAYOUTS["weighted"])
    listed = json.loads((folder / "modules.json").read_text())
    assert [row["type"].rpartition(".")[0] for row in listed] == ["sentence_transformers.models"] * 3
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == SMALL.hidden_size and "pooling_mode" not in pooling
    assert [name for name, value in pooling.items() if value is True] == [
        "pooling_mode_weightedmean_tokens", "include_prompt",
    ]  # fmt: skip
