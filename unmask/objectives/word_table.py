"""The most frequent words of a corpus, counted by their keys: a word is never spelled out.

Legend: T tokens, W words, V vocab_size, N words that are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.nn.characters import Words, word_keys
from unmask.text.shards import Corpus

PIECE = 1 << 22  # tokens looked at together


def frequent_words(
    corpus: Corpus, kinds_V: NDArray[np.int8], frames: Sequence[int], count: int
) -> tuple[Tensor, Tensor]:
    """[N] the keys of at most `count` words, most frequent first, of equal ones the lower key; and [N + 1] how often all other
    words occur, and each of these.

    `frames` are special tokens that examples have around their text: each counts once a document.
    """
    ids = torch.tensor(frames, dtype=torch.int64)
    keys = word_keys(ids, torch.zeros_like(ids), torch.arange(len(ids)), len(ids))
    counts = torch.full_like(keys, corpus.num_documents)
    for piece in _pieces(corpus):
        more, occurred = Words.of(piece, torch.from_numpy(kinds_V)).keys(piece.input_ids).unique(return_counts=True)
        keys, place = torch.cat([keys, more]).unique(return_inverse=True)
        counts = torch.zeros_like(keys).index_add(0, place, torch.cat([counts, occurred]))
    chosen = torch.from_numpy(np.lexsort((keys.numpy(), -counts.numpy()))[:count])
    others = counts.sum() - counts[chosen].sum()
    return keys[chosen], torch.cat([others[None], counts[chosen]])


def _pieces(corpus: Corpus) -> Iterator[PackedBatch]:
    """All documents in their order, some at a time, each a sequence."""
    number_D = np.cumsum(corpus.document_tokens()) // PIECE
    for documents in np.split(np.arange(len(number_D)), np.flatnonzero(np.diff(number_D)) + 1):
        texts = corpus.read(documents)
        starts = np.unique(texts.sentences[texts.documents])  # each once: a document may be empty
        if len(texts.tokens):
            yield PackedBatch(torch.from_numpy(texts.tokens), torch.from_numpy(starts.astype(np.int32)))
