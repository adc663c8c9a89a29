"""Sliding windows on a CPU: blocks of queries, each with only the keys in its reach, so that cost grows with the length.

A window spans a fixed number of tokens, and sequences lie end to end, so one view whose blocks overlap holds the keys of all
blocks of a group without a copy; a mask keeps out what lies beyond the window or in another sequence.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unmask.batch import Group, Layout

BLOCK = 64  # queries of a block


class Blocks(NamedTuple):
    """`number` runs of `size` tokens, each beginning `step` tokens behind the one before."""

    first: int
    number: int
    size: int
    step: int

    @property
    def end(self) -> int:
        """Behind the last token."""
        return self.first + (self.number - 1) * self.step + self.size


def reaches(longest: int, window: int) -> bool:
    """True where blocks cost less than a mask over the whole sequence: a little beyond the keys that one block sees."""
    return window > 0 and longest >= 2 * (window + BLOCK)


def blocks(
    layout: Layout, group: Group, window: int, causal: bool, dtype: torch.dtype
) -> list[tuple[Blocks, Blocks, Tensor]]:
    """Queries, keys and what is added to their scores ([n or 1, 1, l, m]) for all tokens of a group.

    Blocks in the middle go together; those whose reach is cut off by the group's ends go alone.
    """
    begin, end = group.first, group.first + group.tokens
    ahead = 0 if causal else window
    whole = [at for at in range(begin, end, BLOCK) if at - window >= begin and at + BLOCK + ahead <= end]
    cuts = []
    if whole:
        width = window + BLOCK + ahead
        queries = Blocks(whole[0], len(whole), BLOCK, BLOCK)
        cuts.append((queries, Blocks(whole[0] - window, len(whole), width, BLOCK)))
    for at in sorted(set(range(begin, end, BLOCK)) - set(whole)):
        first, last, stop = max(begin, at - window), min(end, at + BLOCK + ahead), min(end, at + BLOCK)
        cuts.append((Blocks(at, 1, stop - at, stop - at), Blocks(first, 1, last - first, last - first)))
    alone = group.sequences == 1
    return [(queries, keys, _bias(layout, queries, keys, window, causal, alone, dtype)) for queries, keys in cuts]


def _bias(
    layout: Layout, queries: Blocks, keys: Blocks, window: int, causal: bool, alone: bool, dtype: torch.dtype
) -> Tensor:
    count = 1 if alone else queries.number  # in one long sequence all blocks look the same
    q, k = (side.first + torch.arange(count)[:, None] * side.step + torch.arange(side.size) for side in (queries, keys))
    distance = q[:, :, None] - k[:, None, :]
    seen = (distance.abs() <= window) & (layout.rows[q][:, :, None] == layout.rows[k][:, None, :])
    if causal:
        seen &= distance >= 0
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)[:, None]
