"""Searching a collection in two stages, as search engines do: recall by words or vectors, then a closer look at the best.

Legend: Q queries, N documents, D numbers of a vector, K hits of a query, P postings (a word in a document).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.inference.loaded import Loaded
from unmask.labelled.records import Collection
from unmask.measure import ranking
from unmask.progress import Progress, quiet
from unmask.text.words import HANZI, character_classes

Vectors = NDArray[np.float32]
Role = Literal["query", "document"]
Embed = Callable[[Sequence[str], Role], Vectors]  # to unit length; the two sides may have prompts of their own
Judge = Callable[[Sequence[str], Sequence[str]], NDArray[np.floating]]  # queries, and a text for each, to scores

METRICS = ("ndcg@10", "mrr@10", "hit@1", "recall@10", "recall@100", "map")
K1, B = 0.9, 0.4  # Anserini's, which BEIR's BM25 figures were made with (Thakur et al. 2021)
SCORES_AT_ONCE = 1 << 24  # of queries times documents, 64 MiB
QUERIES_AT_ONCE = 16  # of the second stage, between two signs of life


class Hits(NamedTuple):
    """The documents found for one query, by number, the best first; of equal ones the first."""

    document_K: NDArray[np.int64]
    score_K: NDArray[np.floating]


def evaluate(
    collection: Collection,
    *,
    embed: Embed | None = None,
    judge: Judge | None = None,
    depth: int = 100,
    progress: Progress = quiet,
) -> dict[str, dict[str, float]]:
    """METRICS of BM25 and, as far as they are given, of vectors, and of each with its `depth` best hits reranked.

    Keys are bm25, bi-encoder, bm25+rerank, bi-encoder+rerank. Queries about which nothing is known are left out.
    """
    asked = [id for id in collection.queries if any(grade > 0 for grade in collection.relevant.get(id, {}).values())]
    queries, texts = [collection.queries[id] for id in asked], list(collection.documents.values())
    found = {"bm25": Bm25(texts, progress=progress).search(queries, depth, progress=progress)}
    if embed is not None:
        found["bi-encoder"] = search(embed(queries, "query"), embed(texts, "document"), depth, progress=progress)
    if judge is not None:
        for name, hits in list(found.items()):
            found[f"{name}+rerank"] = rerank(hits, queries, texts, judge, progress=progress)
    return {name: score(collection, asked, hits) for name, hits in found.items()}


def score(collection: Collection, asked: Sequence[str], hits: Sequence[Hits]) -> dict[str, float]:
    """The METRICS of what was found for the queries `asked`, by id."""
    names = list(collection.documents)
    run = {
        id: {names[at]: float(s) for at, s in zip(one.document_K, one.score_K, strict=True)}
        for id, one in zip(asked, hits, strict=True)
    }
    return metrics(run, {id: collection.relevant[id] for id in asked})


def metrics(run: Mapping[str, Mapping[str, float]], relevant: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """The METRICS of scores {query: {document: score}}, nDCG@10 first."""
    found = ranking.ranking_scores(ranking.ranked(run, relevant), at=(1, 10, 100))
    return {name: found[name] for name in METRICS}


def folder_embedder(model: Loaded, *, progress: Progress = quiet) -> Embed:
    """A model folder as the first stage, with the prompt it has for each role (sentence-transformers calls a document's
    document, passage or corpus), or else its default one."""

    def embed(texts: Sequence[str], role: Role) -> Vectors:
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        prompt = next((model.prompts[name] for name in names if name in model.prompts), None)
        return model.encode(texts, normalize=True, prompt=prompt, progress=progress)

    return embed


def search(queries_QD: Vectors, documents_ND: Vectors, depth: int, *, progress: Progress = quiet) -> list[Hits]:
    """The `depth` documents with the largest inner product for each query: exact, in chunks that fit in memory."""
    size = max(1, SCORES_AT_ONCE // max(1, len(documents_ND)))
    found: list[Hits] = []
    if len(queries_QD):
        progress("searching, queries", 0, len(queries_QD))
    for first in range(0, len(queries_QD), size):
        found += [best(score_N, depth) for score_N in queries_QD[first : first + size] @ documents_ND.T]
        progress("searching, queries", len(found), len(queries_QD))
    return found


def rerank(
    hits: Sequence[Hits], queries: Sequence[str], texts: Sequence[str], judge: Judge, *, progress: Progress = quiet
) -> list[Hits]:
    """The same hits in the order in which a cross-encoder puts them; equal ones stay as they were."""
    out: list[Hits] = []
    if hits:
        progress("reranking, queries", 0, len(hits))
    for first in range(0, len(hits), QUERIES_AT_ONCE):
        some = hits[first : first + QUERIES_AT_ONCE]
        asking = [queries[first + row] for row, one in enumerate(some) for _ in one.document_K]
        scores = judge(asking, [texts[at] for one in some for at in one.document_K])
        ends = np.cumsum([len(one.document_K) for one in some])
        for one, score_K in zip(some, np.split(scores, ends[:-1]), strict=True):
            order = np.argsort(-score_K, kind="stable")
            out.append(Hits(one.document_K[order], score_K[order]))
        progress("reranking, queries", len(out), len(hits))
    return out


def best(score_N: NDArray[np.floating], depth: int) -> Hits:
    """The `depth` largest, the largest first; of equal ones the first."""
    where = np.arange(len(score_N))
    if len(score_N) > depth:
        where = np.flatnonzero(score_N >= np.partition(score_N, -depth)[-depth])
    order = where[np.argsort(-score_N[where], kind="stable")][:depth]
    return Hits(order, score_N[order])


class Bm25:
    """Search by words (Robertson and Zaragoza 2009), with the inverse document frequency and constants that Lucene has.

    A document's score is the sum over the query's words of

        ln(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + k1 * (1 - b + b * length / mean length))

    where n of N documents have the word and f is how often this one has it.
    """

    def __init__(self, texts: Sequence[str], *, k1: float = K1, b: float = B, progress: Progress = quiet):
        self.words: dict[str, int] = {}
        self.documents = len(texts)
        words, documents, times = [], [], []
        if texts:
            progress("indexing, documents", 0, len(texts))
        for at, text in enumerate(texts):
            for word, count in Counter(split(text)).items():
                words.append(self.words.setdefault(word, len(self.words)))
                documents.append(at)
                times.append(count)
            if at % 256 == 255 or at + 1 == len(texts):
                progress("indexing, documents", at + 1, len(texts))
        word_P, document_P, times_P = np.array(words, int), np.array(documents, int), np.array(times, float)
        self._order(word_P, document_P, self._weights(word_P, document_P, times_P, k1, b))

    def _weights(
        self,
        word_P: NDArray[np.int64],
        document_P: NDArray[np.int64],
        times_P: NDArray[np.float64],
        k1: float,
        b: float,
    ) -> NDArray[np.float64]:
        length_N = np.bincount(document_P, times_P, self.documents)
        mean = length_N.mean() if length_N.any() else 1.0
        having = np.bincount(word_P, minlength=len(self.words))
        rarity = np.log1p((self.documents - having + 0.5) / (having + 0.5))
        return rarity[word_P] * times_P / (times_P + k1 * (1 - b + b * length_N[document_P] / mean))

    def _order(self, word_P: NDArray[np.int64], document_P: NDArray[np.int64], weight_P: NDArray[np.float64]) -> None:
        order = np.argsort(word_P, kind="stable")
        self.document_P, self.weight_P = document_P[order], weight_P[order]
        self.starts = np.searchsorted(word_P[order], np.arange(len(self.words) + 1))

    def scores(self, query: str) -> NDArray[np.float64]:
        """[N]; 0 for a document without any of the words."""
        score_N = np.zeros(self.documents)
        for word, count in Counter(split(query)).items():
            if (at := self.words.get(word)) is not None:
                postings = slice(self.starts[at], self.starts[at + 1])
                score_N[self.document_P[postings]] += count * self.weight_P[postings]
        return score_N

    def search(self, queries: Sequence[str], depth: int, *, progress: Progress = quiet) -> list[Hits]:
        """The `depth` best documents of each query, or fewer: those without any of its words are not found."""
        found: list[Hits] = []
        if queries:
            progress("searching words, queries", 0, len(queries))
        for query in queries:
            document_K, score_K = best(self.scores(query), depth)
            found.append(Hits(document_K[score_K > 0], score_K[score_K > 0]))
            if len(found) % 64 == 0 or len(found) == len(queries):
                progress("searching words, queries", len(found), len(queries))
        return found


def split(text: str) -> list[str]:
    """Words in lower case without marks; Chinese characters by twos, each with the next, which needs no dictionary."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return [word for piece, kind in _runs(text) for word in (_twos(piece) if kind == HANZI else [piece])]


def _runs(text: str) -> Iterator[tuple[str, int]]:
    """The longest pieces of Chinese characters alone, or of other letters and digits."""
    kinds_C = character_classes(text)
    borders = np.flatnonzero(np.diff(kinds_C, prepend=255, append=255)).tolist()
    for begin, end in zip(borders, borders[1:], strict=False):
        if kinds_C[begin] in (0, HANZI):
            yield text[begin:end], int(kinds_C[begin])


def _twos(piece: str) -> list[str]:
    return [piece[at : at + 2] for at in range(max(1, len(piece) - 1))]
