"""Answers are pieces of the user's own text: windows, offsets, n-best, no answer."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import KINDS, LINE, SIDES, asked, shown_outputs, tokenizer

from unmask.config import Answering
from unmask.errors import UnmaskError
from unmask.labelled.records import Answer, Place, QuestionExample
from unmask.tasks.answer import Answered, best_threshold, decode, score, sequences
from unmask.text.aligned import AlignedEncoder, Windows

ODD = [
    "a",
    "the ",
    " ",
    "e\u0301",
    "\U0001f469\u200d\U0001f4bb",
    "\U0001f1e9\U0001f1ea",
    "北",
    "京",
    "１",
    "\u200b",
    "\r\n",
    "Zoë ",
]


def random_outputs(windows: Windows, seed: int, levels: int) -> dict[str, np.ndarray]:
    """Few levels make many ties."""
    rng = np.random.default_rng(seed)
    return {side: rng.integers(-levels, levels + 1, len(windows.ids_T)).astype(np.float32) / 2 for side in SIDES}


# --- decoding ------------------------------------------------------------------------------------------------------------
def literal(
    outputs: dict[str, np.ndarray], windows: Windows, example: int, longest: int
) -> dict[tuple[int, int], float]:
    """The best score of every piece of the context, by loops over windows, first and last tokens."""
    views = defaultdict(list)
    for n in np.flatnonzero(windows.example_N == example):
        members = range(windows.token_starts[n], windows.token_starts[n + 1])
        for i in members:
            for j in range(i, min(i + longest, members.stop)):
                around = min(i - members.start, members.stop - 1 - j)
                places = (windows.starts[n] + windows.place_M[m] for m in (i, j))
                score = sum(float(outputs[side][place]) for side, place in zip(SIDES, places, strict=True))
                views[windows.token_M[i], windows.token_M[j]].append((-around, n, score, i, j))
    pieces: dict[tuple[int, int], float] = {}
    for found in views.values():
        _, _, score, i, j = min(found)  # most context around it; of two such windows the first
        (begin, first_end), (last_begin, end) = windows.offsets_M2[i].tolist(), windows.offsets_M2[j].tolist()
        if begin < first_end and last_begin < end:
            pieces[begin, end] = max(score, pieces.get((begin, end), -np.inf))
    return pieces


some_context = st.lists(st.sampled_from(ODD), max_size=40).map("".join)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(some_context, min_size=1, max_size=3),
    st.tuples(st.integers(10, 40), st.integers(1, 20), st.integers(1, 9), st.integers(1, 40)),
    st.integers(0, 999),
    st.sampled_from([2, 40]),
    st.booleans(),
)
def test_decoding_is_a_double_loop(
    kind: str, contexts: list[str], sizes: tuple[int, ...], seed: int, levels: int, impossible: bool
) -> None:
    max_length, stride, longest, n_best = sizes
    task = Answering(stride=stride, max_answer_tokens=longest, impossible=impossible)
    examples = [asked(context) for context in contexts]
    _, windows = sequences(examples, AlignedEncoder(tokenizer(kind), max_length), task)
    outputs = random_outputs(windows, seed, levels)
    for number, said in enumerate(decode(outputs, windows, examples, task, n_best=n_best, threshold=0.5)):
        pieces = literal(outputs, windows, number, longest)
        ranked = sorted(pieces, key=lambda piece: (-pieces[piece], piece))
        firsts = windows.starts[:-1][windows.example_N == number]
        null = min(float(outputs["start"][at] + outputs["end"][at]) for at in firsts)
        assert [(s.begin, s.end) for s in said.n_best] == ranked[:n_best]
        assert all(s.text == contexts[number][s.begin : s.end] and s.text.strip() for s in said.n_best)
        assert said.text == contexts[number][said.begin : said.end]
        assert said.no_answer_score == pytest.approx(null - (pieces[ranked[0]] if ranked else 0))
        refused = impossible and said.no_answer_score > 0.5
        assert (said.begin, said.end) == ((0, 0) if refused or not ranked else ranked[0])
        shares = [s.score for s in said.n_best]
        assert shares == sorted(shares, reverse=True) and sum(shares) <= 1 + 1e-9
        if refused and ranked:
            assert said.score == pytest.approx(shares[0] * np.exp(said.no_answer_score))


def test_scores_are_probabilities_that_do_not_depend_on_how_many_are_listed() -> None:
    example, task = asked("a b"), Answering(max_answer_tokens=2)
    _, windows = sequences([example], AlignedEncoder(tokenizer("wordpiece"), 32), task)
    outputs = {side: np.zeros(len(windows.ids_T), np.float32) for side in SIDES}
    all_of_them = decode(outputs, windows, [example], task)[0]
    assert [(s.text, s.score) for s in all_of_them.n_best] == [(t, pytest.approx(1 / 3)) for t in ("a", "a b", "b")]
    assert decode(outputs, windows, [example], task, n_best=1)[0].score == pytest.approx(1 / 3)
    with_none = decode(outputs, windows, [example], Answering(max_answer_tokens=2, impossible=True), threshold=-1.0)[0]
    assert with_none.text == "" and with_none.score == pytest.approx(1 / 4)


def test_the_n_best_are_as_many_as_asked_for_though_pieces_of_text_come_up_twice() -> None:
    """Elsewhere top_k gives fewer: spans of tokens are cut before those of the same text are merged."""
    context = "\U0001f469\u200d\U0001f4bb" * 3 + " end"
    example, task = asked(context), Answering(max_answer_tokens=40)
    _, windows = sequences([example], AlignedEncoder(tokenizer("bpe"), 128), task)
    assert len(windows.token_M) > 20, "an emoji is several tokens"
    outputs = {side: np.zeros(len(windows.ids_T), np.float32) for side in SIDES}
    for place in range(len(windows.token_M)):  # the first emoji's own tokens are the best by far
        if windows.offsets_M2[place, 0] == 0:
            for side in SIDES:
                outputs[side][windows.place_M[place]] = 9
    found = decode(outputs, windows, [example], task, n_best=5)[0].n_best
    assert len({(s.begin, s.end) for s in found}) == 5 and found[0].text == "\U0001f469\u200d\U0001f4bb"


@pytest.mark.parametrize("kind", KINDS)
def test_B167_every_token_of_a_long_context_can_be_the_answer(kind: str) -> None:
    """The first and the last too, whatever the stride: elsewhere tokens between windows are skipped, a stride as long as the
    room panics, and an answer at an edge counts as none."""
    context = LINE * 4
    for max_length, stride in ((16, 128), (24, 1), (24, 19), (32, 8)):
        for question in ("who?", "where is it? " * 30):
            task = Answering(stride=stride)
            examples = [asked(context, question=question)]
            _, windows = sequences(examples, AlignedEncoder(tokenizer(kind), max_length), task)
            spans = dict(zip(windows.token_M.tolist(), windows.offsets_M2.tolist(), strict=True))
            assert sorted(spans) == list(range(len(spans)))
            for token in (0, 1, len(spans) // 2, len(spans) - 1):
                begin, end = spans[token]
                if begin < end:
                    said = decode(shown_outputs(windows, token, token), windows, examples, task)[0]
                    assert (said.begin, said.end) == (begin, end)


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_in_windows_has_the_answers_of_one_that_fits(kind: str) -> None:
    """If what a token says does not depend on its window: each piece is read once, none is lost at a window's edge."""
    examples, task = [asked(LINE * 3), asked(LINE)], Answering(stride=9, max_answer_tokens=10)
    found = []
    for max_length in (512, 26):
        _, windows = sequences(examples, AlignedEncoder(tokenizer(kind), max_length), task)
        rng = np.random.default_rng(0)
        said_by_token = {side: rng.normal(size=(2, 1000)).astype(np.float32) for side in SIDES}
        sizes = np.diff(windows.token_starts)
        where_M, example_M = (np.repeat(x, sizes) for x in (windows.starts[:-1], windows.example_N))
        outputs = {side: np.zeros(len(windows.ids_T), np.float32) for side in SIDES}
        for side in SIDES:
            outputs[side][windows.place_M + where_M] = said_by_token[side][example_M, windows.token_M]
        found.append([a.n_best for a in decode(outputs, windows, examples, task)])
    assert len(windows.starts) > 5 and found[0] == found[1]


