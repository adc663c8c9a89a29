"""Words given or found keep one place each, in windows of whole words."""

from __future__ import annotations

import numpy as np
import pytest
from aligned_rows import framed_as, ids, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from torture import KINDS, TORTURE, small

from unmask.text.aligned import AlignedEncoder
from unmask.text.graphemes import clusters
from unmask.text.running_text import text_words
from unmask.text.sequences import Labels
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import WordSplitter, code_points

WORDS = [
    "Ada",
    "lives",
    "in",
    "\u200b",
    "Rome",
    "",
    "\u02dc",
    "北京",
    "😂😂",
    "state-of-the-art",
    " ",
    "\ufeff",
    "(id:7)",
    "가나",
]


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return small(request.param)


def test_B056_B071_B072_B074_B075_every_word_has_one_place_even_if_it_has_no_piece(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.5, 3.7."""
    given_rows = [
        WORDS,
        ["hello", "\u200b", "world"],
        [],
        ["1"],
        ["\ufeff"],
        ["hi", " ", "x", " "],
        ["Hello", "\x10", "!"],
    ]
    words = AlignedEncoder(tokenizer, 4000).words(given_rows, 8)
    filled = [row for row in given_rows if row]
    assert words.row_N.tolist() == [0, 1, 3, 4, 5, 6] and words.best_M.all() and words.cut == 0
    assert np.diff(words.word_starts).tolist() == [len(row) for row in filled]
    assert rows(words) == [framed_as(tokenizer, tokenizer.encode_words(row).ids.tolist()) for row in filled]
    for number, row in enumerate(filled):
        here = slice(words.word_starts[number], words.word_starts[number + 1])
        first = np.flatnonzero(tokenizer.encode_words(row).word_starts) + 1
        assert words.place_M[here].tolist() == first.tolist()
        assert words.word_M[here].tolist() == list(range(len(row)))
    assert words.sequences().unit_N.tolist() == [0, 1, 2, 3, 4, 5]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=30), max_size=4),
    st.integers(3, 40),
    st.integers(0, 12),
    st.sampled_from(KINDS),
)
def test_windows_hold_whole_words_and_all_of_them(
    given_rows: list[list[str]], length: int, overlap: int, kind: str
) -> None:
    """TASKS.md 3.4, 3.8, 3.13, B078: nothing is too long."""
    tokenizer = small(kind)
    words = AlignedEncoder(tokenizer, length).words(given_rows, overlap)
    assert (np.diff(words.starts) <= length).all()
    seen = list(zip(words.rows_M().tolist(), words.word_M.tolist(), strict=True))
    wanted = [(r, w) for r, row in enumerate(given_rows) for w in range(len(row))]
    assert sorted(set(seen)) == wanted
    assert sorted(pair for pair, best in zip(seen, words.best_M, strict=True) if best) == wanted
    firsts = [int(tokenizer.encode_words([given_rows[r][w]]).ids[0]) for r, w in seen]
    tokens = words.place_M + np.repeat(words.starts[:-1], np.diff(words.word_starts))
    assert words.ids_T[tokens].tolist() == firsts
    sequences = words.sequences({"tag": Labels(words.word_starts, words.place_M, words.word_M)})
    assert sequences.num_units == sum(map(bool, given_rows))


def test_a_word_longer_than_a_window_keeps_its_first_pieces(tokenizer: Tokenizer) -> None:
    long = "lives" * 40
    words = AlignedEncoder(tokenizer, 12).words([["Ada", long, "Rome"], ["Ada"]], 2)
    pieces = tokenizer.encode_words([long]).ids.tolist()
    if len(pieces) > 10:
        assert words.cut == 1
        assert framed_as(tokenizer, pieces[:10]) in rows(words)
    assert words.best_M.sum() == 4


def test_a_words_best_window_shows_most_of_what_is_around_it() -> None:
    tokenizer = small("wordpiece")
    row = ["ok"] * 60
    words = AlignedEncoder(tokenizer, 2 + 20 * len(ids(tokenizer, "ok"))).words([row], 8)
    first = words.word_M[words.word_starts[:-1]]
    assert first.tolist() == [0, 12, 24, 36, 48]
    window = np.repeat(np.arange(len(first)), np.diff(words.word_starts))
    chosen = window[words.best_M][np.argsort(words.word_M[words.best_M])]
    assert chosen.tolist() == [0] * 16 + [1] * 12 + [2] * 12 + [3] * 12 + [4] * 8


@pytest.mark.parametrize("text", TORTURE)
def test_words_of_running_text_are_whole_characters_and_leave_nothing_out_but_white_space(text: str) -> None:
    found = text_words(text)
    begins, ends = (set(side.tolist()) for side in clusters(code_points(text)))
    assert all(begin in begins and end in ends and begin < end for begin, end in found)
    assert "".join(text[begin:end] for begin, end in found) == "".join(text.split())
    assert all(last <= begin for (_, last), (begin, _) in zip(found, found[1:], strict=False))


def test_words_of_running_text_are_those_of_whole_word_masking() -> None:
    cut = lambda text: [text[begin:end] for begin, end in text_words(text)]
    assert cut("Ada's café, 用BERT。 7.7") == ["Ada", "'", "s", "café", ",", "用", "BERT", "。", "7", ".", "7"]
    assert cut("#\ufe0f\u20e3a cafe\u0301, e\u0301") == ["#\ufe0f\u20e3", "a", "cafe\u0301", ",", "e\u0301"]
    assert cut("") == cut(" \n") == []
    text = "Well , it doesn't work: a naïve café, 2024 times. 自然语言x"
    starts = WordSplitter().starts(text)
    at = [*np.flatnonzero(starts).tolist(), len(text)]
    assert cut(text) == [text[a:b].strip() for a, b in zip(at, at[1:], strict=False)]
