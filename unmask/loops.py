"""Loops as machine code (numba), for what would take many small array operations otherwise.

Compiled when first run, and kept: beside the source or, where that may not be written to, in the user's cache folder. What is
kept is renewed when the function's own file changes, so a compiled function stands in one file with all that it calls.
Importing numba takes a part of a second: modules with such loops are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])

# Neither nnan nor ninf: what is no number has to stay visible.
_FASTER = {"contract", "reassoc", "nsz", "arcp", "afn"}


def compiled(loop: Loop) -> Loop:
    """The function on one thread, as exact as NumPy: nothing is reordered or fused, and whole numbers wrap around."""
    return _compiled(loop, fastmath=False)


def compiled_fast(loop: Loop) -> Loop:
    """The same, but sums may be added in another order and products fused with them: for training, where only speed counts.

    On one machine it still gives the same bits again. NaN and infinity spread as ever. It becomes a part of the loop that
    calls it: numba passes an array as seven arguments, which costs a small function a third of its time.
    """
    return _compiled(loop, fastmath=_FASTER, forceinline=True)


def _compiled(loop: Loop, **options: Any) -> Loop:
    try:
        return cast(Loop, njit(cache=True, nogil=True, error_model="numpy", **options)(loop))
    except RuntimeError:  # there is no folder to write to: compiled anew in every process, in seconds
        return cast(Loop, njit(nogil=True, error_model="numpy", **options)(loop))
