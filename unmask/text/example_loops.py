"""Copying the chosen examples of a pool end to end in a compiled loop; `Pool.pack_plainly` is its twin.

Legend: N tokens in the stream, E examples, B chosen ones, T their tokens, special ones included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@compiled
def pack(
    stream_N: Ints, words_N: Flags, first_E2: Ints, second_E2: Ints, before: int, after: int, chosen_B: Ints
) -> tuple[Ints, NDArray[np.int32], Ints, Flags]:
    """[T] tokens, [B+1] where each example begins, [T] its segments, [T] True where a word begins.

    `before` tokens from the stream's beginning on stand before an example, `after` from its second place on behind each text.
    """
    starts = np.zeros(len(chosen_B) + 1, np.int32)
    for b, e in enumerate(chosen_B):
        first, second = first_E2[e, 1] - first_E2[e, 0], second_E2[e, 1] - second_E2[e, 0]
        starts[b + 1] = starts[b] + before + first + after + second + (after if second else 0)
    tokens = starts[-1]
    ids_T, segment_T, words_T = np.empty(tokens, np.int64), np.empty(tokens, np.int64), np.empty(tokens, np.bool_)
    at = 0
    for e in chosen_B:
        (a, b), (c, d) = first_E2[e], second_E2[e]
        closing = after if d > c else 0
        for begin, end, segment in ((0, before, 0), (a, b, 0), (1, 1 + after, 0), (c, d, 1), (1, 1 + closing, 1)):
            for place in range(begin, end):
                ids_T[at], segment_T[at], words_T[at] = stream_N[place], segment, words_N[place]
                at += 1
    return ids_T, starts, segment_T, words_T
