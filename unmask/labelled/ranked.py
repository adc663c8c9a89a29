"""Queries with texts that answer them and texts that do not, for bi-encoders and cross-encoders."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from unmask.errors import UnmaskError
from unmask.labelled.collection import collection_named, ranked_from_collection, read_collection
from unmask.labelled.columns import check_mapping, find_column, no_column, spoken, text_in, text_value, used, value_of
from unmask.labelled.records import RankedExample, Read
from unmask.labelled.rows import Doubts, Row, Table, read_table

__all__ = ["ranked_from_collection", "read_asked", "read_collection", "read_ranked"]

ROLES = ("query", "positive", "negative")
ASKED = ("query", "texts", "positive", "negative")
TEXTS = ("texts", "documents", "passages", "candidates")
QUERIES = ("query", "anchor", "query_text", "question", "text_a", "text1", "sentence1", "sentence_a", "sentence")
SURE = ("positive", "positives", "pos", "positive_passages", "positive_text")
MATCHES = (*SURE, "passage", "document", "answer", "response", "text_b", "text2", "sentence2", "sentence_b")
NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?(_passages|_text)?(_?\d+)?", re.IGNORECASE)
JUDGED = ("label", "labels", "score", "similarity", "relevance")


def read_ranked(source: str, *, columns: Mapping[str, str] = {}) -> Read[RankedExample]:
    """Every query of a file, or of a BEIR folder (FOLDER/SPLIT), with its positives and negatives.

    JSON: {"query", "pos": […], "neg": […]} with `pos_scores` and `neg_scores` where a teacher scored them (FlagEmbedding),
    or `positive_passages` and `negative_passages` with title and text (Tevatron). Any table: a column for the query (or
    anchor), one for the positive and any number for negatives (negative, negative_1, …), each a text or a list of texts,
    an empty one none; `scores` lists a teacher's scores of all, positives first. `columns` maps query, positive and
    negative to the file's own names. A negative that is also a positive of its query is left out and counted.
    """
    if named := collection_named(source):
        return ranked_from_collection(read_collection(*named))
    table, doubts = read_table(source), Doubts()
    query, positive, negatives = _columns(table, columns)
    scored = [name for name in ("pos_scores", "neg_scores", "scores") if name in table.columns]
    examples = []
    for row in table.rows:
        asked = text_value(row, query)
        good = _texts(value_of(row, positive), positive, row)
        bad = [text for name in negatives for text in _texts(row.values.get(name) or [], name, row)]
        if not good:
            raise UnmaskError(
                f"no text in {positive!r}", where=str(row.place), do="give every query a text that fits it"
            )
        if not all((asked, *good, *bad)):
            doubts.add("empty texts", row.place)
        scores = _scores(row, len(good), len(bad)) if scored else None
        examples.append(_example(row, asked, good, bad, scores, doubts))
    said: dict[str, str | None] = {"query": query, "positive": positive}
    said |= {f"negative {at}": name for at, name in enumerate(negatives, 1)} | {f"teacher's {n}": n for n in scored}
    return Read(examples, (*table.understood, *used(table, said)), (*table.warnings, *doubts.warnings))


def read_asked(source: str, *, columns: Mapping[str, str] = {}) -> Read[RankedExample]:
    """Every query of a file with texts to be ranked, all of them as `negatives`, since nothing is known of them.

    {"query", "texts": […]} (or documents, passages, candidates), or records as `read_ranked` takes them, also without a
    positive: those first, then negatives. `columns` may map query, texts, positive and negative.
    """
    table, doubts = read_table(source), Doubts()
    check_mapping(table, columns, ASKED)
    query = find_column(table, "query", QUERIES, columns)
    if query is None:
        raise no_column(table, "none of the columns is known to hold the query", "query")
    listed = find_column(table, "texts", TEXTS, columns)
    positive = find_column(table, "positive", [name for name in MATCHES if name != query], columns)
    others = [columns["negative"]] if "negative" in columns else list(filter(NEGATIVE.fullmatch, table.columns))
    texts = [listed] if listed else [name for name in (positive, *others) if name is not None]
    if not texts:
        raise no_column(table, "none of the columns is known to hold the texts to rank", "texts")
    examples = []
    for row in table.rows:
        asked = text_value(row, query)
        cells = [(name, row.values.get(name)) for name in texts]
        given = [(name, cell) for name, cell in cells if cell is not None and (cell != "" or name not in others)]
        found = [text for name, cell in given for text in _texts(cell, name, row)]
        if not found:
            raise UnmaskError("no text to rank", where=str(row.place), do="give the query a text or more")
        if not all((asked, *found)):
            doubts.add("empty texts", row.place)
        examples.append(RankedExample(asked, (), tuple(found), row.place))
    said: dict[str, str | None] = {"query": query}
    said |= {f"texts {at}": name for at, name in enumerate(texts, 1)}
    return Read(examples, (*table.understood, *used(table, said)), (*table.warnings, *doubts.warnings))


def _columns(table: Table, columns: Mapping[str, str]) -> tuple[str, str, list[str]]:
    check_mapping(table, columns, ROLES)
    if "positive_document_ids" in table.columns:
        do = "put corpus, queries and judgements into a BEIR folder and name that"
        raise UnmaskError("the records name documents by ids, whose texts are elsewhere", where=table.name, do=do)
    query = find_column(table, "query", QUERIES, columns)
    positive = find_column(table, "positive", [name for name in MATCHES if name != query], columns)
    if query is None or positive is None:
        role = "query" if query is None else "positive"
        raise no_column(table, f"none of the columns is known to hold the {role}", role)
    if "negative" in columns:
        return query, positive, [columns["negative"]]
    judged = find_column(table, "", JUDGED, {})
    if judged is not None and "positive" not in columns and positive.casefold() not in SURE:
        do = "keep the pairs that belong together and leave the column out, or learn labels or numbers of pairs instead"
        what = f"column {judged!r} says how well {query!r} and {positive!r} fit, but here every pair must fit"
        raise UnmaskError(what, where=table.name, do=do)
    taken = {query, positive}
    return query, positive, [name for name in table.columns if name not in taken and NEGATIVE.fullmatch(name)]


def _texts(value: Any, column: str, row: Row) -> list[str]:
    """The texts of a cell: one, a list, or passages with a title."""
    found = []
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            title = one.get("title") or ""
            one = f"{text_in(title, 'title', row)} {text_in(one.get('text'), column, row)}".strip()
        found.append(text_in(one, column, row))
    return found


def _scores(row: Row, good: int, bad: int) -> tuple[float, ...] | None:
    """A teacher's scores of positives and negatives; None where this record has none."""
    values = row.values
    parts = [(values.get("pos_scores"), good, "pos_scores"), (values.get("neg_scores"), bad, "neg_scores")]
    if values.get("scores") is not None:
        parts = [(values["scores"], good + bad, "scores")]
    if all(given is None for given, _, _ in parts):
        return None
    scores: list[float] = []
    for given, count, name in parts:
        given = [] if given is None else given
        if not isinstance(given, list) or len(given) != count:
            what = (
                f"{name!r} is {f'{len(given)} scores' if isinstance(given, list) else spoken(given)} for {count} texts"
            )
            raise UnmaskError(what, where=str(row.place), do="give a score for each text, in the same order")
        for score in given:
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise UnmaskError(
                    f"{score!r} in {name!r} is no finite number", where=str(row.place), do="give a number"
                )
            scores.append(float(score))
    return tuple(scores)


def _example(
    row: Row, query: str, good: list[str], bad: list[str], scores: tuple[float, ...] | None, doubts: Doubts
) -> RankedExample:
    """Without the negatives that are positives, and their scores."""
    kept = [at for at, text in enumerate(bad) if text not in good]
    if len(kept) < len(bad):
        doubts.add("records with negatives left out that are also positives", row.place)
    if scores is not None:
        scores = (*scores[: len(good)], *(scores[len(good) + at] for at in kept))
    return RankedExample(query, tuple(good), tuple(bad[at] for at in kept), row.place, scores)
