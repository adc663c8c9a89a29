"""Scores of unigram pieces that come out the same on every run: EM with the best segmentation only, in whole numbers.

Starting from equal scores (fewest pieces win), text is segmented, pieces are counted, and the counts give the next scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from math import log

import numpy as np
import tokenizers
from tokenizers import pre_tokenizers

from unmask.text.tokenizer_json import without_panic
from unmask.text.tokenizer_parts import NEVER, Style, unigram
from unmask.text.training_text import CUT

_ROUNDS = 4
_BATCH = 50_000  # words segmented at once
_SPELLING = 0.5  # added to each count, so that a piece the best segmentations never use keeps a score


def estimate_scores(pieces: list[str], look: Style, texts: Iterable[str]) -> list[tuple[str, float]]:
    """(piece, log-probability), the most probable first; `texts` are training texts."""
    words, times = _count_words(look, texts)
    scores = [-float(1 + (len(piece) == 1)) for piece in pieces]
    for _ in range(_ROUNDS):
        counts = _segment(pieces, scores, words, times) + _SPELLING
        total = log(counts.sum())
        scores = [round(log(count) - total, 6) for count in counts]
    return sorted(zip(pieces, scores, strict=True), key=lambda item: (-item[1], item[0]))


def _count_words(look: Style, texts: Iterable[str]) -> tuple[list[str], np.ndarray]:
    splitter = pre_tokenizers.Sequence([*look.before_cut, pre_tokenizers.Split(CUT, "removed"), *look.after_cut])
    counter: Counter[str] = Counter()
    for text in texts:
        counter.update(word for word, _ in splitter.pre_tokenize_str(text))
    words = sorted(counter)
    return words, np.array([counter[word] for word in words], np.int64)


def _segment(pieces: list[str], scores: list[float], words: list[str], times: np.ndarray) -> np.ndarray:
    """How often each piece is used when every word is cut in its most probable way."""
    with without_panic("The tokenizer can't be learned", "Try another kind or size, and please report this."):
        tokenizer = tokenizers.Tokenizer(unigram([("\x00", NEVER), *zip(pieces, scores, strict=True)], unk_id=0))
        counts = np.zeros(len(pieces) + 1, np.int64)
        for start in range(0, len(words), _BATCH):
            encodings = tokenizer.encode_batch_fast(words[start : start + _BATCH])
            ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64)
            lengths = [len(encoding) for encoding in encodings]
            np.add.at(counts, ids, np.repeat(times[start : start + _BATCH], lengths))
    return counts[1:]
