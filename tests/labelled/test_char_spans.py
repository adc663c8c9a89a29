"""Spans of characters are laid over the words of a text; those that cannot be are refused by record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.labelled.records import Place
from unmask.labelled.spans import lay_over_words, read_spans
from unmask.text.running_text import parting_of, text_words

HERE = Place("a.jsonl", 7, 6)
TEXT = "Dr. Ada-Lovelace lives in 北京市"


def test_words_are_parted_by_space_and_marks_and_hanzi_stand_alone():
    assert [TEXT[b:e] for b, e in text_words(TEXT)] == [
        *("Dr", ".", "Ada", "-", "Lovelace", "lives", "in", "北", "京", "市"),
    ]
    assert text_words("") == text_words(" \u3000\n") == []
    assert text_words("cafe\u0301 x\u200by .\u0301") == [(0, 5), (6, 9), (10, 12)]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_words_hold_every_character_that_is_not_space_once_and_in_order(text):
    words = text_words(text)
    assert "".join(text[b:e] for b, e in words) == "".join(c for c in text if not c.isspace())
    assert all(0 <= a < b <= c for (a, b), c in zip(words, [*(w[0] for w in words[1:]), len(text)], strict=False))


def test_texts_are_cut_into_characters_for_who_learned_characters():
    text = "e\u0301tat 20年, \U0001f469\u200d\U0001f4bb."
    cut = [text[begin:end] for begin, end in text_words(text, "characters")]
    assert cut == ["e\u0301", "t", "a", "t", "2", "0", "年", ",", "\U0001f469\u200d\U0001f4bb", "."]
    words, spans, parted = lay_over_words(text, [(6, 8, "X")], HERE, "characters")
    assert (len(words), spans, parted) == (10, [(4, 6, "X")], 0)
    assert text_words(text, "segments") == text_words(text)


@pytest.mark.parametrize(
    ("rows", "parting"),
    [
        ([["北", "京", "2", "0"], ["e\u0301"]], "characters"),
        ([["北", "京", "20"]], "runs"),
        ([["北", "京"], ["a"], ["，", "。"]], "runs"),
        ([["北京"], ["a", "b"]], "segments"),
        ([["北", "京"], ["iPhone", "手机"]], "segments"),
        ([["The", "end", "."]], "runs"),
        ([["a", "", "b", "\u200b"], []], "characters"),
        ([], "runs"),
    ],
)
def test_words_show_how_their_texts_were_parted(rows, parting):
    assert parting_of(rows) == parting


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), max_size=9), max_size=4))
def test_a_text_is_parted_as_those_before_it(texts):
    for parting in ("runs", "characters"):
        rows = [[text[begin:end] for begin, end in text_words(text, parting)] for text in texts]
        found = parting_of(rows)
        assert [[text[begin:end] for begin, end in text_words(text, found)] for text in texts] == rows


def test_a_span_that_cuts_a_word_parts_it():
    words, spans, parted = lay_over_words(TEXT, [(4, 8, "X"), (10, 12, "PER"), (26, 28, "LOC")], HERE)
    assert [TEXT[b:e] for b, e in words][2:7] == ["Ada", "-", "Lo", "ve", "lace"]
    assert spans == [(2, 4, "X"), (5, 6, "PER"), (9, 11, "LOC")]
    assert parted == 1  # Lovelace, twice


@given(st.text("ab .京\u0301👩", min_size=1, max_size=20), st.data())
def test_the_words_of_a_span_are_the_text_of_the_span(text, data):
    edges = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    spans = [(b, e, "T") for b, e in zip(edges[::2], edges[1::2], strict=False) if text[b:e].strip()]
    words, counted, parted = lay_over_words(text, spans, HERE)
    assert len(counted) == len(spans)
    assert (parted > 0) == (words != text_words(text))
    for (begin, end, _), (first, last, _) in zip(spans, counted, strict=True):
        assert "".join(text[b:e] for b, e in words[first:last]) == "".join(text[begin:end].split())


def test_spans_come_in_the_shapes_people_have():
    text, wanted = "Ada in Rome", [(0, 3, "PER"), (7, 11, "LOC")]
    for given_spans in (
        [[7, 11, "LOC"], [0, 3, "PER"], [0, 3, "PER"]],
        [{"start": 0, "end": 3, "label": "PER"}, {"begin": 7, "end": 11, "type": "LOC", "text": "Rome"}],
        [{"id": 1, "start_offset": 0, "end_offset": 3, "label": "PER"}, [7, 11, "LOC"]],
        {"PER": {"Ada": [[0, 2]]}, "LOC": {"Rome": [[7, 10]]}},
    ):
        assert read_spans(given_spans, text, HERE) == wanted
    assert read_spans([], text, HERE) == read_spans({}, text, HERE) == []


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ([[0, 5, "X"], [4, 6, "Y"]], "[0, 5, 'X'] and [4, 6, 'Y'] overlap"),
        ([[0, 5, "X"], [0, 5, "Y"]], "overlap"),
        ([[0, 99, "X"]], "is not in the text of 29 characters"),
        ([[3, 3, "X"]], "is not in the text"),
        ([[-1, 3, "X"]], "is not in the text"),
        ([["X", 0, 3]], "is not a span"),
        ([[0, 3]], "is not a span"),
        ([{"start": 0, "label": "X"}], "is not a span"),
        ([[0, 3, ""]], "is not a span"),
        (None, "is not a span"),
        ("Ada", "is not a span"),
        ({"X": [[0, 2]]}, "is not a span"),
        ({"X": {"Dr": [[0]]}}, "is not a span"),
        ({"X": {"Ada": [[4, 7]]}}, "is said to be 'Ada', but the text has 'Ada-' there"),
        ([{"start": 4, "end": 6, "label": "X", "text": "Ada"}], "is said to be 'Ada', but the text has 'Ad' there"),
    ],
)
def test_a_wrong_span_names_file_line_and_record(spans, said):
    with pytest.raises(UnmaskError) as error:
        read_spans(spans, TEXT, HERE)
    assert said in str(error.value) and "a.jsonl, line 7, record 6" in str(error.value)


def test_a_span_of_white_space_alone_is_refused():
    with pytest.raises(UnmaskError, match="holds no word but ' '") as error:
        lay_over_words(TEXT, [(3, 4, "X")], HERE)
    assert "record 6" in str(error.value)
