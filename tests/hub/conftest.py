from __future__ import annotations

from pathlib import Path

import pytest
from small_models import SMALL, our_model
from task_models import theirs_of

from unmask.hub.files import save_model
from unmask.text.tokenizer import Tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s", "##ting", "."]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of as many pieces as the small model has rows."""
    plain = tmp_path_factory.mktemp("vocabulary")
    pieces = PIECES + [f"word{i}" for i in range(SMALL.vocab_size - len(PIECES))]
    (plain / "vocab.txt").write_text("\n".join(pieces) + "\n")
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.load(plain).save(folder)
    return folder


@pytest.fixture
def saved(tmp_path: Path, tokenizer_folder: Path) -> Path:
    """A folder with both heads and a tokenizer, every tensor random."""
    save_model(tmp_path / "model", *our_model(), tokenizer_folder=tokenizer_folder, about={"steps": 12})
    return tmp_path / "model"


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A classifier of transformers with five labels."""
    theirs_of("bert", "classify").save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"
