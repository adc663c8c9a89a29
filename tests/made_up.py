"""Small made-up things that several tests use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unmask.text.shards import Texts
from unmask.text.vocabulary import Vocabulary


def vocabulary(size: int, pad_token_id: int = 0, special_ids: tuple[int, ...] = (0, 1, 2, 3, 4)) -> Vocabulary:
    """Special ids as BERT-like tokenizers trained here have them."""
    return Vocabulary(
        size=size,
        pad_token_id=pad_token_id,
        unk_token_id=1,
        cls_token_id=2,
        sep_token_id=3,
        mask_token_id=4,
        special_ids=special_ids,
    )


VOCABULARY = vocabulary(64)
GPT2_LIKE = replace(
    VOCABULARY,
    pad_token_id=None,
    unk_token_id=None,
    cls_token_id=None,
    mask_token_id=None,
    special_ids=(3,),
)
T5_LIKE = replace(VOCABULARY, cls_token_id=None, mask_token_id=None, special_ids=(0, 1, 3, 63), sentinel_ids=(63,))


class MadeUpSource:
    """A corpus in memory: documents are lists of sentences, sentences lists of ids."""

    def __init__(self, documents: list[list[list[int]]], word_starts: list[list[list[bool]]] | None = None):
        self.documents = documents
        self.word_starts = word_starts or [[[True] * len(s) for s in d] for d in documents]

    def document_tokens(self) -> np.ndarray:
        return np.array([sum(map(len, d)) for d in self.documents])

    def read(self, documents: np.ndarray) -> Texts:
        chosen = [self.documents[i] for i in documents]
        sentences = [s for d in chosen for s in d]
        flags = [w for i in documents for s in self.word_starts[i] for w in s]
        return Texts(
            np.array([t for s in sentences for t in s], np.int64),
            np.array(flags, bool),
            np.cumsum([0, *map(len, sentences)]),
            np.cumsum([0, *map(len, chosen)]),
        )


def numbered_documents(sizes: list[list[int]]) -> list[list[list[int]]]:
    """Documents with sentences of the sizes given, every token a different number from 5 on."""
    number, documents = 5, []
    for sentences in sizes:
        document = []
        for size in sentences:
            document.append(list(range(number, number + size)))
            number += size
        documents.append(document)
    return documents


def random_documents(count: int, seed: int = 0, size: int = 64) -> list[list[list[int]]]:
    """Documents of 1 to 8 sentences of 1 to 40 tokens with ids below `size`."""
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(5, size, rng.integers(1, 41)).tolist() for _ in range(rng.integers(1, 9))] for _ in range(count)
    ]


def english_documents(count: int, seed: int = 0) -> list[str]:
    """Documents of short sentences with some grammar, so that a model has something to learn."""
    rng = np.random.default_rng(seed)
    nouns = "cat dog bird river garden letter teacher doctor window market engine village winter song".split()
    verbs = "sees likes follows paints carries remembers forgets repairs visits".split()
    kinds = "old young quiet bright green heavy careful distant".split()
    pick = lambda words: words[int(rng.integers(len(words)))]
    documents = []
    for _ in range(count):
        hero, place = pick(nouns), pick(nouns)
        sentences = [
            f"The {pick(kinds)} {hero} {pick(verbs)} the {pick(nouns)} near the {place}."
            for _ in range(int(rng.integers(3, 12)))
        ]
        documents.append(" ".join(sentences))
    return documents
