"""Questions with contexts are cut into windows that leave no token out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from aligned_rows import framed_as, ids, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from torture import KINDS, small

from unmask.text.aligned import AlignedEncoder
from unmask.text.tokenizer import Tokenizer


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return small(request.param)


def plain_windows(
    question: list[int], context: list[int], room: int, half: int, stride: int
) -> Iterator[tuple[list[int], int, list[int]]]:
    """Question, first token and tokens of each window, written down word by word from what `windows` promises."""
    if len(question) + len(context) > room:
        question = question[: room - min(len(context), half, room - 1)]
    space = max(room - len(question), 1)
    stride = stride if stride < space else space // 2
    begin = 0
    while True:
        yield question, begin, context[begin : begin + space]
        if begin + space >= len(context):
            return
        begin += space - stride


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), max_size=4),
    st.integers(6, 30),
    st.integers(0, 40),
    st.sampled_from(KINDS),
)
def test_B167_windows_are_those_of_the_plain_definition(
    sizes: list[tuple[int, int]], length: int, stride: int, kind: str
) -> None:
    """TASKS.md 3.24, 3.28: no panic at any stride or length of question; every token is in a window."""
    tokenizer = small(kind)
    questions, contexts = ["ok " * q for q, _ in sizes], [" ".join(["Ada ok lives"] * c) for _, c in sizes]
    asked, told = [ids(tokenizer, text) for text in questions], [ids(tokenizer, text) for text in contexts]
    windows = AlignedEncoder(tokenizer, length).windows(questions, contexts, stride)
    room = length - len(framed_as(tokenizer, [], []))
    wanted, tokens, count = [], [], 0
    for example, (question, context) in enumerate(zip(asked, told, strict=True)):
        for kept, begin, piece in plain_windows(question, context, room, -(-length // 2), stride):
            wanted.append(framed_as(tokenizer, kept, piece))
            tokens += [(example, token) for token in range(begin, begin + len(piece))]
        count += len(context)
    assert rows(windows) == wanted
    owner_M = np.repeat(windows.example_N, np.diff(windows.token_starts))
    assert list(zip(owner_M.tolist(), windows.token_M.tolist(), strict=True)) == tokens
    assert len(set(tokens)) == windows.best_M.sum() == count
    where_M = windows.place_M + np.repeat(windows.starts[:-1], np.diff(windows.token_starts))
    assert windows.ids_T[where_M].tolist() == [told[e][t] for e, t in tokens]
    assert windows.sequences().num_units == len(sizes)


def test_B168_B169_a_long_question_is_cut_and_leaves_the_context_half_the_window(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.24: a question longer than the window."""
    question, context = "Where does Ada live? " * 100, "Ada lives in Rome. " * 20
    windows = AlignedEncoder(tokenizer, 64).windows([question, "Where?"], [context, "ok"], 16)
    assert windows.questions_cut == 1
    sizes = np.diff(windows.token_starts)[windows.example_N == 0]
    assert (sizes[:-1] == 32).all() and sizes[-1] <= 32
    whole = AlignedEncoder(tokenizer, 4000).windows([question], [context], 16)
    assert whole.questions_cut == 0, "a question is cut only where it has to be"


def test_B167_a_stride_of_the_whole_room_is_shortened_and_counted(tokenizer: Tokenizer) -> None:
    context = "Ada lives in Rome. " * 40
    encoder = AlignedEncoder(tokenizer, 32)
    windows = encoder.windows(["ok", "ok"], [context, "ok"], 500)
    assert windows.strides_shortened == 1, "the short context needs no stride"
    assert encoder.windows(["ok"], [context], 4).strides_shortened == 0


def test_a_context_of_nothing_still_has_a_window(tokenizer: Tokenizer) -> None:
    windows = AlignedEncoder(tokenizer, 32).windows(["ok", "ok"], ["", "ok"], 4)
    assert windows.example_N.tolist() == [0, 1] and windows.token_starts[1] == 0
    assert rows(windows)[0] == framed_as(tokenizer, ids(tokenizer, "ok"), [])


def test_one_context_for_many_questions_gives_what_many_contexts_give(tokenizer: Tokenizer) -> None:
    """Texts that are equal are tokenised once."""
    questions, context = ["ok", "Where does Ada live?", "then"], "Ada lives in Rome. " * 9
    together = AlignedEncoder(tokenizer, 40).windows(questions, [context] * 3, 8)
    alone = [AlignedEncoder(tokenizer, 40).windows([question], [context], 8) for question in questions]
    assert rows(together) == [row for windows in alone for row in rows(windows)]
    assert np.array_equal(together.offsets_M2, np.concatenate([windows.offsets_M2 for windows in alone]))
