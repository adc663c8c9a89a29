"""Where a word stands in many sentences, and in which sense it is meant there. Imports no torch."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from unmask.errors import UnmaskError
from unmask.labelled.records import Place
from unmask.labelled.rows import Strict, form_of, read_table, text_lines, text_of_file
from unmask.text.documents import DamagedInputError
from unmask.text.graphemes import clusters
from unmask.text.words import HANZI, character_classes, code_points

HEADER = ("text", "sense")
# Scripts without spaces between words, besides hanzi: Thai and Lao, Burmese, Khmer, kana.
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF))


@dataclass(frozen=True)
class Use:
    """A word in a sentence: `text[start:end]` is the form it has there, `word` the one that was asked for."""

    text: str
    start: int
    end: int
    word: str
    sense: str
    place: Place

    @property
    def form(self) -> str:
        """The word as it is written here."""
        return self.text[self.start : self.end]


@dataclass(frozen=True)
class Uses:
    """All uses that were found, in the order of the file; `without` of the `sentences` do not hold the word."""

    word: str
    uses: tuple[Use, ...]
    sentences: int
    without: int

    @property
    def senses(self) -> tuple[str, ...]:
        """Those of the uses, as they first occur; () where the file names none."""
        return tuple(dict.fromkeys(use.sense for use in self.uses if use.sense))

    def evenly(self, most: int) -> Uses:
        """At most so many uses, taken at equal distances."""
        if len(self.uses) <= most:
            return self
        chosen = np.arange(most) * len(self.uses) // most
        return Uses(self.word, tuple(self.uses[at] for at in chosen), self.sentences, self.without)


def read_uses(source: str, word: str, forms: Sequence[str] = (), *, ignore_case: bool = False) -> Uses:
    """The uses of a word (and of its inflected `forms`) in a file of sentences.

    Lines of text, each with its sense after a tab if it has one; or records with "text" and, if wanted, "sense" (.jsonl,
    .json, .csv, .parquet). Accents are found composed or not, whichever way the word is given. UnmaskError names the line
    that cannot be read, and says where there are fewer than two uses, or where some of them have a sense and others none.
    """
    if wrong := next((form for form in (word, *forms) if not form or form.strip() != form), None):
        raise UnmaskError("a word must not be empty or have white space around it", where=repr(wrong))
    wanted = _spellings((word, *forms))
    found, sentences, without = list[Use](), 0, 0
    for place, text, sense in _sentences(source):
        here = places(text, wanted, ignore_case=ignore_case)
        found += [Use(text, start, end, word, sense, place) for start, end in here]
        sentences, without = sentences + 1, without + (not here)
    if not sentences:
        raise UnmaskError("there is no sentence in it", where=source, do="give a sentence a line")
    if len(found) < 2:
        few = "in no sentence" if not found else "only once"
        do = "give other spellings with --forms, or --ignore-case" if not ignore_case else "give its forms with --forms"
        raise UnmaskError(f"{word!r} stands {few} of {sentences:,} sentences", where=source, do=do)
    if any(use.sense for use in found) and (bare := next((use for use in found if not use.sense), None)):
        do = "write the sense after a tab (or under sense) in every sentence, or in none"
        raise UnmaskError("this sentence names no sense, but others do", where=str(bare.place), do=do)
    return Uses(word, tuple(found), sentences, without)


def places(text: str, forms: Sequence[str], *, ignore_case: bool = False) -> list[tuple[int, int]]:
    """Begin and end of each use of a word in a text, from the left; of forms that begin at one place the longest counts.

    Where words have spaces between them, a form must not be a part of a longer word: "bank" is in "bank's" and in "e-bank",
    not in "banks". A form in a script without spaces is found wherever its characters stand.
    """
    folded, wanted = text, list(forms)
    if ignore_case:
        folded, wanted = _lower(text), [_lower(form) for form in forms]
    found: list[tuple[int, int]] = []
    begin_C, end_C = clusters(code_points(text))
    for start, end in sorted(_spans(folded, wanted), key=lambda span: (span[0], -span[1])):
        whole = begin_C[start] == start and end_C[end - 1] == end
        if whole and (not found or start >= found[-1][1]) and not _inside_a_word(text, start, end):
            found.append((start, end))
    return found


def _spellings(forms: Sequence[str]) -> tuple[str, ...]:
    """Each as it is given, with composed accents, and with accents of their own."""
    kinds: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
    return tuple(dict.fromkeys(s for form in forms for s in (form, *(unicodedata.normalize(k, form) for k in kinds))))


def _spans(text: str, forms: Sequence[str]) -> Iterator[tuple[int, int]]:
    for form in forms:
        start = text.find(form)
        while start >= 0:
            yield start, start + len(form)
            start = text.find(form, start + 1)


def _inside_a_word(text: str, start: int, end: int) -> bool:
    """Whether a letter goes on before or behind the span."""
    before = start > 0 and _is_letter(text[start - 1]) and _is_letter(text[start])
    return before or (end < len(text) and _is_letter(text[end]) and _is_letter(text[end - 1]))


def _is_letter(character: str) -> bool:
    """Of a script with spaces between words; digits and marks (the vowel signs of Hindi, accents of their own) too."""
    if not (character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"):
        return False
    code = ord(character)
    return character_classes(character)[0] != HANZI and not any(first <= code <= last for first, last in _UNSPACED)


def _lower(text: str) -> str:
    """Lower-case letter by letter, so that places stay: what would become two letters stays as it is."""
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _sentences(source: str) -> Iterator[tuple[Place, str, str]]:
    """Place, text and sense ("" where there is none) of each sentence that is not empty."""
    form, compression = form_of(source)
    if form not in ("txt", "tsv", "other"):
        yield from _records(source)
        return
    reading = Strict()
    try:
        for line, text in text_lines(source, text_of_file(source, compression, reading), reading):
            sentence, _, sense = text.partition("\t")
            if sentence.strip() and not (line == 1 and (sentence, sense) == HEADER):
                yield Place(source, line, line), sentence, _sense(sense, source, line)
    except DamagedInputError as error:
        raise UnmaskError(error.why, where=source, do=error.do) from error


def _sense(field: str, source: str, line: int) -> str:
    if "\t" in field.rstrip():
        do = "write the sentence, a tab and its sense, nothing more; a sentence that holds tabs goes into .jsonl"
        raise UnmaskError("the line has more than one tab", where=str(Place(source, line, line)), do=do)
    return field.strip()


def _records(source: str) -> Iterator[tuple[Place, str, str]]:
    for place, values in read_table(source).rows:
        text, sense = values.get("text"), values.get("sense")
        if not isinstance(text, str):
            raise UnmaskError("the record has no sentence", where=str(place), do='write {"text": "…", "sense": "…"}')
        yield place, text, "" if sense is None else str(sense).strip()


def name_of(path: Path) -> str:
    """What a model is called beside others: its folder, or where that says nothing, the one it lies in."""
    path = path.resolve()
    return path.parent.name + "/" + path.name if path.name in ("model", "0_Transformer", "best", "last") else path.name
