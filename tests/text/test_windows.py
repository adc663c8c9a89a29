from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from unmask.text.windows import longest_first, most_context, token_windows, word_windows


def plain_token_windows(size: int, room: int, stride: int) -> list[tuple[int, int]]:
    """As BERT's code for SQuAD writes it, with the overlap in place of the step."""
    windows, begin = [], 0
    while True:
        windows.append((begin, min(room, size - begin)))
        if begin + room >= size:
            return windows
        begin += room - stride


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 20)).flatmap(
            lambda drawn: st.tuples(*map(st.just, drawn), st.integers(0, drawn[1] - 1))
        ),
        max_size=6,
    )
)
def test_windows_of_tokens_are_those_of_the_plain_loop(examples: list[tuple[int, int, int]]) -> None:
    columns = np.array(examples, np.int64).reshape(-1, 3).T
    found = zip(*(column.tolist() for column in token_windows(*columns)), strict=True)
    wanted = [(e, *window) for e, example in enumerate(examples) for window in plain_token_windows(*example)]
    assert list(found) == wanted


def plain_word_windows(sizes: list[int], room: int, overlap: int) -> list[tuple[int, int]]:
    windows, begin = [], 0
    while begin < len(sizes):
        end = begin
        while end < len(sizes) and sum(sizes[begin : end + 1]) <= room:
            end += 1
        windows.append((begin, end))
        if end == len(sizes):
            break
        begin = end
        while windows[-1][1] - begin < overlap and begin - 1 > windows[-1][0]:
            if sum(sizes[begin - 1 : end]) > room // 2 or sum(sizes[begin - 1 : end + 1]) > room:
                break
            begin -= 1
    return windows


@given(st.lists(st.lists(st.integers(1, 6), max_size=25), max_size=4), st.integers(6, 16), st.integers(0, 8))
def test_windows_of_words_are_those_of_the_plain_loop_and_show_every_word(
    rows: list[list[int]], room: int, overlap: int
) -> None:
    starts = np.cumsum([0, *(size for row in rows for size in row)])
    edges = np.cumsum([0, *map(len, rows)])
    found = list(word_windows(starts, edges, room, overlap))
    wanted = [
        (r, *(edges[r] + place for place in window))
        for r, row in enumerate(rows)
        for window in plain_word_windows(row, room, overlap)
    ]
    assert found == wanted
    assert {word for _, begin, end in found for word in range(begin, end)} == set(range(edges[-1]))
    assert all(starts[end] - starts[begin] <= room for _, begin, end in found)
    for (row, begin, end), (after, later, last) in pairwise(found):
        assert row != after or (begin < later <= end < last and end - later <= overlap)


def test_an_overlap_of_everything_still_gets_on_by_about_half_a_window() -> None:
    found = list(word_windows(np.arange(10_001), np.array([0, 10_000]), 100, 10_000))
    assert len(found) < 2 * 10_000 / 100 + 2


def plain_best(windows: list[tuple[int, int]], place: int) -> int:
    """BERT's `_check_is_max_context`."""
    best, best_score = -1, -1.0
    for number, (begin, size) in enumerate(windows):
        if begin <= place < begin + size:
            score = min(place - begin, begin + size - 1 - place) + 0.01 * size
            if score > best_score:
                best, best_score = number, score
    return best


@given(st.integers(1, 80), st.integers(1, 20), st.data())
def test_the_best_window_is_that_of_berts_code(size: int, room: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(0, room - 1))
    windows = plain_token_windows(size, room, stride)
    keys = np.concatenate([np.arange(begin, begin + n) for begin, n in windows])
    left = np.concatenate([np.arange(n) for _, n in windows])
    right = np.concatenate([np.arange(n)[::-1] for _, n in windows])
    number = np.repeat(np.arange(len(windows)), [n for _, n in windows])
    best = most_context(keys, left, right)
    assert dict(zip(keys[best].tolist(), number[best].tolist(), strict=True)) == {
        place: plain_best(windows, place) for place in range(size)
    }
    assert best.sum() == size


@pytest.mark.parametrize("room", [2, 3, 7, 8])
def test_two_texts_share_the_room_as_the_tokenizers_library_has_it(room: int) -> None:
    library = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.enable_truncation(room, strategy="longest_first")
    sizes = [(first, second) for first in range(12) for second in range(12)]
    wanted = []
    for first, second in sizes:
        owners = library.encode("a " * first, "b " * second).sequence_ids
        wanted.append((owners.count(0), owners.count(1)))
    found = longest_first(*np.array(sizes).T, room)
    assert list(zip(*(side.tolist() for side in found), strict=True)) == wanted
