"""Which words are kept, in which order, and where they stand."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.config.static import Words
from unmask.static.words import WordCounts, most_frequent

counted = st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), st.integers(1, 20), max_size=30)


@settings(max_examples=60, deadline=None)
@given(counted, st.integers(1, 6), st.integers(0, 8))
def test_the_most_frequent_words_come_first_and_equal_ones_as_they_first_occurred(
    counts: dict[str, int], least: int, most: int
) -> None:
    words = most_frequent(counts, Words(min_count=least, max_words=most))
    wanted = [pair for pair in Counter(counts).most_common() if pair[1] >= least]
    assert list(zip(words.words, words.counts.tolist(), strict=True)) == wanted[: most or None]


def test_asking_for_so_many_words_gives_exactly_so_many() -> None:
    counts = {f"w{number}": 7 for number in range(1000)}
    assert len(most_frequent(counts, Words(max_words=300))) == 300
    assert most_frequent(counts, Words(min_count=8)).words == []


def test_a_word_is_found_at_its_place_and_without_capitals_at_the_most_frequent_spelling() -> None:
    words = WordCounts(["us", "Paris", "US", "paris", "Straße"], np.arange(5)[::-1].copy())
    assert words.index == {"us": 0, "Paris": 1, "US": 2, "paris": 3, "Straße": 4}
    assert words.folded_index == {"us": 0, "paris": 1, "strasse": 4}
    assert words.first(2).words == ["us", "Paris"] and words.first(2).counts.tolist() == [4, 3]
