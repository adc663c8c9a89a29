"""How good is a search? nDCG, MRR, recall, precision, MAP and hit rate, with the definitions and the ties of trec_eval.

A document is relevant where its judgement is above 0; what nobody judged is not. Documents stand in falling order of score,
compared in float32 as trec_eval does; of equal scores the greater document id comes first. The mean is over every query with
judgements, as with trec_eval's option -c: one that the run lacks, or that has no relevant document, scores 0. Queries
without any judgement are left out. All three are counted.

Legend: Q queries, K ranks, R relevant documents, D documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.errors import UnmaskError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """Rankings with their judgements. `found_QK`: how relevant the document at each rank is; `ideal_QR`: how relevant the
    relevant documents are, best first; 0 behind the last of either. The counts tell of queries that score 0 or nothing."""

    queries: tuple[str, ...]
    found_QK: Floats
    ideal_QR: Floats
    missing: int = 0  # judged, but not in the run: scores 0
    unjudged: int = 0  # in the run, without judgements: left out
    without_relevant: int = 0  # judged, but no document is relevant: scores 0


def ranked(run: Mapping[str, Mapping[str, float]], relevant: Mapping[str, Mapping[str, int]]) -> Ranked:
    """A run {query: {document: score}} put in order, beside the judgements {query: {document: relevance}}.

    Raises UnmaskError where no query has judgements, or a score is nan.
    """
    judged = {query: judgements for query, judgements in relevant.items() if judgements}
    if not judged:
        raise UnmaskError("no query has relevance judgements", do="check that the qrels belong to these queries")
    found = [
        [max(0, judgements.get(document, 0)) for document in _in_order(query, run.get(query, {}))]
        for query, judgements in judged.items()
    ]
    ideal = [sorted((r for r in judgements.values() if r > 0), reverse=True) for judgements in judged.values()]
    return Ranked(
        tuple(judged),
        _padded(found),
        _padded(ideal),
        missing=len(judged.keys() - run.keys()),
        unjudged=len(run.keys() - judged.keys()),
        without_relevant=sum(not row for row in ideal),
    )


def ranked_arrays(scores_QD: ArrayLike, relevance_QD: ArrayLike) -> Ranked:
    """Rankings of one list of documents for every query; of equal scores the later column comes first."""
    scores, relevance = np.asarray(scores_QD, np.float32), np.maximum(np.asarray(relevance_QD, np.float64), 0)
    assert scores.shape == relevance.shape and not np.isnan(scores).any()
    order = np.argsort(scores, axis=1, kind="stable")[:, ::-1]
    return Ranked(
        tuple(map(str, range(len(scores)))),
        np.take_along_axis(relevance, order, 1),
        np.sort(relevance, axis=1)[:, ::-1],
        without_relevant=int((~(relevance > 0).any(1)).sum()),
    )


def ranking_scores(rankings: Ranked, at: Iterable[int] = (1, 5, 10, 100)) -> dict[str, float]:
    """The means over the queries: ndcg@k, mrr@k, recall@k, precision@k and hit@k for each k, and map over whole rankings."""
    measures = {"ndcg": ndcg, "mrr": reciprocal_rank, "recall": recall, "precision": precision, "hit": hit}
    cutoffs = list(at)
    values = {f"{name}@{k}": measure(rankings, k) for name, measure in measures.items() for k in cutoffs}
    return {name: float(value_Q.mean()) for name, value_Q in (values | {"map": average_precision(rankings)}).items()}


def ndcg(rankings: Ranked, k: int) -> Floats:
    """Normalised discounted cumulative gain [Q]: sum of relevance / log2(rank + 1) down to rank k, over that of the best
    possible ranking (Järvelin and Kekäläinen 2002; gains linear as in trec_eval's ndcg_cut)."""
    return _share(_discounted(rankings.found_QK[:, :k]), _discounted(rankings.ideal_QR[:, :k]))


def reciprocal_rank(rankings: Ranked, k: int) -> Floats:
    """1 / rank of the first relevant document, 0 where none is among the first k [Q] (Voorhees 1999; its mean is MRR)."""
    relevant = rankings.found_QK[:, :k] > 0
    if not relevant.shape[1]:
        return np.zeros(len(relevant))
    return relevant.any(1) / (relevant.argmax(1) + 1.0)


def recall(rankings: Ranked, k: int) -> Floats:
    """The share of the relevant documents that are among the first k [Q]."""
    return _share(_hits(rankings, k), _num_relevant(rankings))


def precision(rankings: Ranked, k: int) -> Floats:
    """The share of the first k places that hold a relevant document [Q]; places a short ranking lacks hold none."""
    return _hits(rankings, k) / k


def hit(rankings: Ranked, k: int) -> Floats:
    """1 where any relevant document is among the first k [Q] (trec_eval's success)."""
    return np.asarray(_hits(rankings, k) > 0, np.float64)


def average_precision(rankings: Ranked) -> Floats:
    """The mean over all relevant documents of the precision at their rank, 0 for those not found [Q]; its mean is MAP."""
    relevant = rankings.found_QK > 0
    precision_QK = np.cumsum(relevant, 1) / np.arange(1, relevant.shape[1] + 1)
    return _share((precision_QK * relevant).sum(1), _num_relevant(rankings))


def _in_order(query: str, documents: Mapping[str, float]) -> list[str]:
    with np.errstate(over="ignore"):
        scores = np.fromiter(documents.values(), np.float64).astype(np.float32)
    if np.isnan(scores).any():
        document = list(documents)[int(np.isnan(scores).argmax())]
        raise UnmaskError("a score is not a number", where=f"query {query}, document {document}")
    return [document for _, document in sorted(zip(scores.tolist(), documents, strict=True), reverse=True)]


def _padded(rows: list[list[int]]) -> Floats:
    out = np.zeros((len(rows), max(map(len, rows))))
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return out


def _discounted(relevance_QK: Floats) -> Floats:
    return relevance_QK @ (1 / np.log2(np.arange(2, relevance_QK.shape[1] + 2)))


def _hits(rankings: Ranked, k: int) -> Floats:
    return (rankings.found_QK[:, :k] > 0).sum(1, dtype=np.float64)


def _num_relevant(rankings: Ranked) -> Floats:
    return (rankings.ideal_QR > 0).sum(1, dtype=np.float64)


def _share(part_Q: Floats, whole_Q: Floats) -> Floats:
    return np.divide(part_Q, whole_Q, out=np.zeros(len(part_Q)), where=whole_Q != 0)
