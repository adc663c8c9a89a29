"""What tests of building corpora ask for."""

from __future__ import annotations

import pytest
from small_corpora import a_tokenizer

from unmask.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return a_tokenizer(tmp_path_factory.mktemp("tokenizer") / "t")