# --- labels --------------------------------------------------------------------------------------------------------------
PIECES = ["the café", "Zoë", "北京", "京", "１２３", "２", "45", "\U0001f642", "not far away.", ".", "in 北京 costs"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", PIECES)
@pytest.mark.parametrize("front", ["", "e\u0301\u200b \U0001f469\u200d\U0001f4bb\r\n", "\ufeffCAFE\u0301 ﷽ "])
def test_B172_labels_are_the_tokens_that_share_a_character_with_the_answer(kind: str, answer: str, front: str) -> None:
    example, task = asked(front + LINE, answer), Answering()
    found, windows = sequences([example], AlignedEncoder(tokenizer(kind), 512), task)
    begin, end = example.answers[0].start, example.answers[0].start + len(answer)
    shared = [a < end and begin < b for a, b in windows.offsets_M2.tolist()]
    places = windows.place_M[shared]
    assert [int(found.labels[side].place_M[0]) for side in SIDES] == [places[0], places[-1]]
    outputs = shown_outputs(windows, windows.token_M[shared][0], windows.token_M[shared][-1])
    said = decode(outputs, windows, [example], task)[0]
    assert answer in said.text and said.text == example.context[said.begin : said.end]
    if answer in ("Zoë", "45", "\U0001f642") or (kind == "characters" and answer != "２"):
        assert (said.begin, said.end) == (begin, end), "these are whole tokens: never one character more or less"


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), some_context, st.data())
def test_a_window_without_the_whole_answer_points_to_its_first_token(
    kind: str, context: str, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(context)))
    end = data.draw(st.integers(begin, min(begin + 8, len(context))))
    example = asked(context, context[begin:end], begin)
    found, windows = sequences([example], AlignedEncoder(tokenizer(kind), 16), Answering(stride=3))
    token_of = dict(zip(windows.token_M.tolist(), windows.offsets_M2.tolist(), strict=True))
    gold = [token for token, (a, b) in token_of.items() if max(a, begin) < min(b, end)]
    for n in range(len(windows.starts) - 1):
        members = slice(windows.token_starts[n], windows.token_starts[n + 1])
        places = dict(zip(windows.token_M[members].tolist(), windows.place_M[members].tolist(), strict=True))
        whole = bool(gold) and min(gold) in places and max(gold) in places
        expected = [places[min(gold)], places[max(gold)]] if whole else [0, 0]
        assert [int(found.labels[side].place_M[n]) for side in SIDES] == expected


