"""Character n-grams: parts of words with vectors of their own, from which unknown words get one.

Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information", section 3.2; the n-grams and their hash are those
of the authors' program, fastText, so that numbers of buckets mean the same here and there. The word itself is not among
its n-grams: it has its own vector.

Legend: W words, P n-grams of all of them end to end, V words with vectors, B buckets, D dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import CharacterNgrams


@dataclass(frozen=True, eq=False)
class Ngrams:
    """The vectors of the n-grams, one for each bucket, and how words are cut."""

    settings: CharacterNgrams
    matrix: NDArray[np.float32]  # [B, D]

    def __post_init__(self) -> None:
        assert len(self.matrix) == self.settings.buckets

    def vector(self, word: str) -> NDArray[np.float32] | None:
        """[D] The mean of the vectors of a word's n-grams; None where it is too short to have any."""
        _, buckets_P = ngram_buckets([word], self.settings)
        return self.matrix[buckets_P].mean(0, dtype=np.float64).astype(np.float32) if len(buckets_P) else None

    def compose(self, words: Sequence[str], own_VD: NDArray[np.float32]) -> NDArray[np.float32]:
        """[V, D] What known words mean: each the mean of its own vector and of its n-grams' vectors."""
        from unmask.static import ngram_loops

        starts, buckets_P = ngram_buckets(words, self.settings)
        out_VD = np.empty_like(own_VD)
        ngram_loops.means(own_VD, self.matrix, starts, buckets_P, out_VD)
        return out_VD


def ngram_buckets(words: Sequence[str], settings: CharacterNgrams) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The buckets of the n-grams of many words: starts [W+1], so that those of word w are buckets[starts[w] : starts[w+1]].

    In the order of `ngrams_of`; an n-gram that occurs twice in a word is there twice.
    """
    from unmask.static import ngram_loops

    encoded = [f"<{word}>".encode("utf-8", "replace") for word in words]
    text = np.frombuffer(b"".join(encoded), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    starts = np.concatenate([[0], np.cumsum(ngram_loops.counts(text, ends, settings.shortest, settings.longest))])
    return starts, ngram_loops.buckets(text, ends, starts, settings.shortest, settings.longest, settings.buckets)


def ngrams_of(word: str, settings: CharacterNgrams) -> list[str]:
    """The n-grams of a word: from each character of <word> on, the shortest first; < and > alone are none."""
    text = f"<{word}>"
    lengths = range(settings.shortest, settings.longest + 1)
    spans = [(begin, begin + length) for begin in range(len(text)) for length in lengths if begin + length <= len(text)]
    return [text[begin:end] for begin, end in spans if (begin, end) not in ((0, 1), (len(text) - 1, len(text)))]


def bucket_of(ngram: str, buckets: int) -> int:
    """FNV-1a with 32 bits over the UTF-8 bytes, each taken as a number from -128 to 127, as fastText does (for ever,
    since its published models depend on it)."""
    value = 2166136261
    for byte in ngram.encode("utf-8", "replace"):
        signed = byte | 0xFFFFFF00 if byte > 127 else byte
        value = (value ^ signed) * 16777619 & 0xFFFFFFFF
    return value % buckets
