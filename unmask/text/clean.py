"""Text made plain and cut into sentences, with nothing lost.

English sentences are found by the library `sentencex`; Chinese ones by the rule below, because that library keeps a
whole quotation as one sentence and forgets paragraph breaks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Literal

from sentencex import segment

from unmask.text.words import HANZI, SPACE, character_classes

Language = Literal["en", "zh", "auto"]

_UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")
_BREAKS = "\x0b\x0c\r\x85"  # vertical tab, form feed, carriage return, next line: each ends a line
_SEPARATORS = "\x1c\x1d\x1e\x1f"  # old field separators: each parts words
_REPLACED = {
    **{code: None for code in (*range(32), *range(0x7F, 0xA0), 0xFEFF) if chr(code) not in "\t\n"},
    **dict.fromkeys(map(ord, _BREAKS), "\n"),
    **dict.fromkeys(map(ord, _SEPARATORS), " "),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
_WIDE_SPACES = "\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # all white space beyond ASCII
_UNREADABLE = re.compile(rf"[{_WIDE_SPACES}\ud800-\udfff]")  # for sentencex

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
_CLOSERS = "”’\"'」』）)】》〉〗］\\]｝}"
_CHINESE_END = re.compile(
    rf"(?:[。！？；…｡!?]|．(?![0-9０-９])|(?<=[{_HAN}{_CLOSERS}])\.(?![0-9A-Za-z.])|(?<=[a-z][a-z])\.(?=\s+[A-Z{_HAN}]))"
    rf"[。！？；…｡!?]*[{_CLOSERS}]*"
)
_ENGLISH_END = re.compile(r"(?<=[a-z]{3})[.!?][\"'”’)\]]*\s+(?=[A-Z\"“‘(])")  # sure enough to cut a long line at
_LONGEST_SENTENCE = 8_192  # characters
_LONG_LINE = 4096  # characters; sentencex is quadratic in the quotations of what it gets, so longer lines are cut first
_CHINESE_SHARE = 0.2  # of the characters that are no white space; a page of English with a few names stays below


def normalise(text: str) -> str:
    """Unicode composed (NFC), lines ended by LF, control characters gone. Applying it twice changes nothing more.

    CR LF, CR, form feed, vertical tab and next line (U+0085) become LF; the separators U+001C to U+001F a space; lone
    surrogates U+FFFD. Every other control character (category Cc) but tab, and the byte order mark U+FEFF anywhere, is
    taken out. Other invisible characters (zero-width joiners, U+2028, soft hyphens) carry meaning and stay.
    """
    if _UNWANTED.search(text):
        text = text.replace("\r\n", "\n").translate(_REPLACED)
    return unicodedata.normalize("NFC", text)


def split_sentences(text: str, language: Language = "auto") -> list[str]:
    """Sentences without the white space around them. Line breaks always end a sentence; no other character is lost.

    "auto" takes a text for Chinese when a fifth of its first 100,000 characters are hanzi. Time grows linearly with the
    text. What has no end within 8,192 characters (a text without punctuation) is cut, between words where it can be.
    """
    if language == "auto":
        language = "zh" if _hanzi_share(text[:100_000]) >= _CHINESE_SHARE else "en"
    split = _chinese if language == "zh" else _english
    parts = (piece for line in text.split("\n") for part in split(line) for piece in _bounded(part.strip()))
    return [sentence for part in parts if (sentence := part.strip())]


def _bounded(sentence: str) -> Iterator[str]:
    while len(sentence) > _LONGEST_SENTENCE:
        cut = sentence.rfind(" ", 1, _LONGEST_SENTENCE) + 1 or _LONGEST_SENTENCE
        yield sentence[:cut]
        sentence = sentence[cut:]
    yield sentence


def _hanzi_share(text: str) -> float:
    kinds = character_classes(text)
    return float((kinds == HANZI).sum() / max(1, (kinds != SPACE).sum()))


def _chinese(line: str) -> Iterator[str]:
    start = 0
    for end in _CHINESE_END.finditer(line):
        yield line[start : end.end()]
        start = end.end()
    yield line[start:]


def _english(line: str) -> Iterator[str]:
    if len(line) <= _LONG_LINE:
        yield from _segmented(line)
        return
    held = ""
    for piece, ends in _windows(line):
        *sentences, last = _segmented(piece)
        if sentences:
            yield held + sentences[0]
            yield from sentences[1:]
            held = ""
        held += last
        if ends:
            yield held
            held = ""
    yield held


def _segmented(line: str) -> list[str]:
    """The sentences that sentencex finds, which together are the line.

    It panics at a full stop after a capital letter and white space of several bytes (as in "plan A" U+00A0 "."), and
    lone surrogates have no UTF-8: it is shown plain spaces in place of both.
    """
    shown = line if line.isascii() else _UNREADABLE.sub(" ", line)
    sentences: list[str] = segment("en", shown) if line else []
    if shown == line:
        return sentences
    ends = list(accumulate(map(len, sentences)))
    assert ends[-1] == len(line), "sentencex leaves nothing out"
    return [line[start:end] for start, end in pairwise([0, *ends])]


def _windows(line: str) -> Iterator[tuple[str, bool]]:
    """Pieces of a long line, each cut at its last likely sentence end (True) or, where it has none, anywhere (False)."""
    start = 0
    while len(line) - start > _LONG_LINE:
        ends = [end.end() for end in _ENGLISH_END.finditer(line, start, start + _LONG_LINE)]
        stop = ends[-1] if ends else start + _LONG_LINE
        yield line[start:stop], bool(ends)
        start = stop
    yield line[start:], True
