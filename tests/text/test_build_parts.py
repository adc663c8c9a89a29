"""Parts of a corpus are used again only where they are what they would be now."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from small_corpora import some_texts

from unmask.errors import UnmaskError
from unmask.text import parts as parts_module
from unmask.text.parts import Chunk, Recipe, make_part, part_path, read_part
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import WordSplitter


def a_chunk(folder: Path, tokenizer: Tokenizer, texts: list[str]) -> Chunk:
    folder.mkdir()
    tokenizer.save(folder / "tokenizer")
    recipe = Recipe(folder, tokenizer.fingerprint, "auto", WordSplitter(), near_duplicates=True, versions="1")
    return Chunk(recipe, 7, texts, [(0, n) for n in range(1, len(texts) + 1)], {0: "book.txt"})


def test_a_part_is_used_again_only_for_the_same_texts_and_recipe(tmp_path, tokenizer):
    chunk = a_chunk(tmp_path / "p", tokenizer, some_texts(4))
    assert not make_part(chunk).reused
    assert make_part(chunk).reused
    changed = [
        replace(chunk, texts=[*chunk.texts[:3], chunk.texts[3] + "x"]),
        replace(chunk, texts=chunk.texts[:2] + [chunk.texts[2] + chunk.texts[3], ""]),
        replace(chunk, origins=[(1, n) for n in range(1, 5)]),
        replace(chunk, recipe=replace(chunk.recipe, language="zh")),
        replace(chunk, recipe=replace(chunk.recipe, near_duplicates=False)),
        replace(chunk, recipe=replace(chunk.recipe, words=WordSplitter(user_words=(("a", 1),)))),
        replace(chunk, recipe=replace(chunk.recipe, tokenizer="another")),
        replace(chunk, recipe=replace(chunk.recipe, versions="2")),
    ]
    for other in changed:
        assert not make_part(other).reused
        assert not make_part(chunk).reused


def test_a_damaged_part_is_made_again_and_never_read(tmp_path, tokenizer):
    chunk = a_chunk(tmp_path / "p", tokenizer, some_texts(4))
    make_part(chunk)
    path = part_path(tmp_path / "p", 7)
    whole = path.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        broken = bytearray(whole)
        broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken[: rng.choice([len(whole), rng.randrange(len(whole))])])
        with pytest.raises(UnmaskError, match="part file changed"):
            read_part(tmp_path / "p", 7)
    assert not make_part(chunk).reused
    assert path.read_bytes() == whole


def test_an_error_inside_a_library_names_the_document(tmp_path, tokenizer, monkeypatch):
    class Panic(BaseException):
        """What a Rust library raises."""

    class Fragile:
        kind, vocab_size, unk_token_id = "wordpiece", 100, 1

        def encode(self, texts: list[str], words: WordSplitter) -> list:
            if any("bomb" in text for text in texts):
                raise Panic("index out of range")
            return tokenizer.encode(texts)

    monkeypatch.setattr(parts_module, "_tokenizer", lambda folder: Fragile())
    chunk = a_chunk(tmp_path / "p", tokenizer, ["fine.", "a bomb.", "fine too."])
    with pytest.raises(UnmaskError, match="Panic: index out of range") as error:
        make_part(chunk)
    assert error.value.where == "book.txt, record 2"
