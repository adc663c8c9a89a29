"""What is shown in the place of each target of MLM: [MASK], a random ordinary token, or the token itself.

Draws are hashes of (key of the sequence, place in it), as those that choose the targets are.

Legend: T tokens, B sequences, M targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmask.objectives.choose import Keys, Numbers, run_starts
from unmask.randomness import further, keys, uniform

FATE, NOISE = 3, 4  # what a target's draw is for


@dataclass(frozen=True)
class Corruption:
    """How the targets of a run are hidden."""

    mask: int  # id of [MASK]
    ordinary: Numbers  # the ids that a random token is drawn from
    replace_mask: float  # share of the targets that become [MASK]
    replace_random: float  # share that become a random token
    whole_spans: bool  # neighbouring targets meet one fate (SpanBERT section 3.1 and its released code)


def corrupt(
    ids_T: Numbers, where_M: Numbers, rows_T: Numbers, places_T: Numbers, keys_B: Keys, how: Corruption
) -> tuple[Numbers, Numbers]:
    """[T] the tokens as they are shown, and [M] what the targets are."""
    from unmask.objectives import mask_loops

    edges = float(how.replace_mask), float(how.replace_mask + how.replace_random)
    return mask_loops.corrupt(ids_T, where_M, rows_T, places_T, keys_B, how.mask, how.ordinary, *edges, how.whole_spans)


def corrupt_plainly(
    ids_T: Numbers, where_M: Numbers, rows_T: Numbers, places_T: Numbers, keys_B: Keys, how: Corruption
) -> tuple[Numbers, Numbers]:
    """What `corrupt` gives, bit for bit, in array operations: its specification."""
    value_M, key_M = ids_T[where_M], further(keys(keys_B)[rows_T[where_M]], places_T[where_M])
    fate_M, draw_M = uniform(further(key_M, FATE)), uniform(further(key_M, NOISE))
    if how.whole_spans:
        starts_M = run_starts(where_M, rows_T[where_M])
        fate_M = fate_M[np.flatnonzero(starts_M)[np.cumsum(starts_M) - 1]]  # that of the first of each one's span
    noise_M = how.ordinary[(draw_M * len(how.ordinary)).astype(np.int64)]
    random_M = (fate_M >= how.replace_mask) & (fate_M < how.replace_mask + how.replace_random)
    shown_T = ids_T.copy()
    shown_T[where_M] = np.where(random_M, noise_M, np.where(fate_M < how.replace_mask, how.mask, value_M))
    return shown_T, value_M