def test_questions_that_are_only_asked_have_no_labels_and_those_without_an_answer_point_to_the_first_token() -> None:
    encoder = AlignedEncoder(tokenizer("wordpiece"), 32)
    assert not sequences([asked(LINE), asked(LINE, "Zoë")], encoder, Answering())[0].labels
    labels = sequences([asked(LINE, ""), asked(LINE, "Zoë")], encoder, Answering())[0].labels
    assert labels["start"].place_M[0] == 0 and labels["start"].place_M[-1] > 0


def test_of_several_answers_the_first_is_learned() -> None:
    example = QuestionExample("1", "who?", "Zoë or Zoë", (Answer("Zoë", 7), Answer("Zoë", 0)), Place("f", 1, 1))
    found, windows = sequences([example], AlignedEncoder(tokenizer("characters"), 32), Answering())
    assert found.labels["start"].place_M.tolist() == [windows.place_M[windows.offsets_M2[:, 0] == 7][0]]


# --- no answer -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("context", ["", " ", "\r\n \u00a0"])
def test_B168_a_context_without_a_word_is_no_accident(context: str) -> None:
    """Elsewhere: 'NoneType' object has no attribute, list index out of range."""
    for impossible in (False, True):
        task, example = Answering(impossible=impossible), asked(context, question="who? " * 60)
        _, windows = sequences([example], AlignedEncoder(tokenizer("wordpiece"), 64), task)
        outputs = {side: np.ones(len(windows.ids_T), np.float32) for side in SIDES}
        assert decode(outputs, windows, [example], task) == [Answered("1", "", 0, 0, float(impossible), 2.0, ())]


def test_without_impossible_questions_there_is_always_an_answer() -> None:
    example, task = asked(LINE), Answering()
    _, windows = sequences([example], AlignedEncoder(tokenizer("wordpiece"), 64), task)
    outputs = shown_outputs(windows, 3, 3)
    for side in SIDES:
        outputs[side][0] = 1000  # the first token, for all it is worth
    assert decode(outputs, windows, [example], task)[0].text
    refused = decode(outputs, windows, [example], Answering(impossible=True))[0]
    assert refused.text == "" and refused.n_best[0].text and refused.score == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.integers(1, 12))
def test_the_tuned_threshold_is_better_than_any_other(seed: int, count: int) -> None:
    rng, task = np.random.default_rng(seed), Answering(impossible=True)
    examples = [asked(LINE, rng.choice(["", "Zoë", "45", "the café"])) for _ in range(count)]
    _, windows = sequences(examples, AlignedEncoder(tokenizer("wordpiece"), 64), task)
    outputs = {side: rng.normal(size=len(windows.ids_T)).astype(np.float32) for side in SIDES}
    gold_N = (
        windows.starts[:-1]
        + sequences(examples, AlignedEncoder(tokenizer("wordpiece"), 64), task)[0].labels["start"].place_M
    )
    outputs["start"][gold_N] += 3
    answered = decode(outputs, windows, examples, task)
    reached = lambda threshold: score(decode(outputs, windows, examples, task, threshold=threshold), examples, "en")[
        "f1"
    ]
    tuned = reached(best_threshold(answered, examples, "en"))
    assert tuned == pytest.approx(max(reached(t) for t in [-1e9, *(a.no_answer_score for a in answered)]))


def test_f1_is_the_primary_score_and_questions_without_truth_are_refused() -> None:
    said = [Answered("1", "the Zoë", 0, 7, 0.5, 0.0, ())]
    assert list(score(said, [asked(LINE, "Zoë")], "en").items())[:2] == [("f1", 1.0), ("exact", 1.0)]
    assert score(said, [asked(LINE, "")], "en")["f1"] == 0
    with pytest.raises(UnmaskError, match="can't be scored"):
        score(said, [asked(LINE)], "en")
