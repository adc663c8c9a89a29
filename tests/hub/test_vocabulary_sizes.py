"""Vocabularies that do not fit a model are refused before a number is computed with them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import SMALL, our_model

from unmask import recipes, road
from unmask.errors import UnmaskError
from unmask.hub.files import save_model
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer


def model_of(folder: Path, rows: int, tokenizer: Path | None) -> Path:
    config = dataclasses.replace(SMALL, vocab_size=rows, max_position_embeddings=128)
    save_model(folder, *our_model(config), tokenizer_folder=tokenizer, about={})
    return folder


def test_B079_a_corpus_with_more_ids_than_the_model_to_start_from_is_refused(
    small_corpus: Path, tmp_path: Path
) -> None:
    ids = Corpus.open(small_corpus, "train").vocab_size
    run = replace(recipes.bert(), corpus=str(small_corpus))
    for rows in (ids - 1, 10):
        model = model_of(tmp_path / str(rows), rows, None)
        with pytest.raises(UnmaskError) as caught:
            road.fit_to_corpus(replace(run, start_from=str(model)))
        assert f"made with another tokenizer ({ids:,} tokens)" in caught.value.what
        assert caught.value.where == str(model) and "unmask tokenizer extend" in caught.value.do


@pytest.mark.parametrize("spare", [0, 1, 40])
def test_B079_a_model_with_as_many_rows_or_padding_beyond_them_fits(
    small_corpus: Path, tmp_path: Path, spare: int
) -> None:
    ids = Corpus.open(small_corpus, "train").vocab_size
    model = model_of(tmp_path / "model", ids + spare, small_corpus / "tokenizer")
    fitted = road.fit_to_corpus(replace(recipes.bert(), corpus=str(small_corpus), start_from=str(model)))
    assert fitted.encoder.vocab_size == ids + spare


def test_B079_a_model_is_never_saved_with_a_tokenizer_of_more_ids(small_corpus: Path, tmp_path: Path) -> None:
    ids = Tokenizer.load(small_corpus / "tokenizer").vocab_size
    with pytest.raises(UnmaskError, match=f"the tokenizer has {ids:,} ids, but the model only {ids - 1:,} rows"):
        model_of(tmp_path / "model", ids - 1, small_corpus / "tokenizer")
    assert not (tmp_path / "model").exists() and not list(tmp_path.glob(".tmp-*"))
    model_of(tmp_path / "model", ids, small_corpus / "tokenizer")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["vocab_size"] == ids


def test_B079_a_corpus_of_another_vocabulary_of_the_same_size_is_refused(small_corpus: Path, tmp_path: Path) -> None:
    """Otherwise every id means another word than it did, and nothing would show it but a bad loss."""
    old = Tokenizer.load(small_corpus / "tokenizer")
    content, config = old.documents()
    pieces = old.pieces()
    content["model"]["vocab"] = {piece: place for place, piece in enumerate([*pieces[:5], *reversed(pieces[5:])])}
    Tokenizer(content, config).save(tmp_path / "other")
    model = model_of(tmp_path / "model", old.vocab_size, tmp_path / "other")
    with pytest.raises(UnmaskError, match="another tokenizer"):
        road.fit_to_corpus(replace(recipes.bert(), corpus=str(small_corpus), start_from=str(model)))
