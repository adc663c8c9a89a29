"""What word2vec draws words by: subsampling, the alias table of the negatives, the Huffman tree.

Legend: V words, the most frequent first; P nodes of all paths end to end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmask.loops import compiled

Counts = NDArray[np.int64]
ALWAYS = 2**32 - 1


def keep_thresholds(counts_V: Counts, subsample: float) -> NDArray[np.uint32]:
    """[V] A word stays when a draw of 32 bits is not above its threshold.

    It stays with probability sqrt(t / f) + t / f for its share f of the words, as in the authors' program (which differs from
    the formula of "Distributed Representations", section 2.3). t is `subsample`; 0 keeps all.
    """
    if subsample == 0:
        return np.full(len(counts_V), ALWAYS, np.uint32)
    ratio_V = subsample * counts_V.sum() / np.maximum(counts_V, 1)
    return (np.minimum(1.0, np.sqrt(ratio_V) + ratio_V) * ALWAYS).astype(np.uint32)


def alias_table(counts_V: Counts, power: float = 0.75) -> NDArray[np.uint64]:
    """[V] Walker's alias method: an even draw of a place, a look whether it stands for itself or for another word.

    Place v stands for word v when a draw of 32 bits is below the lower half of alias[v], else for the word in the upper half:
    one number, so that one look into memory is enough. So each word is drawn by count^power ("Distributed
    Representations", section 2.2).
    """
    weight_V = np.maximum(counts_V, 1).astype(np.float64) ** power
    threshold, other = _alias(weight_V * (len(weight_V) / weight_V.sum()))
    return other.astype(np.uint64) << np.uint64(32) | threshold


@compiled
def _alias(weight_V: NDArray[np.float64]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """`weight_V` has the mean 1. Each light word gives the rest of its place to a heavy one."""
    words = len(weight_V)
    threshold, other = np.full(words, ALWAYS, np.uint32), np.arange(words).astype(np.int32)
    stack = np.empty(words, np.int64)  # light words from the left, heavy ones from the right
    light, heavy = 0, words
    for word in range(words):
        if weight_V[word] < 1.0:
            stack[light] = word
            light += 1
        else:
            heavy -= 1
            stack[heavy] = word
    while light > 0 and heavy < words:
        light -= 1
        small, large = stack[light], stack[heavy]
        threshold[small], other[small] = np.uint32(weight_V[small] * ALWAYS), large
        weight_V[large] -= 1.0 - weight_V[small]
        if weight_V[large] < 1.0:
            heavy += 1
            stack[light] = large
            light += 1
    return threshold, other


def huffman(counts_V: Counts) -> tuple[Counts, NDArray[np.int32], NDArray[np.int8]]:
    """The paths from the root to each word: offsets [V+1], inner nodes [P], which of the two branches is taken there [P].

    There are V - 1 inner nodes; the root is the last. A single word has an empty path.
    """
    parent, branch = _tree(np.ascontiguousarray(counts_V, np.int64))
    return _paths(parent, branch)


@compiled
def _tree(counts_V: Counts) -> tuple[Counts, NDArray[np.int8]]:
    """The parent of each word (0 to V - 1) and inner node (from V on), and on which side it hangs.

    Words come from the rarest up and inner nodes are made from the lightest up, so that the two lightest of all are always
    next in one of two queues.
    """
    words = len(counts_V)
    weight, parent = np.zeros(2 * words, np.int64), np.zeros(2 * words, np.int64)
    branch = np.zeros(2 * words, np.int8)
    weight[:words] = counts_V
    word, inner = words - 1, words
    for node in range(words, 2 * words - 1):
        for side in range(2):
            if word >= 0 and (inner >= node or weight[word] < weight[inner]):
                chosen = word
                word -= 1
            else:
                chosen = inner
                inner += 1
            weight[node] += weight[chosen]
            parent[chosen], branch[chosen] = node, side
    return parent, branch


@compiled
def _paths(parent: Counts, branch: NDArray[np.int8]) -> tuple[Counts, NDArray[np.int32], NDArray[np.int8]]:
    words = len(parent) // 2
    root = 2 * words - 2
    offsets = np.zeros(words + 1, np.int64)
    for word in range(words):
        node, length = word, 0
        while node != root:
            node = parent[node]
            length += 1
        offsets[word + 1] = offsets[word] + length
    points, codes = np.empty(offsets[words], np.int32), np.empty(offsets[words], np.int8)
    for word in range(words):
        node, at = word, offsets[word + 1]
        while node != root:
            at -= 1
            codes[at] = branch[node]
            node = parent[node]
            points[at] = node - words
    return offsets, points, codes
