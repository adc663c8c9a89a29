"""Texts to ids: the frame of the folder's own tokenizer, its length, and nothing a text could forge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
        assert sizes[batch].sum() <= budget or len(batch) == 1
        assert (np.diff(sizes[batch]) <= 0).all()
    spans = sorted(((sizes[b].max(), sizes[b].min()) for b in batches), reverse=True)
    assert all(later[0] <= earlier[1] for earlier, later in zip(spans, spans[1:], strict=False))


@pytest.mark.parametrize(
    ("lengths", "wanted"),
    [([2000, 2000, 10], [[0], [1, 2]]), ([5, 5, 5, 5], [[0, 1], [2, 3]]), ([9000, 1, 1], [[0], [1, 2]]), ([], [])],
)
def test_a_batch_is_within_the_budget_and_none_is_a_runt(lengths: list[int], wanted: list[list[int]]) -> None:
    budget = 2048 if max(lengths, default=0) > 5 else 16
    assert sorted(batch.tolist() for batch in token_batches(np.array(lengths, np.int64), budget)) == wanted


def framed(vocabulary: list[str], unk: str | None, frame: list[str]) -> Tokenizer:
    """A BPE tokenizer of single characters; `frame` are the template's parts, "$A" the text."""
    special = [piece for piece in vocabulary if piece.startswith("[")]
    ids = {piece: id for id, piece in enumerate(vocabulary)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    parts = [
        {"Sequence": {"id": "A", "type_id": 0}} if piece == "$A" else {"SpecialToken": {"id": piece, "type_id": 0}}
        for piece in frame
    ]
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[piece], "content": piece, **flags} for piece in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": parts,
            "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]} for piece in special},
        },
        "decoder": None,
        "model": {"type": "BPE", "vocab": ids, "merges": [], "unk_token": unk},
    }
    return Tokenizer(content, {"cls_token": "[CLS]", "sep_token": "[SEP]"})


@pytest.mark.parametrize("unk", [None, "[CLS]"])
def test_the_frame_is_right_where_latin_letters_are_no_ordinary_tokens(unk: str | None) -> None:
    tokenizer = framed(["[CLS]", "[SEP]", "中", "文"], unk, ["[CLS]", "$A", "[SEP]"])
    encoder = TextEncoder(tokenizer, 8)
    assert (encoder.before, encoder.after) == ([0], [1])
    assert rows(encoder.encode(["文中"])) == [[0, 3, 2, 1]]


def test_a_frame_that_no_text_tells_is_refused() -> None:
    with pytest.raises(UnmaskError, match="gives no text an ordinary token"):
        TextEncoder(framed(["[CLS]", "[SEP]"], None, ["[CLS]", "$A", "[SEP]"]), 8)
    with pytest.raises(UnmaskError, match="that stays between its special ones"):
        TextEncoder(framed(["[CLS]", "[SEP]", "a"], None, ["[CLS]", "[SEP]"]), 8)
