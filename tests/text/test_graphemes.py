from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.text.graphemes import clusters
from unmask.text.words import code_points

UNITS = [
    *("a", "1", "#", "字", "é", "\u00a9", "\u2640", "\u2194", "\ufffd"),
    *("\u0301", "\u0308", "\u20e3", "\ufe0f", "\u200c", "\u200d", "\U0001f3fd", "\U000e0067", "\u3099", "\uff9e"),
    *("\U0001f469", "\U0001f4bb", "\u2764", "\U0001f3f4", "\U0001f1e9", "\U0001f1ea", "\U0001f1eb"),
    *("\u1112", "\u1161", "\u11ab", "\uac00", "\uac01", "\u0e01", "\u0e33", "\uff76", "\u093f"),
    *("\u0915", "\u0937", "\u0915\u094d", "\u0995\u09cd", "\u0995\u200d\u09cd"),
]


def characters(text: str) -> list[str]:
    begins, ends = clusters(code_points(text))
    assert ((begins <= np.arange(len(text))) & (np.arange(len(text)) < ends)).all()
    return [text[a:b] for a, b in dict.fromkeys(zip(begins.tolist(), ends.tolist(), strict=True))]


@settings(deadline=None)  # the first one makes the tables
@given(st.lists(st.sampled_from(UNITS), max_size=12).map("".join))
def test_characters_are_those_of_unicode_annex_29(text: str) -> None:
    regex = pytest.importorskip("regex")
    assert characters(text) == regex.findall(r"\X", text)


def test_a_family_a_flag_a_keycap_and_a_syllable_are_one_character_each() -> None:
    whole = [
        "\U0001f469\u200d\U0001f469\u200d\U0001f466",
        "\U0001f1e9\U0001f1ea",
        "1\ufe0f\u20e3",
        "\u1112\u1161\u11ab",
    ]
    whole += ["e\u0301", "\U0001f44d\U0001f3fd", "\u0915\u094d\u0937", "\u0e19\u0e49", "か\u3099"]
    assert characters("".join(whole)) == whole
    assert characters("") == [] and characters("abc") == ["a", "b", "c"]


def test_white_space_and_control_characters_stand_alone() -> None:
    assert characters(" \u0301a\n\u0308\u200b\u0301") == [" ", "\u0301", "a", "\n", "\u0308", "\u200b", "\u0301"]
