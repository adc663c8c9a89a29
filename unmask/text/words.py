"""Which characters belong together as a word: what whole-word masking hides in one piece.

Words are a property of the text, not of the tokenizer: the same rule serves WordPiece, byte-level BPE and unigram pieces,
and a character that a byte-level tokenizer cut into several tokens stays whole. The rule is BERT's: white space ends a
word; each punctuation mark is a word ("doesn't" is three, "well ," two); each hanzi is a word, unless a segmenter joins
them.

Legend: C characters of a text, T its tokens.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError

SPACE, PUNCTUATION, HANZI = 1, 2, 3  # classes of characters; 0 is all the rest: letters, digits, marks, symbols
_RULES = 1  # raise when the rules below change: caches of word starts are keyed by it
_HANZI_RANGES = (  # the blocks that BERT's own splitter treats as Chinese characters
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True)
class WordSplitter:
    """How texts fall into words. With `segmenter="jieba"`, hanzi are joined to the words that jieba finds.

    `user_words` are words the segmenter should know besides its own (names, terms of a field), as (word, frequency);
    frequency 0 lets jieba choose one just high enough to keep the word whole in front of its own parts.
    """

    segmenter: Literal["none", "jieba"] = "none"
    user_words: tuple[tuple[str, int], ...] = ()

    @property
    def fingerprint(self) -> str:
        """Equal for splitters that give equal words: a part of cache keys."""
        return hashlib.sha256(repr((_RULES, self.segmenter, self.user_words)).encode()).hexdigest()

    def starts(self, text: str) -> NDArray[np.bool_]:
        """[C] True where a word begins; the white space before a word belongs to it."""
        kinds_C = character_classes(text)
        starts_C = _plain_starts(kinds_C)
        if self.segmenter == "jieba" and (kinds_C == HANZI).any():
            _join_segments(text, kinds_C == HANZI, starts_C, self.user_words)
        return starts_C

    def token_starts(self, text: str, offsets: NDArray[np.integer]) -> NDArray[np.bool_]:
        """[T] True where a token begins a word, from the tokens' (start, end) [T, 2] in characters of the text.

        A token that reaches over several words joins them, so no word is ever part of two groups.
        """
        starts_T = np.ones(len(offsets), np.bool_)
        if len(offsets) > 1:
            word_C = np.cumsum(self.starts(text))
            first_T = np.minimum(offsets[:, 0], len(text) - 1)
            last_T = np.maximum(offsets[:, 1] - 1, first_T)
            starts_T[1:] = word_C[first_T[1:]] != word_C[last_T[:-1]]
        return starts_T


def read_user_words(path: Path) -> tuple[tuple[str, int], ...]:
    """Words of a user dictionary in jieba's format: a line each, a word and, if wanted, a frequency and a tag."""
    words: list[tuple[str, int]] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"The word list can't be read: {error}", where=str(path), do="Give a UTF-8 file.") from error
    for number, line in enumerate(lines, 1):
        word, *rest = line.split() or [""]
        if rest and not (rest[0].isascii() and rest[0].isdigit() and len(rest[0]) < 10):
            raise UnmaskError(
                f"'{rest[0]}' is not a frequency.", where=f"{path}:{number}", do="Write a word and a whole number."
            )
        if word:
            words.append((word, int(rest[0]) if rest else 0))
    return tuple(words)


def code_points(text: str) -> NDArray[np.uint32]:
    """[C] the text as numbers; lone surrogates pass."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def character_classes(text: str) -> NDArray[np.uint8]:
    """[C] SPACE, PUNCTUATION, HANZI or 0."""
    return _classes()[code_points(text)]


@cache
def _classes() -> NDArray[np.uint8]:
    table = np.zeros(0x110000, np.uint8)
    for code in range(0x20000):  # beyond are hanzi, tags and private use only
        character = chr(code)
        if character.isspace():
            table[code] = SPACE
        elif unicodedata.category(character)[0] == "P" or (code < 128 and character.isprintable()):
            table[code] = 0 if character.isalnum() else PUNCTUATION  # all ASCII symbols, as BERT has it
    for first, last in _HANZI_RANGES:
        table[first : last + 1] = HANZI
    return table


def _plain_starts(kinds_C: NDArray[np.uint8]) -> NDArray[np.bool_]:
    starts_C = np.ones(len(kinds_C), np.bool_)
    space_C, single_C = kinds_C == SPACE, kinds_C >= PUNCTUATION
    starts_C[1:] = ~space_C[:-1] & (space_C[1:] | single_C[1:] | single_C[:-1])
    return starts_C


def _join_segments(
    text: str, hanzi_C: NDArray[np.bool_], starts_C: NDArray[np.bool_], user_words: tuple[tuple[str, int], ...]
) -> None:
    """Makes each word of the segmenter that holds a hanzi one word; leaves other scripts to the plain rule."""
    at = np.cumsum([0, *map(len, _jieba(user_words).cut(text))])
    if at[-1] != len(text):
        raise UnmaskError("The segmenter changed the text.", do="Please report this: it should not happen.")
    hanzi_before = np.concatenate([[0], np.cumsum(hanzi_C)])
    chosen = np.flatnonzero(hanzi_before[at[1:]] > hanzi_before[at[:-1]])
    first, last = at[chosen], at[chosen + 1]
    inside = np.zeros(len(text) + 1, np.int64)
    np.add.at(inside, first, 1)
    np.add.at(inside, last, -1)
    within = np.cumsum(inside[:-1]) > 0
    within[first] = False  # the first character of a word keeps its own start
    starts_C[within] = False


@cache
def _jieba(user_words: tuple[tuple[str, int], ...]) -> Any:
    """One segmenter per user dictionary; cutting changes nothing in it, so threads share it."""
    import rjieba

    segmenter = rjieba.Jieba()
    for word, frequency in user_words:
        segmenter.add_word(word, frequency or segmenter.suggest_freq(word), "n")
    return segmenter
