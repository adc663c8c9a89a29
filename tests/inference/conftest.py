from __future__ import annotations

from pathlib import Path

import pytest
from small_models import SMALL, our_model

from unmask.hub.files import save_model
from unmask.inference.loaded import Loaded, load
from unmask.text.tokenizer import Tokenizer

WORDS = ["the", "cat", "sat", "on", "mat", "##s", "##ting", ".", *"abcdefg"]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of 32 places, every tensor random."""
    here = tmp_path_factory.mktemp("small")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    pieces += [f"word{i}" for i in range(SMALL.vocab_size - len(pieces))]
    (here / "vocab.txt").write_text("\n".join(pieces) + "\n")
    Tokenizer.load(here).save(here / "tokenizer")
    save_model(here / "model", *our_model(), tokenizer_folder=here / "tokenizer", about={})
    return here / "model"


@pytest.fixture(scope="session")
def loaded(small: Path) -> Loaded:
    return load(small)
