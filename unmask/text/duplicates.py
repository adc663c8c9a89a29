"""Documents that say the same: exactly, or nearly (MinHash with banded locality-sensitive hashing).

Fingerprints and bands are made document by document, anywhere; `find_duplicates` then looks at all of them at once.
A *unit* is a word in lower case, or a single hanzi or kana; a *shingle* is five units in a row. Two documents are near
duplicates when the Jaccard similarity J of their shingle sets is about 0.8 or more. Each document keeps 32 band keys,
each the hash of 6 MinHash values; a band is equal with probability J^6. Documents that share a band are compared, and
count as near duplicates when at least 6 of the 32 bands are equal. So the chance to be found is

    J         0.5     0.6    0.7    0.75   0.8    0.85   0.9
    found     1e-5    0.3 %  17 %   52 %   88 %   99 %   100 %   (binomial tail; checked by a test)

One changed word touches five shingles: J = 0.9 is about one changed word in a hundred.

Legend: D documents, B bands, C characters, U units.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash

from unmask.randomness import mix
from unmask.text.words import HANZI, PUNCTUATION, SPACE, character_classes, code_points

BANDS = 32
_ROWS = 6  # MinHash values in a band
_EQUAL_BANDS = 6  # that make a near duplicate
_SHINGLE = 5  # units; the usual choice for web text (Lee and others 2022, "Deduplicating Training Data")
_LONGEST = 1_000_000
_SHORTEST = 20  # units; below, a handful of shingles says too little, so only exact duplicates count
_SEED = 42


@dataclass(frozen=True)
class Kept:
    """The answer over all documents: `kept` is False for those to leave out, `first` the earliest one they repeat."""

    kept: NDArray[np.bool_]  # [D]
    first: NDArray[np.int64]  # [D], the document itself where kept
    exact: int  # documents left out because an earlier one is equal
    near: int  # documents left out because an earlier one is nearly equal


def fingerprint(text: str) -> bytes:
    """16 bytes (BLAKE2b), equal for texts that differ in white space and in case only."""
    plain = " ".join(text.casefold().split())
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def band_keys(text: str) -> NDArray[np.uint64]:
    """[B] keys that near duplicates share; all zero for a text under 20 units, which has no near duplicates.

    A text over a million characters is compared for equality only: its shingles would take gigabytes.
    """
    units_U = _unit_hashes(text if len(text) <= _LONGEST else "")
    if len(units_U) < _SHORTEST:
        return np.zeros(BANDS, np.uint64)
    shingles = np.zeros(len(units_U) - _SHINGLE + 1, np.uint64)
    for place in range(_SHINGLE):
        shingles = mix(shingles ^ units_U[place : place + len(shingles)])
    ends = np.array([0, len(shingles)], np.uint64)
    digest = RMinHash.digest_matrix_from_flat_token_hashes(shingles, ends, BANDS * _ROWS, _SEED)
    rows = np.array(digest.to_rows(), np.uint64).reshape(BANDS, _ROWS)
    keys = np.arange(BANDS, dtype=np.uint64)
    for row in range(_ROWS):
        keys = mix(keys ^ rows[:, row])
    return np.maximum(keys, np.uint64(1))


def find_duplicates(exact: NDArray[np.uint64], bands: NDArray[np.uint64]) -> Kept:
    """Which of all documents to keep, from fingerprints [D, 2] and band keys [D, B] ([D, 0]: exact ones only).

    The first of equal documents stays. A document is compared with the first holder of each of its bands; so a chain
    of ever so slightly changed texts leaves only its beginning. The result depends on nothing but the arrays.
    """
    count = len(exact)
    first = _first_equal(exact)
    is_exact = first < np.arange(count)
    for band in range(bands.shape[1]):
        holder = _first_equal(bands[:, band : band + 1])
        near = np.flatnonzero((holder < np.arange(count)) & (bands[:, band] != 0))
        alike = (bands[near] == bands[holder[near]]).sum(1) >= _EQUAL_BANDS
        np.minimum.at(first, near[alike], holder[near[alike]])
    repeats = first < np.arange(count)
    return Kept(~repeats, _roots(first), int(is_exact.sum()), int((repeats & ~is_exact).sum()))


def _first_equal(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """[D] the smallest index with an equal row."""
    if not len(keys):
        return np.zeros(0, np.int64)
    order = np.lexsort(keys.T)  # stable: equal rows stay in document order
    ordered = keys[order]
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(1)
    first = np.empty(len(keys), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))]
    return first


def _roots(first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Follows each document to the kept one at the beginning of its chain; each round doubles the steps."""
    while (first[first] != first).any():
        first = first[first]
    return first


def _unit_hashes(text: str) -> NDArray[np.uint64]:
    """[U] a hash of each word, hanzi or kana; punctuation and white space part words and are left out."""
    text = text.lower()
    codes_C = code_points(text)
    kinds_C = character_classes(text)
    single_C = (kinds_C == HANZI) | (codes_C >= 0x3040) & (codes_C <= 0x30FF)
    part_C = ~((kinds_C == SPACE) | (kinds_C == PUNCTUATION))
    starts_C = part_C.copy()
    starts_C[1:] &= ~part_C[:-1] | single_C[1:] | single_C[:-1]
    starts = np.flatnonzero(starts_C)
    if not len(starts):
        return np.zeros(0, np.uint64)
    place_C = np.arange(len(codes_C)) - starts[np.maximum(np.cumsum(starts_C) - 1, 0)]
    values_C = mix(codes_C.astype(np.uint64) | place_C.astype(np.uint64) << np.uint64(32))
    values_C[~part_C] = 0
    return mix(np.add.reduceat(values_C, starts))
