"""Questions and answers from every usual form; an answer is where its start says, or the reader says that it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.labelled.questions import read_questions
from unmask.labelled.records import Answer, QuestionExample, Read

CONTEXT = "👩‍💻 Ada lived in Rome, and Rome was large."
RECORD = {"id": "q1", "question": "Where?", "context": CONTEXT, "answers": [{"text": "Ada", "start": 4}], "title": "T"}


def reading(folder: Path, name: str, data: str, **options) -> Read[QuestionExample]:
    (folder / name).write_text(data, encoding="utf-8")
    return read_questions(str(folder / name), **options)


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def squad(*qas: dict[str, object], context: str = CONTEXT) -> str:
    return json.dumps({"version": "v2", "data": [{"title": "T", "paragraphs": [{"context": context, "qas": [*qas]}]}]})


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(UnmaskError) as error:
        act()
    return str(error.value)


@pytest.mark.parametrize(
    "answers",
    [
        [{"text": "Ada", "start": 4}],
        [{"text": "Ada", "answer_start": 4}],
        {"text": ["Ada"], "answer_start": [4]},
        {"text": ["Ada"], "start": [4]},
    ],
)
def test_flat_records_have_answers_in_either_shape(tmp_path, answers):
    read = reading(tmp_path, "a.jsonl", lines({**RECORD, "answers": answers}))
    place = (str(tmp_path / "a.jsonl"), 1, 1)
    assert read.examples == [QuestionExample("q1", "Where?", CONTEXT, (Answer("Ada", 4),), place, "T")]
    assert "column 'question' holds the question" in read.understood and not read.warnings


@pytest.mark.parametrize("indent", [None, 2])
def test_squad_is_read_as_it_is_published(tmp_path, indent):
    first = {"id": "a", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 4}], "is_impossible": False}
    none = {"id": "b", "question": "Why?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "x"}]}
    data = json.dumps(json.loads(squad(first, none)), indent=indent)
    for name in ("a.json", "a.jsonl") if indent is None else ("a.json",):
        read = reading(tmp_path, name, data)
        assert [(e.id, e.answers, e.title) for e in read.examples] == [("a", (Answer("Ada", 4),), "T"), ("b", (), "T")]
        assert [e.place.record for e in read.examples] == [1, 2] and read.examples[0].context == CONTEXT


@pytest.mark.parametrize("empty", [[], {"text": [], "answer_start": []}])
def test_no_answers_are_legal(tmp_path, empty):
    assert reading(tmp_path, "a.jsonl", lines({**RECORD, "answers": empty})).examples[0].answers == ()


def test_B174_an_answer_that_is_elsewhere_once_is_moved_and_counted(tmp_path):
    wrong = [{**RECORD, "id": f"q{at}", "answers": [{"text": "lived", "start": at}]} for at in (0, 8, 9, -1, 999)]
    read = reading(tmp_path, "a.jsonl", lines(*wrong))
    assert {e.answers for e in read.examples} == {(Answer("lived", 8),)}
    (warning,) = read.warnings
    assert ": 4 (first: " in warning and "a.jsonl, line 1, record 1, question 'q0'" in warning


def test_B173_offsets_in_bytes_are_put_right_where_that_is_sure(tmp_path):
    context = "クラ by Key"
    record = {**RECORD, "context": context, "answers": [{"text": "Key", "start": len("クラ by ".encode())}]}
    read = reading(tmp_path, "a.jsonl", lines(record))
    assert read.examples[0].answers == (Answer("Key", context.index("Key")),) and "answers moved" in read.warnings[0]


def test_B172_carriage_returns_count_as_the_characters_they_are(tmp_path):
    context = "x\r\ny answer"
    record = {**RECORD, "context": context, "answers": [{"text": "answer", "start": 5}]}
    for data, name in ((lines(record), "a.jsonl"), (json.dumps([record]), "a.json")):
        read = reading(tmp_path, name, data)
        assert read.examples[0].context == context and not read.warnings
    qa = {"id": "a", "question": "?", "answers": [{"text": "answer", "answer_start": 5}]}
    assert not reading(tmp_path, "b.json", squad(qa, context=context)).warnings


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"text": "Rome", "start": 0}, "is in the context more than once, and not there; at its start 0 is "),
        ({"text": "Paris", "start": 4}, "is not in the context; at its start 4 is 'Ada l'"),
        ({"text": "", "start": 4}, "is not in the context"),
        ({"text": "oo", "start": 0}, "is not in the context"),
        ({"text": "Ada"}, "is no answer"),
        ({"text": "Ada", "start": "4"}, "is no answer"),
        ({"text": None, "start": 4}, "is no answer"),
        ("Ada", "is no answer"),
    ],
)
def test_an_answer_that_cannot_be_placed_names_file_line_record_and_question(tmp_path, answer, said):
    shown = refused(lambda: reading(tmp_path, "a.jsonl", lines(RECORD, {**RECORD, "id": "q2", "answers": [answer]})))
    assert said in shown and "a.jsonl, line 2, record 2" in shown and "question 'q2'" in shown
    qa = {"id": "q2", "question": "?", "answers": [answer]}
    shown = refused(lambda: reading(tmp_path, "a.json", squad(qa)))
    assert "a.json, record 1" in shown and "question 'q2'" in shown


@pytest.mark.parametrize("answers", [None, "Ada", 3, {"text": ["Ada"]}, {"text": ["Ada"], "answer_start": []}])
def test_answers_of_another_shape_are_refused(tmp_path, answers):
    shown = refused(lambda: reading(tmp_path, "a.jsonl", lines({**RECORD, "answers": answers})))
    assert "is no answer" in shown and "line 1, record 1" in shown


def test_wrong_answers_are_dropped_where_that_is_wanted_and_counted(tmp_path):
    some = {**RECORD, "answers": [{"text": "Rome", "start": 0}, {"text": "Ada", "start": 4}]}
    none = {**RECORD, "id": "q2", "answers": [{"text": "Paris", "start": 0}]}
    read = reading(tmp_path, "a.jsonl", lines(some, none, {**RECORD, "id": "q3", "answers": []}), drop_wrong=True)
    assert [(e.id, e.answers) for e in read.examples] == [("q1", (Answer("Ada", 4),)), ("q3", ())]
    assert ": 2 (first: " in read.warnings[0] and "questions left out with all their answers: 1" in read.warnings[1]
    assert "no question" in refused(lambda: reading(tmp_path, "a.jsonl", lines(none), drop_wrong=True))


def test_an_impossible_question_with_an_answer_is_refused(tmp_path):
    qa = {"id": "a", "question": "?", "answers": [{"text": "Ada", "answer_start": 4}], "is_impossible": True}
    shown = refused(lambda: reading(tmp_path, "a.json", squad(qa)))
    assert "'a' is said to have no answer" in shown and "a.json, record 1" in shown


def test_two_questions_never_share_an_id(tmp_path):
    shown = refused(lambda: reading(tmp_path, "a.jsonl", lines(RECORD, {**RECORD, "id": "q2"}, RECORD)))
    assert "two questions have the id 'q1'" in shown and "line 1, record 1" in shown and "line 3, record 3" in shown
    without = {key: value for key, value in RECORD.items() if key != "id"}
    read = reading(tmp_path, "a.jsonl", lines(without, without))
    assert [e.id for e in read.examples] == ["1", "2"] and "the id is the number of the record" in read.understood
    assert reading(tmp_path, "a.jsonl", lines({**RECORD, "id": 7})).examples[0].id == "7"


def test_asked_questions_need_no_answers(tmp_path):
    asked = {key: value for key, value in RECORD.items() if key != "answers"}
    assert reading(tmp_path, "a.jsonl", lines(asked), asked=True).examples[0].answers is None
    assert reading(tmp_path, "a.json", squad({"id": "a", "question": "?"}), asked=True).examples[0].answers is None
    shown = refused(lambda: reading(tmp_path, "a.jsonl", lines(asked)))
    assert "to hold the answers" in shown and "--map answers=" in shown
    table = reading(tmp_path, "a.csv", "frage,absatz\nWer?,Ada war da\n", columns=FRAGE, asked=True)
    assert (table.examples[0].question, table.examples[0].context) == ("Wer?", "Ada war da")


FRAGE = {"question": "frage", "context": "absatz"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('{"data": 3}', "'data' is not a list"),
        ('{"data": [{"title": "T"}]}', "'paragraphs' is missing"),
        ('{"data": [{"paragraphs": [{"context": "c"}]}]}', "'qas' is missing"),
        ('{"data": [{"paragraphs": [{"qas": [{"id": "a", "question": "q", "answers": []}]}]}]}', "'context' is null"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "a", "answers": []}]}]}]}', "no 'question'"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [{"question": "q"}]}]}]}', "no 'id'"),
        ('{"data": []}', "there is no question"),
    ],
)
def test_a_broken_nest_is_named(tmp_path, data, said):
    shown = refused(lambda: reading(tmp_path, "a.json", data))
    assert said in shown and "a.json" in shown and ("record 1" in shown or "no question" in shown)


@settings(max_examples=60, deadline=None)
@given(st.text("ab 京👩\u0301\r\n", min_size=1, max_size=12), st.data())
def test_every_answer_read_is_the_text_at_its_start(context, data):
    begin = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(begin + 1, len(context)))
    start = data.draw(st.integers(-1, len(context) + 1))
    text = context[begin:end]
    record = {"question": "?", "context": context, "answers": [{"text": text, "start": start}]}
    with TemporaryDirectory() as folder:
        (kept,) = reading(Path(folder), "a.jsonl", lines(record, {**record, "answers": []}), drop_wrong=True).examples[
            :-1
        ] or [None]
    places = [at for at in range(len(context)) if context[at:].startswith(text)]
    if not text.strip() or (start not in places and len(places) > 1):
        assert kept is None
    else:
        assert kept is not None and kept.answers == (Answer(text, start if start in places else places[0]),)
