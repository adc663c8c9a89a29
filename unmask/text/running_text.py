"""The words of running text, as people tag them: for files that give spans, and for texts that come without words.

Legend: G whole characters (letters with their accents) of a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from unmask.text.graphemes import clusters
from unmask.text.words import HANZI, PUNCTUATION, SPACE, character_classes, code_points

Parting = Literal["runs", "characters", "segments"]


def text_words(text: str, parting: Parting = "runs") -> list[tuple[int, int]]:
    """Begin and end of the words of running text: white space parts them, marks and Chinese characters stand alone.

    Parted as `characters`, those of a run of letters or digits do too. `segments`, Chinese words of several characters, are
    what only a dictionary finds: these are the words of runs.
    """
    if not text:
        return []
    first_G = np.unique(clusters(code_points(text))[0])
    kinds_G = character_classes(text)[first_G]
    space_G, single_G = kinds_G == SPACE, kinds_G >= PUNCTUATION
    starts_G = np.ones(len(first_G), np.bool_)
    if parting != "characters":
        starts_G[1:] = (space_G[1:] != space_G[:-1]) | single_G[1:] | single_G[:-1]
    begins = first_G[starts_G]
    spans = zip(begins.tolist(), [*begins[1:].tolist(), len(text)], space_G[starts_G].tolist(), strict=True)
    return [(begin, end) for begin, end, space in spans if not space]


def parting_of(rows: Iterable[Sequence[str]]) -> Parting:
    """How someone parted texts into these rows of words. `characters`: no word has two, and some were neighbours in a run of
    letters or digits; `segments`: a word has two Chinese characters side by side; or else `runs`."""
    rows = list(rows)
    longer = {word for words in rows for word in words if len(word) > 1}
    if has_segments(" ".join(longer)):
        return "segments"
    if any(len(text_words(word, "characters")) > 1 for word in longer):
        return "runs"
    return "characters" if any(len(text_words("".join(words))) < sum(map(bool, words)) for words in rows) else "runs"


def has_segments(text: str) -> bool:
    """Whether two Chinese characters stand side by side."""
    hanzi_C = character_classes(text) == HANZI
    return bool((hanzi_C[1:] & hanzi_C[:-1]).any())
