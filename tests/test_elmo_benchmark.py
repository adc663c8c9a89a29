"""The benchmark of ELMo runs; what it measures on a tiny model means nothing."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path

import pytest
from made_up import english_documents


def test_it_ends_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text, told = tmp_path / "text.jsonl.gz", tmp_path / "told.json"
    with gzip.open(text, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": document}) + "\n" for document in english_documents(60))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    words = ["elmo", "--tiny", "--threads", "1", "--languages", "en", "--text", str(text), "--json", str(told)]
    monkeypatch.setattr(sys, "argv", words)
    importlib.import_module("benchmarks.elmo").main()
    assert "| en |" in capsys.readouterr().out
    (found,) = json.loads(told.read_text())["results"]
    assert found["steps"] == 4 and found["before"] == pytest.approx(found["unigram"], rel=0.1)
