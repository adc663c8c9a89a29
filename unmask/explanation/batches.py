"""A few texts as the one corpus there is: cut, batched and prepared by the code that makes every training batch.

To know where each token of the batch comes from, the same road is walked with serial numbers in place of ids: how examples
are cut depends on lengths and borders, never on ids.

Legend: N tokens of the texts, T tokens of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import PackedBatch
from unmask.config import RunConfig
from unmask.errors import UnmaskError
from unmask.loader import Batches, Cursor, Prepare
from unmask.text.clean import normalise, split_sentences
from unmask.text.parts import with_spaces
from unmask.text.shards import Texts
from unmask.text.tokenizer import Encoded, Tokenizer
from unmask.text.vocabulary import Vocabulary
from unmask.text.words import WordSplitter

_ALL = 1 << 40  # tokens of a pool: everything is in the first


@dataclass(frozen=True)
class Source:
    """The texts in memory, as the loader asks for them; beside each token where it comes from."""

    texts: Texts
    sentences: tuple[str, ...]
    sentence: NDArray[np.int64]  # [N] number of the sentence it is in
    document: NDArray[np.int64]  # [N] number of the text it is in
    offsets: NDArray[np.int64]  # [N, 2] its characters in the sentence

    def document_tokens(self) -> NDArray[np.int64]:
        out: NDArray[np.int64] = np.diff(self.texts.sentences[self.texts.documents])
        return out

    def read(self, documents: NDArray[np.int64]) -> Texts:
        """These documents in this order."""
        t = self.texts
        sentences = np.concatenate([np.arange(t.documents[d], t.documents[d + 1]) for d in documents])
        tokens = np.concatenate([np.arange(t.sentences[s], t.sentences[s + 1]) for s in sentences])
        ends = np.cumsum([0, *np.diff(t.sentences)[sentences]])
        counts = np.cumsum([0, *np.diff(t.documents)[documents]])
        return Texts(t.tokens[tokens], t.word_starts[tokens], ends, counts)

    def surface(self, tokens: Sequence[int]) -> str:
        """The characters from the first to the last of these tokens, sentence by sentence."""
        parts: dict[int, tuple[int, int]] = {}
        for token in tokens:
            begin, end = self.offsets[token].tolist()
            there = parts.get(int(self.sentence[token]), (begin, end))
            parts[int(self.sentence[token])] = min(begin, there[0]), max(end, there[1])
        return " ".join(self.sentences[number][begin:end].strip() for number, (begin, end) in parts.items())

    def numbered(self, first: int) -> Source:
        """With serial numbers from `first` on in place of ids."""
        numbers = first + np.arange(len(self.texts.tokens), dtype=np.int64)
        return replace(self, texts=replace(self.texts, tokens=numbers))


@dataclass(frozen=True)
class Batch:
    """A batch before and after its objective prepared it."""

    source: Source
    clean: PackedBatch
    origin: NDArray[np.int64]  # [T] of `clean`: its token among the source's, -1 for special ones
    prepared: PackedBatch


def read(texts: Sequence[str], tokenizer: Tokenizer, words: WordSplitter) -> Source:
    """Texts as building a corpus makes them: cleaned, cut into sentences, tokenised. UnmaskError for one without a token."""
    sentences: list[str] = []
    counts: list[int] = []
    encoded: list[Encoded] = []
    for text in texts:
        text = normalise(text)
        parts = split_sentences(text)
        if tokenizer.kind == "bpe":
            parts = with_spaces(text, parts)
        found = [(s, e) for s, e in zip(parts, tokenizer.encode(parts, words), strict=True) if len(e.ids)]
        if not found:
            raise UnmaskError(
                "there is no text: nothing of it has a token", where=repr(text[:80]), do="give a sentence"
            )
        sentences += [sentence for sentence, _ in found]
        encoded += [one for _, one in found]
        counts.append(len(found))
    lengths = [len(one.ids) for one in encoded]
    ids = np.concatenate([one.ids for one in encoded]).astype(np.int64)
    starts = np.concatenate([one.word_starts for one in encoded])
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    return Source(
        Texts(ids, starts, np.cumsum([0, *lengths]), np.cumsum([0, *counts])),
        tuple(sentences),
        sentence,
        np.repeat(np.arange(len(counts)), counts)[sentence],
        np.concatenate([one.offsets for one in encoded]).astype(np.int64),
    )


def make_batch(run: RunConfig, source: Source, vocabulary: Vocabulary, prepare: Prepare) -> Batch:
    """The first batch of the run on these texts."""
    numbered = source.numbered(vocabulary.size)
    batches = Batches(numbered, run.examples, vocabulary, _as_it_is, run.seed, run.batch.tokens, pool_tokens=_ALL)
    traced, _ = next(batches.since(Cursor()))
    places = traced.input_ids.numpy()
    origin = np.where(places >= vocabulary.size, places - vocabulary.size, -1)
    ids = np.where(origin >= 0, source.texts.tokens[origin], places)
    clean = traced.with_(input_ids=torch.from_numpy(ids))
    return Batch(source, clean, origin, prepare(clean, run.seed))


def _as_it_is(batch: PackedBatch, seed: int) -> PackedBatch:
    return batch
