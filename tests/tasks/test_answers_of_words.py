"""Answers of a network that has one vector for all tokens of a word: words, never parts of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from elmo_models import ELMO
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import randomise

from unmask.config import Answering
from unmask.config.tasks import HeadShape
from unmask.labelled.records import Answer, Place, QuestionExample
from unmask.nn.characters import token_kinds
from unmask.nn.encoder import Encoder
from unmask.objectives.answer import AnswerObjective
from unmask.tasks.answer import decode, sequences
from unmask.tasks.outputs import answers
from unmask.text.aligned import AlignedEncoder
from unmask.text.train_tokenizer import TrainOptions, train

WORDS = ["alpha", "be", "gamma", "crimson", "a", "Zoë", "苹", "don't", "x."]
TOKENIZER = train([" ".join(WORDS) + " what who"] * 3, TrainOptions(kind="characters", vocab_size=90))[0]


def asked(words: list[str], answer: int) -> QuestionExample:
    context = " ".join(words)
    found = Answer(words[answer], len(" ".join(words[:answer])) + (answer > 0))
    return QuestionExample("1", "what", context, (found,), Place("f", 1, 1))


def network(seed: int) -> tuple[Encoder, AnswerObjective]:
    config = replace(ELMO, vocab_size=TOKENIZER.vocab_size)
    encoder, objective = Encoder(config), AnswerObjective(config, Answering(), HeadShape(act=None, dropout=0.0))
    for number, part in enumerate((encoder, objective)):
        randomise(part, seed + number)
    assert encoder.words is not None
    encoder.words.tell(token_kinds(TOKENIZER))
    return encoder, objective


@pytest.mark.parametrize("length", [64, 24])
def test_answers_begin_and_end_with_words_in_one_window_or_many(length: int) -> None:
    draw = np.random.default_rng(0)
    examples = [asked(draw.choice(["alpha", "gamma", "crimson", "be"], 9).tolist(), 4) for _ in range(6)]
    texts = AlignedEncoder(TOKENIZER, length, whole_words=True)
    for seed in range(3):
        data, windows = sequences(examples, texts, Answering(stride=12))
        found = decode(answers(*network(seed), data, "token"), windows, examples, Answering(), n_best=5)
        for one, example in zip(found, examples, strict=True):
            for span in one.n_best:
                assert set(span.text.split()) <= set(example.context.split()), span.text


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12),
    st.integers(0, 11),
    st.integers(14, 60),
    st.integers(0, 20),
)
@settings(max_examples=60, deadline=None)
def test_words_of_windows_are_runs_of_their_tokens_numbered_through_the_context(
    words: list[str], answer: int, length: int, stride: int
) -> None:
    example = asked(words, answer % len(words))
    plain, whole = (
        AlignedEncoder(TOKENIZER, length, whole_words=w).windows(["what"], [example.context], stride)
        for w in (False, True)
    )
    assert (plain.ids_T == whole.ids_T).all() and (plain.starts == whole.starts).all()
    kinds, number, number_of = token_kinds(TOKENIZER), -1, {}
    ids = [int(id) for id in TOKENIZER.encode([example.context])[0].ids]
    for token, id in enumerate(ids):
        number += token == 0 or kinds[id] != 0
        number_of[token] = number
    for n in range(len(plain.starts) - 1):
        tokens = slice(*plain.token_starts[n : n + 2])
        wanted: dict[int, list[int]] = {}
        for place, token, (begin, end) in zip(
            plain.place_M[tokens], plain.token_M[tokens], plain.offsets_M2[tokens].tolist(), strict=True
        ):
            first = wanted.setdefault(number_of[int(token)], [int(place), begin, end])
            first[2] = end
        here = slice(*whole.token_starts[n : n + 2])
        rows = zip(
            whole.token_M[here].tolist(), whole.place_M[here].tolist(), whole.offsets_M2[here].tolist(), strict=True
        )
        assert [(m, [p, *o]) for m, p, o in rows] == list(wanted.items())


def test_an_answer_is_labelled_at_the_first_tokens_of_its_first_and_last_word() -> None:
    example = QuestionExample("1", "what", "a crimson alpha be", (Answer("crimson alpha", 2),), Place("f", 1, 1))
    data, windows = sequences([example], AlignedEncoder(TOKENIZER, 64, whole_words=True), Answering())
    ids = data.ids_T.tolist()
    start, end = (int(data.labels[side].place_M[0]) for side in ("start", "end"))
    assert [TOKENIZER.token(ids[at])[0] for at in (start, end)] == ["c", "a"]
    assert windows.offsets_M2[np.isin(windows.place_M, [start, end])].tolist() == [[2, 9], [10, 15]]
