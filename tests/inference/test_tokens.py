"""Texts to ids: the frame of the folder's own tokenizer, its length, and nothing a text could forge."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from unmask.errors import UnmaskError
from unmask.inference.batches import token_batches
from unmask.inference.tokens import AT_ONCE, TextEncoder, TokenisedTexts
from unmask.text.tokenizer import Tokenizer

TEXTS = ["the cat sat", "", "mats .", "the cat sat on the mat . " * 9, "fig the"]


def rows(tokens: TokenisedTexts) -> list[list[int]]:
    return [part.tolist() for part in np.split(tokens.ids_T, tokens.lengths_N.cumsum()[:-1])]


def test_ids_equal_those_of_transformers_and_what_is_cut_is_counted(small: Path) -> None:
    tokens = TextEncoder(Tokenizer.load(small), 12).encode(TEXTS)
    theirs = AutoTokenizer.from_pretrained(small, local_files_only=True)
    assert rows(tokens) == theirs(TEXTS, truncation=True, max_length=12)["input_ids"]
    assert tokens.truncated == 1


def test_many_texts_are_numbered_through(small: Path) -> None:
    texts = [TEXTS[i % 5] for i in range(2 * AT_ONCE + 3)]
    encoder = TextEncoder(Tokenizer.load(small), 12)
    assert rows(encoder.encode(texts)) == [rows(encoder.encode([text]))[0] for text in texts]


def test_a_special_token_spelled_in_a_text_is_ordinary_text(small: Path) -> None:
    tokenizer = Tokenizer.load(small)
    ids = rows(TextEncoder(tokenizer, 32).encode(["the [SEP] cat [MASK]"]))[0]
    assert len(ids) == 10, "three pieces each: bracket, letters, bracket"
    assert ids.count(tokenizer.sep_token_id) == 1 and ids[-1] == tokenizer.sep_token_id
    assert tokenizer.mask_token_id not in ids


def test_a_prompt_stands_before_each_text_and_its_length_counts_the_first_special_token(small: Path) -> None:
    encoder = TextEncoder(Tokenizer.load(small), 32)
    assert rows(encoder.encode(["sat", "mat"], "the cat ")) == rows(encoder.encode(["the cat sat", "the cat mat"]))
    assert (encoder.prompt_length("the cat "), encoder.prompt_length("")) == (3, 0)


def test_where_the_model_wants_lower_case_it_gets_it(small: Path) -> None:
    assert rows(TextEncoder(Tokenizer.load(small), 32, lowercase=True).encode(["The CAT"])) == rows(
        TextEncoder(Tokenizer.load(small), 32).encode(["the cat"])
    )


def test_an_empty_text_has_no_vector_where_nothing_frames_it(small: Path) -> None:
    content, config = Tokenizer.load(small).documents()
    bare = TextEncoder(Tokenizer({**content, "post_processor": None}, config), 8)
    assert rows(bare.encode(["the cat"])) == [rows(TextEncoder(Tokenizer.load(small), 8).encode(["the cat"]))[0][1:-1]]
    with pytest.raises(UnmaskError, match="a text without any token") as caught:
        bare.encode(["the"] * AT_ONCE + ["cat", ""])
    assert f"text {AT_ONCE + 1}" in caught.value.where


def test_half_a_surrogate_pair_is_a_sentence_not_a_traceback(small: Path) -> None:
    with pytest.raises(UnmaskError, match="can't be tokenised"):
        TextEncoder(Tokenizer.load(small), 8).encode([json.loads('"\\ud800"')])


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 60), max_size=40), budget=st.integers(1, 100))
def test_batches_hold_every_text_once_near_the_budget_and_longest_first(lengths: list[int], budget: int) -> None:
    sizes = np.array(lengths, np.int64)
    batches = token_batches(sizes, budget)
    assert sorted(i for batch in batches for i in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert sizes[batch].sum() < budget + sizes[batch].max()
        assert (np.diff(sizes[batch]) <= 0).all()
    spans = sorted(((sizes[b].max(), sizes[b].min()) for b in batches), reverse=True)
    assert all(later[0] <= earlier[1] for earlier, later in zip(spans, spans[1:], strict=False))
