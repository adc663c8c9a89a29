from __future__ import annotations

import pytest
from commands import TINY, Road, unmask
from made_up import english_documents


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Text, tokenizer, corpus and a run of four steps, all made by commands."""
    here = tmp_path_factory.mktemp("a road")  # with a space, as in many people's folders
    made = Road(here / "text.txt", here / "tokenizer", here / "corpus", here / "run", here / "run" / "model")
    made.text.write_text("\n\n".join(english_documents(120)), encoding="utf-8")
    blank = ("--separator", "blank")
    for words in (
        ("tokenizer", "train", made.text, "-o", made.tokenizer, "--vocab-size", 120, "--lowercase", *blank),
        ("corpus", "build", made.text, "-t", made.tokenizer, "-o", made.corpus, "--heldout", 0.1, "--workers", 1)
        + ("--duplicates", "exact", *blank),
        ("pretrain", "bert", "-c", made.corpus, "-p", "bert_tiny", "--steps", 4, "-o", made.run, *TINY),
    ):
        answer = unmask(*words)
        assert answer.code == 0, answer.err
    return made
