"""The words of running text, as people tag them: for files that give spans, and for texts that come without words.

Legend: G whole characters (letters with their accents) of a text.
"""

from __future__ import annotations

import numpy as np

from unmask.text.graphemes import clusters
from unmask.text.words import PUNCTUATION, SPACE, character_classes, code_points


def text_words(text: str) -> list[tuple[int, int]]:
    """Begin and end of the words of running text: white space parts them, marks and Chinese characters stand alone."""
    if not text:
        return []
    first_G = np.unique(clusters(code_points(text))[0])
    kinds_G = character_classes(text)[first_G]
    space_G, single_G = kinds_G == SPACE, kinds_G >= PUNCTUATION
    starts_G = np.ones(len(first_G), np.bool_)
    starts_G[1:] = (space_G[1:] != space_G[:-1]) | single_G[1:] | single_G[:-1]
    begins = first_G[starts_G]
    spans = zip(begins.tolist(), [*begins[1:].tolist(), len(text)], space_G[starts_G].tolist(), strict=True)
    return [(begin, end) for begin, end, space in spans if not space]
