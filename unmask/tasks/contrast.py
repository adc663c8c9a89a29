"""Texts to vectors (bi-encoder): features, vectors, scores, and hard negatives found with the vectors themselves.

Legend: N sequences, Q queries, C documents, P pairs, D numbers of a vector.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config import Contrast
from unmask.errors import UnmaskError
from unmask.hub.sentence_layout import SentenceLayout
from unmask.labelled.records import Collection, Place, RankedExample
from unmask.labelled.texts import LARGEST
from unmask.measure import correlation
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Objective
from unmask.objectives.contrast import MODES
from unmask.progress import Progress, quiet
from unmask.tasks import retrieval
from unmask.tasks.outputs import answers
from unmask.tasks.retrieval import Embed, Hits, Role, Vectors
from unmask.text.aligned import AlignedEncoder
from unmask.text.duplicates import fingerprint
from unmask.text.sequences import Labels, Sequences

QUERY, POSITIVE, NEGATIVE = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Mining:
    """How hard negatives are chosen among what a search finds for a query.

    Of the first `depth` hits, the first `skip` are left out, which may answer the query although nobody said so, and
    those whose cosine is not at least `margin` below that of every text known to answer it (Moreira et al. 2024 compare
    such rules). At most `count` are kept, hardest first.
    """

    count: int = 4
    skip: int = 0
    depth: int = 100
    margin: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.skip < self.depth:
            raise ValueError("count must be above 0, and skip not below 0 and below depth")


@dataclass(frozen=True)
class _Row:
    """One sequence before it is one."""

    example: int
    unit: int
    role: int
    text: str
    score: float = 0.0


def sequences(
    examples: Sequence[RankedExample], encoder: AlignedEncoder, task: Contrast
) -> tuple[Sequences, NDArray[np.bool_]]:
    """For each answer of a query one unit: the query, the answer, the query's negatives; and which texts were cut.

    A record without answers is its own: the text a second time, which dropout makes another vector of (SimCSE, Gao et
    al. 2021). What answers an equal query of another record is known to answer this one too, and a negative among it is left
    out; texts are equal that differ in white space and case only. Raises UnmaskError where only some records have scores.
    """
    known = known_answers(examples)
    _require_scores(examples)
    rows = _rows(examples, known)
    prompts = {QUERY: task.query_prompt, POSITIVE: task.document_prompt, NEGATIVE: task.document_prompt}
    twins = [not example.positives for example in examples]
    framed = encoder.texts([prompts[QUERY if twins[row.example] else row.role] + row.text for row in rows])
    role_N = np.array([row.role for row in rows])
    unit_N = np.array([row.unit for row in rows])
    labels = {
        "query": _labels(role_N == QUERY, unit_N),
        "document": _labels(role_N != QUERY, unit_N),
        "positive": _labels(role_N != QUERY, (role_N == POSITIVE).astype(np.int64)),
        "text": Labels.one_each(np.array([number(row.text) for row in rows], np.int64)),
        "known": _known_labels(rows, known),
    }
    if examples and examples[0].scores is not None:
        labels["teacher"] = _labels(role_N != QUERY, np.array([row.score for row in rows], np.float32))
    example_N = np.array([row.example for row in rows])
    made = Sequences(framed.ids_T, framed.starts, example_N, unit_N, framed.token_type_ids_T, labels)
    return made, framed.truncated_N


def require_others(examples: Sequence[RankedExample]) -> None:
    """UnmaskError where no query has a text that does not answer it: there is nothing to tell apart then."""
    known = known_answers(examples)
    texts = {number(text) for e in examples for text in (*(e.positives or (e.query,)), *e.negatives)}
    if all(texts <= set(answers_) for answers_ in known.values()):
        raise UnmaskError(
            "every text answers every query, so there is nothing to tell apart: a batch needs two different pairs at least",
            where=examples[0].place.file,
            do="give more pairs, or negatives",
        )


def number(text: str) -> int:
    """Equal for texts that differ in white space and case only; else different but for one pair of texts in 2^64."""
    return int.from_bytes(fingerprint(text)[:8], "little", signed=True)


def known_answers(examples: Sequence[RankedExample]) -> dict[int, list[int]]:
    """The texts known to answer each query, over all records, by `number`; a query without any is its own."""
    found: dict[int, dict[int, None]] = defaultdict(dict)
    for example in examples:
        found[number(example.query)] |= dict.fromkeys(map(number, example.positives or (example.query,)))
    return {query: list(answers) for query, answers in found.items()}


def score(vectors_ND: Vectors, made: Sequences, examples: Sequence[RankedExample]) -> dict[str, float]:
    """`retrieval.METRICS` of each query among all documents of the records, from a vector for each of their sequences."""
    collection, (query_N, document_N) = collection_of(examples), _places(made)
    queries = vectors_ND[[query_N[number(text)] for text in collection.queries.values()]]
    documents = vectors_ND[[document_N[number(text)] for text in collection.documents.values()]]
    hits = retrieval.search(queries, documents, 100)
    return retrieval.score(collection, list(collection.queries), hits)


def similarity(left_PD: Vectors, right_PD: Vectors, truth_P: Sequence[float]) -> dict[str, float]:
    """How well the cosines of pairs follow how alike people found them: Spearman's correlation first, and Pearson's."""
    cosine_P = (_unit(left_PD) * _unit(right_PD)).sum(1)
    return {"spearman": correlation.spearman(truth_P, cosine_P), "pearson": correlation.pearson(truth_P, cosine_P)}


def embedder(
    encoder: Encoder, objective: Objective, texts: AlignedEncoder, task: Contrast, *, progress: Progress = quiet
) -> Embed:
    """A model as the first stage of a search: unit vectors of texts, with the prompt of their role."""

    def embed(given: Sequence[str], role: Role) -> Vectors:
        prompt = task.query_prompt if role == "query" else task.document_prompt
        framed = texts.texts([prompt + text for text in given])
        count = np.arange(len(given))
        made = Sequences(framed.ids_T, framed.starts, count, count, framed.token_type_ids_T)
        return answers(encoder, objective, made, "sequence", progress=progress)["vectors"]

    return embed


def layout_of(task: Contrast, folder: Path, max_length: int, *, lowercase: bool = False) -> SentenceLayout:
    """What `write_sentence_layout` says of a model trained for this: sentence-transformers makes the same vectors then."""
    prompts = {"query": task.query_prompt, "document": task.document_prompt}
    return SentenceLayout(
        folder, (MODES[task.pooling],), normalize=True, max_length=max_length, lowercase=lowercase, prompts=prompts
    )


def collection_of(examples: Sequence[RankedExample]) -> Collection:
    """The records as one collection: each different query and document once, under numbers of its own, with what answers
    what. Records without answers are left out."""
    documents: dict[int, str] = {}
    queries: dict[int, str] = {}
    for example in examples:
        if example.positives:
            queries.setdefault(number(example.query), example.query)
        for text in (*example.positives, *example.negatives):
            documents.setdefault(number(text), text)
    names = {key: f"d{at}" for at, key in enumerate(documents)}
    known = known_answers([example for example in examples if example.positives])
    return Collection(
        dict(zip(names.values(), documents.values(), strict=True)),
        {f"q{at}": text for at, text in enumerate(queries.values())},
        {f"q{at}": {names[key]: 1 for key in known[query]} for at, query in enumerate(queries)},
    )


def with_documents(collection: Collection, documents: Iterable[str]) -> Collection:
    """The collection with more documents: those that it does not have yet, each different text once, and no empty one."""
    there = set(map(number, collection.documents.values()))
    more = {key: text for text in documents if text and (key := number(text)) not in there}
    named = {f"more {at}": text for at, text in enumerate(more.values())}
    return replace(collection, documents=named | collection.documents)


def mine(
    collection: Collection, embed: Embed, mining: Mining = Mining(), *, progress: Progress = quiet
) -> list[RankedExample]:
    """Training records of a collection, one for each query with answers, with hard negatives that the vectors find.

    Never taken: a document known to answer the query, or one of equal words, by its id or by its text, which other
    documents may have too; the query's own text; a text twice.
    """
    asked = [id for id in collection.queries if _answers(collection, id)]
    texts = list(collection.documents.values())
    queries_QD = embed([collection.queries[id] for id in asked], "query")
    documents_CD = embed(texts, "document")
    hits = retrieval.search(queries_QD, documents_CD, mining.depth, progress=progress)
    place = {id: at for at, id in enumerate(collection.documents)}
    answering = defaultdict[int, set[int]](set)
    for id in asked:
        answering[number(collection.queries[id])] |= {place[name] for name in _answers(collection, id)}
    records = []
    for row, id in enumerate(asked):
        positives = [place[name] for name in _answers(collection, id)]
        query = number(collection.queries[id])
        right = sorted(answering[query])
        lowest = float((documents_CD[right] @ queries_QD[row]).min())
        known = {query, *(number(texts[at]) for at in right)}
        negatives = _hardest(hits[row], texts, known, lowest - mining.margin, mining)
        answers_ = tuple(texts[at] for at in positives)
        records.append(RankedExample(collection.queries[id], answers_, negatives, Place("mined", 0, row + 1)))
    return records


def _hardest(hits: Hits, texts: Sequence[str], known: set[int], limit: float, mining: Mining) -> tuple[str, ...]:
    chosen: dict[int, str] = {}
    for at, cosine in zip(hits.document_K[mining.skip :], hits.score_K[mining.skip :], strict=True):
        key = number(texts[at])
        if key not in known and cosine <= limit:
            chosen.setdefault(key, texts[at])
        if len(chosen) == mining.count:
            break
    return tuple(chosen.values())


def _answers(collection: Collection, query: str) -> list[str]:
    grades = collection.relevant.get(query, {})
    return [name for name, grade in grades.items() if grade > 0 and name in collection.documents]


def _rows(examples: Sequence[RankedExample], known: Mapping[int, Sequence[int]]) -> list[_Row]:
    rows: list[_Row] = []
    unit = 0
    for at, example in enumerate(examples):
        answers_ = known[number(example.query)]
        texts = (*(example.positives or (example.query,)), *example.negatives)
        scored = list(zip(texts, example.scores or [0.0] * len(texts), strict=True))
        count = len(texts) - len(example.negatives)
        negatives = [(text, score) for text, score in scored[count:] if number(text) not in answers_]
        for text, score in scored[:count]:
            rows.append(_Row(at, unit, QUERY, example.query))
            rows.append(_Row(at, unit, POSITIVE, text, score))
            rows += [_Row(at, unit, NEGATIVE, *negative) for negative in negatives]
            unit += 1
    return rows


def _require_scores(examples: Sequence[RankedExample]) -> None:
    odd = next((e for e in examples if (e.scores is None) != (examples[0].scores is None)), None)
    if odd is not None:
        raise UnmaskError(
            "some records have a teacher's scores and some have none",
            where=str(odd.place),
            do="give all records scores, or none",
        )
    far = next((e for e in examples if any(abs(score) > LARGEST for score in e.scores or ())), None)
    if far is not None:
        raise UnmaskError(
            f"a teacher's score is beyond {LARGEST:.0e}", where=str(far.place), do="divide the scores of all records"
        )


def _labels(chosen_N: NDArray[np.bool_], value_N: NDArray[Any]) -> Labels:
    """One label at the first token of some of the sequences."""
    starts = np.r_[0, chosen_N.cumsum()]
    return Labels(starts, np.zeros(starts[-1], np.int64), value_N[chosen_N])


def _known_labels(rows: Sequence[_Row], known: Mapping[int, Sequence[int]]) -> Labels:
    listed = [known[number(row.text)] if row.role == QUERY else [] for row in rows]
    starts = np.cumsum([0, *map(len, listed)])
    return Labels(starts, np.zeros(starts[-1], np.int64), np.array(list(chain.from_iterable(listed)), np.int64))


def _places(made: Sequences) -> tuple[dict[int, int], dict[int, int]]:
    """The first sequence of each query and of each document, by the number of its text."""
    numbers = made.labels["text"].value_M.tolist()
    is_query = np.diff(made.labels["query"].starts) > 0
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for at, key in enumerate(numbers):
        found[not is_query[at]].setdefault(key, at)
    return found


def _unit(vectors_PD: Vectors) -> NDArray[np.float64]:
    wide = vectors_PD.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
