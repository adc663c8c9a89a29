"""How long texts fall into overlapping windows, and which window of several shows most of what is around a token.

Legend: N windows, E examples, M places in windows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def token_windows(size_E: Ints, room_E: Ints, stride_E: Ints) -> tuple[Ints, Ints, Ints]:
    """[N] example, first token and size of windows of `room` tokens that share `stride` with the one before them.

    The last one of an example is as short as it comes out; an example without tokens has one of size 0.
    """
    assert (stride_E < room_E).all()
    step_E = room_E - stride_E
    count_E = 1 + -(-np.maximum(size_E - room_E, 0) // step_E)
    example_N = np.repeat(np.arange(len(size_E)), count_E)
    number_N = np.arange(len(example_N)) - np.repeat(count_E.cumsum() - count_E, count_E)
    begin_N = number_N * step_E[example_N]
    return example_N, begin_N, np.minimum(size_E[example_N] - begin_N, room_E[example_N])


def word_windows(starts: Ints, rows: Ints, room: int, overlap: int) -> Iterator[tuple[int, int, int]]:
    """Row, first word and the word after the last of windows that hold whole words, as many as fit into `room` tokens.

    Word w has the tokens from starts[w] to starts[w+1], `room` at most; row r the words from rows[r] to rows[r+1].
    Neighbours share `overlap` words where these take half the room at most and leave some for a new word.
    """
    at, edges = starts.tolist(), rows.tolist()
    for row, (begin, last) in enumerate(zip(edges, edges[1:], strict=False)):
        while begin < last:
            end = bisect_right(at, at[begin] + room, begin, last + 1) - 1
            yield row, begin, end
            if end == last:
                break
            least = max(at[end] - room // 2, at[end + 1] - room)
            begin = max(end - overlap, bisect_left(at, least, begin + 1, end))


def longest_first(first_N: Ints, second_N: Ints, room: int) -> tuple[Ints, Ints]:
    """Sizes of two texts that fit together: the longer one gives way until both are equal, as the tokenizers library has it."""
    short = np.minimum(first_N, second_N)
    kept = np.where(2 * short > room, room // 2, short)  # of the shorter one; of equal ones, the first
    fits = first_N + second_N <= room
    swap = first_N > second_N
    first = np.where(swap, room - kept, kept)
    return np.where(fits, first_N, first), np.where(fits, second_N, room - first)


def most_context(key_M: Ints, left_M: Ints, right_M: Ints) -> NDArray[np.bool_]:
    """[M] True at one place of each `key`: where the smaller of the numbers of tokens to its left and right is largest.

    A longer window breaks ties, then the earlier one: BERT's code for SQuAD adds 0.01 of the window's length.
    """
    score_M = 100 * np.minimum(left_M, right_M) + left_M + right_M + 1
    order = np.lexsort((-score_M, key_M))
    best_M = np.zeros(len(key_M), np.bool_)
    best_M[order[np.diff(key_M[order], prepend=-1) != 0]] = True
    return best_M
