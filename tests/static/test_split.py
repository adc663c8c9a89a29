from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.static import split
from unmask.static.split import Splitting
from unmask.text.documents import Document
from unmask.text.words import WordSplitter


def lines(text: str, **choices) -> list[list[str]]:
    return list(Splitting(**choices).lines([Document(text, "text", 1)]))


def test_running_text_becomes_lower_case_words_without_punctuation():
    text = "Hello, World! It doesn't.\n\n  two  lines — ok ☆ 3rd\nlast\n"
    assert lines(text) == [["hello", "world", "it", "doesn", "t"], ["two", "lines", "ok", "3rd"], ["last"]]


@pytest.mark.parametrize(
    "text, words",
    [
        ("It cost \u00a3500 or 5\u20ac, \u226510.", ["it", "cost", "or", "500", "5", "10"]),
        ("\ufeffHello \u200bzero \u200f\u05e9\u05dc\u05d5\u05dd", ["hello", "zero", "\u05e9\u05dc\u05d5\u05dd"]),
        ("\U0001f642hello bye\U0001f642 \u00a92020 \U0001f642", ["hello", "bye", "2020"]),
        ("cafe\u0301 \u0928\u092e\u0938\u094d\u0924\u0947", ["cafe\u0301", "\u0928\u092e\u0938\u094d\u0924\u0947"]),
    ],
)
def test_symbols_and_invisible_characters_at_the_ends_of_a_word_cost_no_word(text: str, words: list[str]):
    assert sorted(lines(text)[0]) == sorted(words)


def test_hanzi_are_words_or_what_the_segmenter_makes_of_them():
    assert lines("我们学习自然语言处理。\n好") == [list("我们学习自然语言处理"), ["好"]]
    joined = lines("我们学习自然语言处理。", words=WordSplitter(segmenter="jieba"))
    assert joined == [["我们", "学习", "自然语言", "处理"]]


def test_split_text_is_taken_as_it_stands():
    """Every white space of Unicode separates (fastText#327): a no-break or ideographic space is never part of a word."""
    assert lines("a\u00a0b\u3000c\u2028d , New_York!\ne", rule="spaces", lowercase=False) == [
        ["a", "b", "c", "d", ",", "New_York!"],
        ["e"],
    ]


def test_a_segmenter_for_split_text_is_refused():
    with pytest.raises(UnmaskError, match="running text"):
        Splitting(rule="spaces", words=WordSplitter(segmenter="jieba"))


@given(st.text(st.sampled_from("ab好,\n \u3000☆"), max_size=80), st.integers(1, 9))
def test_a_text_cut_into_parts_has_the_same_words_and_as_many_lines_or_more(text: str, size: int):
    whole = lines(text, rule="spaces", lowercase=False)
    usual, split.SLICE = split.SLICE, size
    try:
        parts = lines(text, rule="spaces", lowercase=False)
    finally:
        split.SLICE = usual
    assert "".join(word for line in parts for word in line) == "".join(word for line in whole for word in line)
    assert len(parts) >= len(whole)
    longest = max((len(word) for line in whole for word in line), default=0)
    if longest < size:  # then there is white space to cut at
        assert [word for line in parts for word in line] == [word for line in whole for word in line]


@given(st.text(st.sampled_from("ab好,\n \u3000☆é"), max_size=80))
def test_lines_of_running_text_are_those_of_each_line_alone(text: str):
    alone = [found for line in text.split("\n") for found in lines(line)]
    assert lines(text) == alone
