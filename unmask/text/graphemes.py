"""What a reader takes for one character: a letter with its accents, an emoji of several parts, a Korean syllable, a flag.

The rules are those of Unicode's Annex 29 for extended grapheme clusters, with two simplifications: white space and control
characters always stand alone, and the few signs that join what follows them (Prepend) do not.

Legend: C characters (code points) of a text.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_OTHER, _ALONE, _EXTEND, _SPACING, _LINKER, _ZWNJ, _ZWJ, _FLAG, _PICTURE, _CONSONANT, _L, _V, _T, _LV, _LVT = range(15)
_FIRST_JOINED = 0x300  # below it every character stands alone
_RANGES = (  # what the general category does not tell
    *((_LINKER, virama, virama) for virama in (0x94D, 0x9CD, 0xACD, 0xB4D, 0xC4D, 0xD4D)),  # these join two consonants
    *((_ZWNJ, 0x200C, 0x200C), (_SPACING, 0xE33, 0xE33), (_SPACING, 0xEB3, 0xEB3), (_EXTEND, 0xFF9E, 0xFF9F)),
    *((_EXTEND, 0x1F3FB, 0x1F3FF), (_EXTEND, 0xE0020, 0xE007F), (_ZWJ, 0x200D, 0x200D), (_FLAG, 0x1F1E6, 0x1F1FF)),
    *((_L, 0x1100, 0x115F), (_L, 0xA960, 0xA97C), (_V, 0x1160, 0x11A7), (_V, 0xD7B0, 0xD7C6)),
    *((_T, 0x11A8, 0x11FF), (_T, 0xD7CB, 0xD7FB)),
)


def clusters(codes_C: NDArray[np.uint32]) -> tuple[Ints, Ints]:
    """[C] where the whole character that each code point belongs to begins, and [C] where it ends."""
    begins_C = np.ones(len(codes_C), np.bool_)
    if len(codes_C) > 1 and int(codes_C.max()) >= _FIRST_JOINED:
        begins_C[1:] = ~_joined(_classes()[codes_C])
    at = np.flatnonzero(begins_C)
    sizes = np.diff(at, append=len(codes_C))
    return np.repeat(at, sizes), np.repeat(at + sizes, sizes)


def _joined(kinds_C: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """[C-1] True where a code point goes with the one before it."""
    before, after = kinds_C[:-1], kinds_C[1:]
    joined = np.isin(after, (_EXTEND, _SPACING, _LINKER, _ZWNJ, _ZWJ)) & (before != _ALONE)
    joined |= (before == _L) & np.isin(after, (_L, _V, _LV, _LVT))
    joined |= np.isin(before, (_LV, _V)) & np.isin(after, (_V, _T)) | np.isin(before, (_LVT, _T)) & (after == _T)
    picture_C = kinds_C[_last(~np.isin(kinds_C, (_EXTEND, _LINKER, _ZWNJ)))] == _PICTURE  # perhaps with marks
    joined[1:] |= (after[1:] == _PICTURE) & (before[1:] == _ZWJ) & picture_C[:-2]
    letter_C = _last(~np.isin(kinds_C, (_EXTEND, _LINKER, _ZWJ)))
    linkers_C = np.cumsum(kinds_C == _LINKER)
    linked = linkers_C[:-1] > linkers_C[letter_C[:-1]]
    joined |= (after == _CONSONANT) & (kinds_C[letter_C[:-1]] == _CONSONANT) & linked
    flags_C = kinds_C == _FLAG
    first_C = np.diff(flags_C.astype(np.int8), prepend=0) == 1  # of flags that follow each other
    odd_C = (np.arange(len(kinds_C)) - _last(first_C)) % 2 == 1
    return joined | (flags_C[1:] & flags_C[:-1] & odd_C[1:])


def _last(chosen_C: NDArray[np.bool_]) -> Ints:
    """[C] the last place up to each that is chosen, 0 where there is none."""
    return np.maximum.accumulate(np.where(chosen_C, np.arange(len(chosen_C)), 0))


@cache
def _classes() -> NDArray[np.uint8]:
    table = np.zeros(0x110000, np.uint8)
    for code in (*range(0x20000), *range(0xE0000, 0xE0200)):
        table[code] = _class(code)
    syllables = np.arange(0xAC00, 0xD7A4)
    table[syllables] = np.where((syllables - 0xAC00) % 28, _LVT, _LV)
    for kind, first, last in _RANGES:
        table[first : last + 1] = kind
    return table


def _class(code: int) -> int:
    category = unicodedata.category(chr(code))
    if category[0] == "M":
        return _SPACING if category == "Mc" else _EXTEND
    if category in ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp"):
        return _ALONE
    if 0x1F000 <= code <= 0x1FAFF or (0x2000 <= code < 0x3300 and category in ("So", "Sm")) or code in (0xA9, 0xAE):
        return _PICTURE
    return _CONSONANT if category == "Lo" and 0x900 <= code < 0xD80 else _OTHER
