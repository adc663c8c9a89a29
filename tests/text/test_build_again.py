"""A corpus is built anew when anything changed, kept when nothing did, and nothing else is ever replaced."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
from small_corpora import SMALL, a_tokenizer, manifest, some_texts, write_jsonl

from unmask.errors import CannotWriteError
from unmask.files import write_folder
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.documents import ReadOptions
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer


def test_B025_a_corpus_is_used_again_only_when_nothing_changed(tmp_path, tokenizer):
    source, out = tmp_path / "a.jsonl", tmp_path / "c"
    write_jsonl(source, some_texts(20))

    def outcome(tokenizer: Tokenizer = tokenizer, options: BuildOptions = SMALL, sources: str = str(source)) -> str:
        return build_corpus([sources], out, tokenizer, options)["outcome"]

    assert outcome() == "built"
    before = (out / "manifest.json").stat()
    assert outcome().startswith("kept")
    assert (out / "manifest.json").stat() == before
    other = a_tokenizer(tmp_path / "other", more="!")
    assert outcome(other).startswith("rebuilt: the tokenizer changed")
    assert Corpus.open(out).about["tokenizer"]["fingerprint"] == other.fingerprint
    assert "options changed: shard_tokens 2000 -> 300" in outcome(other, replace(SMALL, shard_tokens=300))
    options = replace(SMALL, shard_tokens=300, read=ReadOptions(skip_bad=1))
    assert "options changed: read.skip_bad 0 -> 1" in outcome(other, options)
    shutil.copy(source, tmp_path / "b.jsonl")
    with pytest.raises(CannotWriteError, match="another corpus, of other sources and by another tokenizer"):
        outcome(tokenizer, options, str(tmp_path / "b.jsonl"))
    assert Corpus.open(out).about["sources"] == [str(source)]
    assert "the list of sources changed" in outcome(other, options, str(tmp_path / "b.jsonl"))
    assert "kept" in outcome(other, options, str(tmp_path / "b.jsonl"))


def test_B025_a_corpus_prepared_by_an_older_version_is_built_anew(tmp_path, tokenizer, monkeypatch):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(20))
    build_corpus([source], tmp_path / "c", tokenizer, SMALL)
    monkeypatch.setattr("unmask.text.build.PREPARATION", 99)
    assert build_corpus([source], tmp_path / "c", tokenizer, SMALL)["outcome"] == (
        "rebuilt: texts are prepared in a better way now"
    )


def test_B025_changed_text_is_noticed_even_when_size_and_time_are_the_same(tmp_path, tokenizer):
    source, out = tmp_path / "a.txt", tmp_path / "c"
    source.write_text("one two three.")
    os.utime(source, (1, 1))
    build_corpus([str(source)], out, tokenizer)
    source.write_text("one two threx.")
    os.utime(source, (1, 1))
    assert build_corpus([str(source)], out, tokenizer)["outcome"] == "rebuilt: the texts changed"


def test_a_damaged_corpus_is_built_again(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(20))
    build_corpus([source], tmp_path / "c", tokenizer, SMALL)
    whole = manifest(tmp_path / "c")
    tokens = tmp_path / "c" / "train-00000.tokens"
    tokens.write_bytes(tokens.read_bytes()[:-1])
    outcome = build_corpus([source], tmp_path / "c", tokenizer, SMALL)["outcome"]
    assert outcome.startswith("rebuilt: it was damaged: train-00000.tokens")
    assert manifest(tmp_path / "c") == whole


def test_a_folder_that_is_no_corpus_is_never_replaced(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(3))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    with write_folder(tmp_path / "model", about={"format": "model"}) as folder:
        (folder / "weights").write_text("years of work")
    (tmp_path / "c.parts").mkdir()
    (tmp_path / "c.parts" / "thesis.txt").write_text("years of work")
    for name in ("mine", "file", "model", "c"):
        with pytest.raises(CannotWriteError):
            build_corpus([source], tmp_path / name, tokenizer)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert (tmp_path / "model" / "weights").read_text() == "years of work"
    assert [path.name for path in (tmp_path / "c.parts").iterdir()] == ["thesis.txt"]


def test_B026_nothing_is_written_beside_the_sources(tmp_path, tokenizer):
    folder = tmp_path / "read-only"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", some_texts(5))
    (folder / "a.jsonl").chmod(0o444)
    folder.chmod(0o555)
    before = folder.stat().st_mtime_ns, sorted(folder.iterdir())
    build_corpus([str(folder)], tmp_path / "out" / "c", tokenizer)
    assert (folder.stat().st_mtime_ns, sorted(folder.iterdir())) == before
    folder.chmod(0o755)
