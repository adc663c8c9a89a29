"""Draws are arithmetic: pure, keyed by whole numbers, and the same in every version."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unmask.randomness import further, generator, keys

WHOLE = st.integers(-(2**63), 2**63 - 1)


def test_draws_of_earlier_versions_are_drawn_again() -> None:
    assert keys(1, 2, np.array([3, 4])).tolist() == [9812528628958509896, 10968459818407162609]
    assert keys(-5, 7).tolist() == [14298634771574289436]
    assert generator(1, 2).random() == 0.5343582239052673


@given(st.lists(WHOLE, min_size=1, max_size=5), WHOLE, WHOLE, st.data())
def test_keys_can_be_made_in_steps_and_gathered_between(
    rows: list[int], part: int, last: int, data: st.DataObject
) -> None:
    row = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9)))
    place = np.arange(len(row)) + part % 1000
    whole = keys(part, np.array(rows)[row], place, last)
    assert np.array_equal(further(keys(part, np.array(rows))[row], place, last), whole)


@given(WHOLE)
def test_a_number_alone_and_in_an_array_are_one_part(part: int) -> None:
    assert np.array_equal(keys(part), keys(np.array([part])))
    assert len(np.unique(keys(3, np.array([part, part ^ 1])))) == 2
