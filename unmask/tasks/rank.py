"""How well texts answer a query, the two read together (cross-encoder): features, answers, scores.

Legend: N sequences (a query with a text), C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmask.config import Ranking
from unmask.errors import UnmaskError
from unmask.labelled.records import RankedExample
from unmask.measure import classification
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Objective
from unmask.tasks.outputs import answers
from unmask.tasks.retrieval import Judge, metrics
from unmask.text.aligned import AlignedEncoder
from unmask.text.sequences import Labels, Sequences


@dataclass(frozen=True)
class RankedTexts:
    """A query's texts, the best first, with their raw scores (any number; higher is better) and where each stood before."""

    query: str
    texts: tuple[str, ...]
    scores: tuple[float, ...]
    places: tuple[int, ...]

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The scores by the sigmoid: how likely each text answers, where the model was trained pointwise. In double
        precision, so that high scores do not all become 1."""
        return tuple(map(float, sigmoid(np.array(self.scores))))


def sequences(
    examples: Sequence[RankedExample], encoder: AlignedEncoder, task: Ranking, *, labelled: bool = True
) -> tuple[Sequences, NDArray[np.bool_]]:
    """A query with each of its texts, positives first, as one unit; and which of these pairs were cut.

    A text's value is 1 or 0, or what `scores` say, 0 to 1. Raises UnmaskError for other scores, and for a query that a
    listwise loss can learn nothing from, since no text answers it.
    """
    texts = [(*example.positives, *example.negatives) for example in examples]
    sizes = np.array([len(row) for row in texts])
    if (sizes == 0).any():
        raise UnmaskError("a query has no text to rank", where=str(examples[int(sizes.argmin())].place))
    queries = [example.query for example, size in zip(examples, sizes, strict=True) for _ in range(size)]
    framed = encoder.texts(queries, [text for row in texts for text in row])
    unit_N = np.repeat(np.arange(len(examples)), sizes)
    labels = _labels(examples, task, unit_N) if labelled else {}
    made = Sequences(framed.ids_T, framed.starts, unit_N, unit_N, framed.token_type_ids_T, labels)
    return made, framed.truncated_N


def require_differences(examples: Sequence[RankedExample], source: str) -> None:
    """UnmaskError where every text of every query is worth the same: any order is right then."""
    values = {
        value for e in examples for value in e.scores or (*(1.0 for _ in e.positives), *(0.0 for _ in e.negatives))
    }
    if len(values) < 2:
        raise UnmaskError(
            "no record has a text that does not answer its query: any order is right, and there is nothing to learn",
            where=source,
            do="give negatives, which `unmask mine` finds, or a teacher's scores",
        )


def decode(score_N: NDArray[np.floating], examples: Sequence[RankedExample]) -> list[RankedTexts]:
    """Scores in the order of the sequences to one ranking for each query; equal ones stay in their order."""
    out, begin = [], 0
    for example in examples:
        texts = (*example.positives, *example.negatives)
        own = score_N[begin : begin + len(texts)]
        order = np.argsort(-own, kind="stable").tolist()
        out.append(RankedTexts(example.query, tuple(texts[i] for i in order), tuple(own[order].tolist()), tuple(order)))
        begin += len(texts)
    return out


def score(predictions: Sequence[RankedTexts], examples: Sequence[RankedExample]) -> dict[str, float]:
    """How well each query's texts are ordered, nDCG@10 first, and over all pairs average precision and accuracy.

    A score above 0, a probability above one half, says that the text answers.
    """
    name = "{:09}".format  # of equal scores the later text counts as better, so that a constant model gains nothing
    run = {
        str(row): {name(at): score for at, score in zip(one.places, one.scores, strict=True)}
        for row, one in enumerate(predictions)
    }
    relevant = {str(row): {name(at): 1 for at in range(len(one.positives))} for row, one in enumerate(examples)}
    score_N = np.array([s for one in predictions for s in one.scores])
    truth_N = np.array([at < len(e.positives) for p, e in zip(predictions, examples, strict=True) for at in p.places])
    return {
        **metrics(run, relevant),
        "average_precision": float(classification.average_precision(truth_N[:, None], score_N[:, None])[0]),
        "accuracy": float(((score_N > 0) == truth_N).mean()),
    }


def judge(encoder: Encoder, objective: Objective, texts: AlignedEncoder) -> Judge:
    """A cross-encoder as the second stage of a search; raw scores. Other libraries' have one output, a number."""

    def scores(queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.floating]:
        framed = texts.texts(queries, documents)
        count = np.arange(len(queries))
        pairs = Sequences(framed.ids_T, framed.starts, count, count, framed.token_type_ids_T)
        found = answers(encoder, objective, pairs, "sequence")
        return found["score"] if "score" in found else found["logits"][:, 0]

    return scores


def relevance(logits_NC: NDArray[np.floating], labels: Sequence[str], label: str = "") -> NDArray[np.float64]:
    """[N] how well each text answers, by a classifier: its one output, or the log-odds of a label.

    Of two labels it is the second (class 1), unless `label` names one. Of more it has to be named: which of them won says
    nothing about how well. Raises UnmaskError where it is not named or there is none of that name.
    """
    logits = logits_NC.astype(np.float64)
    if logits.shape[1] == 1:
        return logits[:, 0]
    name = label or (labels[1] if len(labels) == 2 else "")
    if name not in labels:
        raise UnmaskError(
            f"{label!r} is none of its labels" if label else "which of its labels says that a text answers?",
            where=f"the model's labels: {', '.join(labels)}",
            do="name one of them",
        )
    own = labels.index(name)
    others = np.delete(logits, own, axis=1)
    top = others.max(1)
    return logits[:, own] - top - np.log(np.exp(others - top[:, None]).sum(1))


def sigmoid(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """In double precision, which tells 9 from 12."""
    return 1 / (1 + np.exp(-np.clip(scores.astype(np.float64), -700, 700)))


def _labels(examples: Sequence[RankedExample], task: Ranking, unit_N: NDArray[np.int64]) -> dict[str, Labels]:
    value_N = np.concatenate([_values(example, task) for example in examples]).astype(np.float32)
    first_N = np.diff(unit_N, prepend=-1) > 0
    starts = np.r_[0, first_N.cumsum()]
    query = Labels(starts, np.zeros(len(examples), np.int64), np.arange(len(examples)))
    return {"rank": Labels.one_each(value_N), "unit": Labels.one_each(unit_N), "query": query}


def _values(example: RankedExample, task: Ranking) -> NDArray[np.float64]:
    plain = [1.0] * len(example.positives) + [0.0] * len(example.negatives)
    values = np.array(plain if example.scores is None else example.scores)
    if not ((values >= 0) & (values <= 1)).all():
        raise UnmaskError(
            "the scores of a query's texts must lie between 0 and 1",
            where=str(example.place),
            do="apply the sigmoid to a teacher's raw scores",
        )
    if task.loss == "listwise" and not values.any():
        raise UnmaskError(
            "no text answers this query, so a listwise loss learns nothing from it",
            where=str(example.place),
            do="leave it out, or set task.loss=pointwise",
        )
    return values
