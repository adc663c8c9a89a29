"""Which words are kept, in which order, and where they stand."""

from __future__ import annotations

import numpy as np

from unmask.static.words import WordCounts


def test_a_word_is_found_at_its_place_and_without_capitals_at_the_most_frequent_spelling() -> None:
    words = WordCounts(["us", "Paris", "US", "paris", "Straße"], np.arange(5)[::-1].copy())
    assert words.index == {"us": 0, "Paris": 1, "US": 2, "paris": 3, "Straße": 4}
    assert words.folded_index == {"us": 0, "paris": 1, "strasse": 4}
    assert words.first(2).words == ["us", "Paris"] and words.first(2).counts.tolist() == [4, 3]
