"""Where a word stands: its places in a sentence, and files of sentences with senses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.measure.uses import name_of, places, read_uses

SENTENCES = Path(__file__).parents[2] / "benchmarks" / "context"


@pytest.mark.parametrize(
    ("text", "forms", "found"),
    [
        ("The bank by the bank.", ["bank"], ["bank", "bank"]),
        ("Embankment, banks, riverbank, bank2, bank_name", ["bank"], []),
        ("the bank's e-bank (bank)", ["bank"], ["bank", "bank", "bank"]),
        ("Bank and BANK and bank", ["bank"], ["bank"]),
        ("bank, banks, banking", ["bank", "banks"], ["bank", "banks"]),
        ("苹果树上的苹果很红", ["苹果"], ["苹果", "苹果"]),
        ("我的iPhone手机", ["iPhone"], ["iPhone"]),
        ("打打电话", ["打", "打电话"], ["打", "打电话"]),
        ("ธนาคารกลาง", ["ธนาคาร"], ["ธนาคาร"]),
        ("りんごのりんご", ["りんご"], ["りんご", "りんご"]),
        ("New York, New Yorker", ["New York"], ["New York"]),
        ("C++ and C++17, not c", ["C++"], ["C++", "C++"]),
        ("cafe\u0301 cafe", ["cafe"], ["cafe"]),  # the first has an accent of its own
        ("की कीमत, की", ["की"], ["की", "की"]),  # it ends in a vowel sign, and begins another word
        ("cafe\u0301s, cafe\u0301", ["cafe\u0301"], ["cafe\u0301"]),
        ("", ["bank"], []),
    ],
)
def test_a_word_is_found_where_it_is_a_word(text: str, forms: list[str], found: list[str]) -> None:
    here = places(text, forms)
    assert [text[start:end] for start, end in here] == found
    assert here == sorted(here)


def test_capitals_are_ignored_when_that_is_asked_for() -> None:
    text = "İstanbul: Bank, BANK, bank"  # lower-casing the first letter makes two
    assert [text[a:b] for a, b in places(text, ["bank"], ignore_case=True)] == ["Bank", "BANK", "bank"]
    assert places(text, ["BaNk"]) == []


@given(st.text("ab 中.", max_size=30), st.sampled_from(["a", "ab", "中", "中a"]))
def test_places_are_those_of_a_plain_search(text: str, word: str) -> None:
    letter = lambda at: 0 <= at < len(text) and text[at] in "ab"
    wanted, at = [], 0
    while at < len(text):
        end = at + len(word)
        goes_on = (letter(at - 1) and letter(at)) or (letter(end) and letter(end - 1))
        if text[at:end] == word and not goes_on:
            wanted.append((at, end))
            at = end
        else:
            at += 1
    assert places(text, [word]) == wanted


def test_lines_and_records_are_read_alike(tmp_path: Path) -> None:
    lines = ["A bank here.\triver", "no such word", "", "my bank, your bank\tmoney"]
    (tmp_path / "a.tsv").write_text("text\tsense\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(("\ufeff" + "\r\n".join(lines)).encode()))
    rows = [dict(zip(("text", "sense"), line.split("\t"), strict=False)) for line in lines if line]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.tsv", "b.txt.gz", "c.jsonl"):
        found = read_uses(str(tmp_path / name), "bank")
        assert [(use.start, use.form, use.sense) for use in found.uses] == [
            (2, "bank", "river"),
            (3, "bank", "money"),
            (14, "bank", "money"),
        ]
        assert (found.sentences, found.without, found.senses) == (3, 1, ("river", "money"))
    assert found.evenly(2).uses == (found.uses[0], found.uses[1]) and found.evenly(3) == found


@pytest.mark.parametrize(
    ("lines", "what", "where"),
    [
        (["a bank\tx", "the bank"], "names no sense", "line 2"),
        (["a bank"], "only once", ""),
        (["a tree"], "in no sentence", ""),
        (["a Bank", "Bank"], "in no sentence of 2", ""),
        (["a bank\tx", "the bank\ty\tmore"], "more than one tab", "line 2"),
        (["", " "], "no sentence in it", ""),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path: Path, lines: list[str], what: str, where: str) -> None:
    (tmp_path / "s.txt").write_text("\n".join(lines))
    with pytest.raises(UnmaskError) as caught:
        read_uses(str(tmp_path / "s.txt"), "bank")
    assert what in caught.value.what and where in caught.value.where and caught.value.do
    with pytest.raises(UnmaskError, match="empty"):
        read_uses(str(tmp_path / "s.txt"), " bank")
    (tmp_path / "s.jsonl").write_text('{"sentence": "a bank"}\n')
    with pytest.raises(UnmaskError, match="no sentence"):
        read_uses(str(tmp_path / "s.jsonl"), "bank")


def test_a_word_is_found_with_composed_accents_and_with_accents_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("a cafe\u0301\nmy caf\u00e9\n", encoding="utf-8")
    for word in ("cafe\u0301", "caf\u00e9"):
        assert [use.form for use in read_uses(str(tmp_path / "s.txt"), word).uses] == ["cafe\u0301", "caf\u00e9"]


def test_bytes_that_are_no_text_are_refused_by_their_line_and_a_torn_archive_in_words(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_bytes(b"a bank\nthe \xff bank\n")
    with pytest.raises(UnmaskError, match="not UTF-8") as caught:
        read_uses(str(tmp_path / "s.txt"), "bank")
    assert "s.txt:2" in caught.value.where
    (tmp_path / "s.txt.gz").write_bytes(gzip.compress(b"a bank\nthe bank\n" * 100)[:-20])
    with pytest.raises(UnmaskError, match="end early"):
        read_uses(str(tmp_path / "s.txt.gz"), "bank")


@pytest.mark.parametrize(("name", "word", "forms"), [("bank", "bank", ["banks"]), ("apple_zh", "苹果", [])])
def test_our_own_sentences_are_whole(name: str, word: str, forms: list[str]) -> None:
    found = read_uses(str(SENTENCES / f"{name}.tsv"), word, forms)
    assert found.sentences == 40 and not found.without and len(found.senses) == 2
    assert all(sum(use.sense == sense for use in found.uses) == 20 for sense in found.senses)


@pytest.mark.parametrize(("name", "word", "forms"), [("bank", "bank", ["banks"]), ("apple_zh", "苹果", [])])
def test_in_our_sentences_neither_the_place_of_the_word_nor_their_length_tells_the_sense(
    name: str, word: str, forms: list[str]
) -> None:
    """A network that has learned nothing knows both; no border between low and high may be right for many."""
    uses = read_uses(str(SENTENCES / f"{name}.tsv"), word, forms).uses
    first = np.array([use.sense == uses[0].sense for use in uses])
    before, behind = (np.array(x) for x in zip(*((u.start, len(u.text) - u.end) for u in uses), strict=True))
    for told in (before, behind, before + behind, before / (before + behind)):
        right = [((told >= border) == first).mean() for border in told]
        assert max(*right, *(1 - share for share in right)) < 0.7


def test_a_model_is_called_by_the_folder_that_tells_most() -> None:
    assert name_of(Path("/runs/bert/model")) == "bert/model" and name_of(Path("/data/w2v.txt")) == "w2v.txt"
