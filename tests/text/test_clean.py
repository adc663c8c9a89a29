from __future__ import annotations

import gzip
import json
import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.text.clean import normalise, split_sentences

ODD_CHARACTERS = ".!?。！？；…”’\"'「」()（） \n\t\r\x0b\x0c\x85\x00\xa0\u2028\ufeff\u3000ABab1的一是\u0301é\ud800"
# Not st.text: that draws from all characters alike, so that the odd ones would hardly ever come.
ODD = st.lists(st.sampled_from(ODD_CHARACTERS) | st.characters(), max_size=200).map("".join)


def visible(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(ODD)
def test_normalising_twice_changes_nothing_more(text):
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert all(character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cs") for character in once)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\rc\x0cd\x0be\x85f", "a\nb\nc\nd\ne\nf"),
        ("a\x00b\x07c\x1bd\x7fe\x9ff", "abcdef"),
        ("a\x1cb\x1fc", "a b c"),
        ("\ufeffbegin\ufeff", "begin"),
        ("cafe\u0301", "café"),
        ("ハ\u3099", "バ"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ("tab\tstays, \u200d and \u00ad and \u2028 too", "tab\tstays, \u200d and \u00ad and \u2028 too"),
    ],
)
def test_line_endings_control_characters_and_composition(text, expected):
    assert normalise(text) == expected


@given(ODD, st.sampled_from(["en", "zh", "auto"]))
def test_splitting_loses_no_character(text, language):
    sentences = split_sentences(text, language)
    assert visible("".join(sentences)) == visible(text)
    assert all(sentence.strip() == sentence != "" for sentence in sentences)
    assert not any("\n" in sentence for sentence in sentences)


@pytest.mark.parametrize("space", [chr(code) for code in range(0x80, 0x110000) if chr(code).isspace()])
def test_any_white_space_may_stand_before_a_full_stop(space):
    assert split_sentences(f"That was plan A{space}. He left.", "en") == [f"That was plan A{space}.", "He left."]


def test_half_a_surrogate_pair_is_a_character_like_others():
    assert split_sentences("One \ud83d is left. He left.", "en") == ["One \ud83d is left.", "He left."]


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["He said. ", '"a." ', "word ", "x?", "( ", "“"]), min_size=400, max_size=3000))
def test_lines_longer_than_a_window_lose_no_character(parts):
    text = "".join(parts) * 3
    assert visible("".join(split_sentences(text, "en"))) == visible(text)


def test_a_long_line_is_cut_like_short_ones():
    sentence = "Dr. Smith went to the U.S. in 1999, and stayed there. "
    assert split_sentences(sentence * 500, "en") == [sentence.strip()] * 500


def test_english_sentences():
    text = 'Dr. Smith et al. wrote 3.5 pages. "Go home." He left!\nA heading\n\nIt was late... Then "Why?" he asked.'
    assert split_sentences(text) == [
        "Dr. Smith et al. wrote 3.5 pages.",
        '"Go home."',
        "He left!",
        "A heading",
        "It was late...",
        'Then "Why?" he asked.',
    ]


def test_chinese_sentences_end_at_their_marks_and_after_closing_quotes():
    text = "他说：“你好。我走了！”然后走了……后来呢？真的；对\n版本3.5发布．数值１．５不变。方法有效.仿真结果"
    assert split_sentences(text) == [
        "他说：“你好。",
        "我走了！”",
        "然后走了……",
        "后来呢？",
        "真的；",
        "对",
        "版本3.5发布．",
        "数值１．５不变。",
        "方法有效.",
        "仿真结果",
    ]


def test_auto_chooses_by_the_share_of_hanzi():
    assert split_sentences("Li Bai (李白) was a poet. He wrote.") == ["Li Bai (李白) was a poet.", "He wrote."]
    assert split_sentences("李白是诗人。他写诗。") == ["李白是诗人。", "他写诗。"]


@pytest.mark.parametrize("name", ["en_wikitext2_valid", "zh_docs_react", "zh_csl_abstracts"])
def test_real_documents_are_covered_and_fall_into_sentences_of_readable_length(shared, name):
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        documents = [normalise(json.loads(line)["text"]) for _, line in zip(range(60), file, strict=False)]
    for document in documents:
        sentences = split_sentences(document)
        assert visible("".join(sentences)) == visible(document)
        assert sum(map(len, sentences)) / len(sentences) < 250


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("flood", ["a.", "a", " ", "1", ". ", '"', "。”", '."', "「a。」", "A. ", "「", "……", "的"])
def test_floods_take_linear_time(flood, language):
    text = flood * (100_000 // len(flood))
    began = time.process_time()
    split_sentences(normalise(text), language)
    assert time.process_time() - began < 1.0
