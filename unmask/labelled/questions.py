"""Questions about contexts, from SQuAD's nested JSON or flat records; every answer stands where it is said to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from unmask.errors import UnmaskError
from unmask.labelled.columns import check_mapping, find_column, no_column, spoken, text_in, text_value, used, value_of
from unmask.labelled.records import Answer, Place, QuestionExample, Read
from unmask.labelled.rows import Doubts, Row, Table, read_table

ROLES = ("id", "question", "context", "answers", "title")
USUAL: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "_id", "qid", "question_id", "query_id"),
    "question": ("question", "query", "question_text"),
    "context": ("context", "passage", "paragraph", "document", "text"),
    "answers": ("answers", "answer"),
    "title": ("title",),
}
IMPOSSIBLE = "is_impossible"
DO_OFFSET = (
    "an answer's start counts characters (code points, not bytes) of its context from 0, and its text stands there"
)


class _Asked(NamedTuple):
    """A question as the file has it, before its answers are looked at."""

    place: Place
    id: str
    title: str
    question: str
    context: str
    answers: Any
    impossible: bool


def read_questions(
    source: str, *, columns: Mapping[str, str] = {}, drop_wrong: bool = False, asked: bool = False
) -> Read[QuestionExample]:
    """Every question of a file, with answers whose text is the context's own from their `start`.

    SQuAD 1 and 2 as they are published, or one question a record with `answers` as [{"text", "start" or "answer_start"}]
    or {"text": […], "answer_start": […]}; no answers: the context has none. `columns` maps id, question, context, answers
    and title to the file's own names. An answer that is elsewhere, and once only, is moved and counted; any other wrong one
    is an error, or with `drop_wrong` left out, counted, and its question with it where no answer is left. Two questions
    with the same id are an error. `asked`: answers are not looked at.
    """
    table, doubts = read_table(source), Doubts()
    said: tuple[str, ...]
    if "data" in table.columns or "paragraphs" in table.columns:
        questions, said = _nested(table, asked), ("the form of SQuAD: articles, paragraphs, questions",)
    else:
        questions, said = _flat(table, columns, asked)
    examples, seen, contexts = [], dict[str, Place](), dict[str, str]()
    for one in questions:
        if one.id in seen:
            what = f"two questions have the id {one.id!r}, the first at {seen[one.id]}"
            raise UnmaskError(what, where=str(one.place), do="give every question an id of its own")
        seen[one.id] = one.place
        answers = None if asked else _checked(one, drop_wrong, doubts)
        if answers is None and not asked:
            continue
        context = contexts.setdefault(
            one.context, one.context
        )  # many questions share one, and one copy of it is enough
        examples.append(QuestionExample(one.id, one.question, context, answers, one.place, one.title))
    if not examples:
        raise UnmaskError("there is no question in it", where=source, do="give at least one")
    return Read(examples, (*table.understood, *said), (*table.warnings, *doubts.warnings))


def _flat(table: Table, columns: Mapping[str, str], asked: bool) -> tuple[Iterator[_Asked], tuple[str, ...]]:
    check_mapping(table, columns, ROLES)
    found = {role: find_column(table, role, usual, columns) for role, usual in USUAL.items()}
    if asked:
        found["answers"] = None
    for role in ("question", "context") if asked else ("question", "context", "answers"):
        if found[role] is None:
            raise no_column(table, f"none of the columns is known to hold the {role}", role)
    said = used(table, found)
    if found["id"] is None:
        said = (*said, "the id is the number of the record")
    return (_from_row(row, found) for row in table.rows), said


def _from_row(row: Row, columns: Mapping[str, str | None]) -> _Asked:
    question, context, number, answers, title = (columns[r] for r in ("question", "context", "id", "answers", "title"))
    assert question is not None and context is not None
    return _Asked(
        row.place,
        str(row.place.record) if number is None else _id(value_of(row, number), row.place),
        str(row.values.get(title) or "") if title else "",
        text_value(row, question),
        text_value(row, context),
        None if answers is None else value_of(row, answers),
        row.values.get(IMPOSSIBLE) is True,
    )


def _nested(table: Table, asked: bool) -> Iterator[_Asked]:
    """The questions of articles; a record is a question, counted through the file."""
    record = 0
    for row in table.rows:
        for article in _objects(row.values, "data", row) if "data" in row.values else [row.values]:
            title = str(article.get("title") or "")
            for paragraph in _objects(article, "paragraphs", row._replace(place=row.place._replace(record=record + 1))):
                for qa in _objects(paragraph, "qas", row._replace(place=row.place._replace(record=record + 1))):
                    record += 1
                    at = Row(row.place._replace(record=record), qa)
                    answers = None if asked else qa.get("answers")
                    question, context = text_value(at, "question"), text_in(paragraph.get("context"), "context", at)
                    number = _id(value_of(at, "id"), at.place)
                    yield _Asked(at.place, number, title, question, context, answers, qa.get(IMPOSSIBLE) is True)


def _objects(values: Mapping[str, Any], key: str, row: Row) -> list[dict[str, Any]]:
    """A list of objects inside another, as SQuAD nests them."""
    found = values.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        what = f"{key!r} is {'missing' if key not in values else 'not a list of objects'}"
        raise UnmaskError(
            what, where=str(row.place), do="nest data > paragraphs > qas as SQuAD does, or write flat records"
        )
    return found


def _id(value: object, place: Place) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise UnmaskError(f"the id is {spoken(value)}", where=str(place), do="give a string or a whole number")
    return str(value)


def _checked(one: _Asked, drop_wrong: bool, doubts: Doubts) -> tuple[Answer, ...] | None:
    """The answers, each where its text is; None where all that were given are wrong and to be dropped."""
    given = list(_pairs(one))
    if given and one.impossible:
        what = f"question {one.id!r} is said to have no answer (is_impossible), but has {len(given)}"
        raise UnmaskError(what, where=str(one.place), do="remove one of the two")
    kept = []
    for text, start in given:
        if text.strip() and 0 <= start and one.context.startswith(text, start):
            kept.append(Answer(text, start))
            continue
        first = one.context.find(text) if text.strip() else -1
        if first >= 0 and one.context.find(text, first + 1) < 0:
            doubts.add("answers moved to the only place where their text is", f"{one.place}, question {one.id!r}")
            kept.append(Answer(text, first))
            continue
        if not drop_wrong:
            raise _wrong(one, text, start, found=first >= 0)
        doubts.add("answers left out that are not in their context, or not at their start", one.place)
    if given and not kept:
        doubts.add("questions left out with all their answers", f"{one.place}, question {one.id!r}")
        return None
    return tuple(kept)


def _wrong(one: _Asked, text: str, start: int, *, found: bool) -> UnmaskError:
    there = one.context[max(start, 0) : max(start, 0) + len(text)][:60]
    why = "is in the context more than once, and not there" if found else "is not in the context"
    what = f"question {one.id!r}: the answer {text[:60]!r} {why}; at its start {start} is {there!r}"
    return UnmaskError(
        what, where=str(one.place), do=f"{DO_OFFSET}; or leave such answers out: --set task.drop_wrong=true"
    )


def _pairs(one: _Asked) -> Iterator[tuple[str, int]]:
    """(text, start) of each answer, from either of the two shapes."""
    match one.answers:
        case {"text": list() as texts, **starts_of}:
            starts = starts_of.get("answer_start", starts_of.get("start"))
            if not isinstance(starts, list) or len(starts) != len(texts):
                raise _no_answer(one, one.answers)
            pairs = list(zip(texts, starts, strict=True))
        case list():
            pairs = []
            for answer in one.answers:
                if not isinstance(answer, dict):
                    raise _no_answer(one, answer)
                pairs.append((answer.get("text"), answer.get("answer_start", answer.get("start"))))
        case _:
            raise _no_answer(one, one.answers)
    for text, start in pairs:
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            raise _no_answer(one, {"text": text, "start": start})
        yield text, start


def _no_answer(one: _Asked, value: object) -> UnmaskError:
    what = f"question {one.id!r}: {'null' if value is None else repr(value)[:80]} is no answer"
    return UnmaskError(what, where=str(one.place), do='write [{"text": …, "start": …}], and [] where there is none')
