"""Frames, truncation and windows beside those of transformers, for folders as the published tokenizers lie in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from published import SAVED, saved_folder, some_lines
from torture import TORTURE, content, folded

from unmask.text.aligned import AlignedEncoder, Framed, Windows, Words
from unmask.text.graphemes import clusters
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import code_points

WITHOUT_FRAME = ("gpt2",)  # transformers glues the two texts of a pair together there
SPLITTERS = ("bert", "electra", "albert", "t5", "xlm-roberta", "roberta with add_prefix_space")


@pytest.fixture(scope="module", params=[*SAVED, "all-MiniLM-L6-v2"])
def both(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Name, our tokenizer and theirs."""
    transformers = pytest.importorskip("transformers")
    if request.param in SAVED:
        folder = saved_folder(tmp_path_factory.mktemp("theirs") / "folder", shared, request.param)
    else:
        folder = request.getfixturevalue("minilm")
    return request.param, Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(str(folder))


def check(ours: Framed | Words | Windows, theirs: Any) -> None:
    """Token types not where a text goes on: the library gives them a type of its own there, whatever the frame says."""
    edges = list(zip(ours.starts, ours.starts[1:], strict=False))
    assert [ours.ids_T[a:b].tolist() for a, b in edges] == theirs["input_ids"]
    owners = theirs.get("overflow_to_sample_mapping", list(range(len(edges))))
    types = ours.token_type_ids_T
    for number, (a, b) in enumerate(edges):
        if number == 0 or owners[number] != owners[number - 1]:
            assert theirs["token_type_ids"][number] == ([0] * (b - a) if types is None else types[a:b].tolist())


@pytest.mark.parametrize("length", [8, 9, 24])
def test_texts_and_pairs_are_those_of_transformers_also_where_they_are_cut(
    shared: Path, both: Any, length: int
) -> None:
    name, tokenizer, theirs = both
    texts = [text[:200] for text in some_lines(shared)[::9] if text.strip()][:30] + [
        "a"
    ]  # cutting long ones takes it long
    texts += [""] * (name not in WITHOUT_FRAME)
    encoder = AlignedEncoder(tokenizer, length)
    options = dict(truncation="longest_first", max_length=length, return_token_type_ids=True, verbose=False)
    check(encoder.texts(texts), theirs(texts, **options))
    if name not in WITHOUT_FRAME:
        pairs = texts[::-1]
        check(encoder.texts(texts, pairs), theirs(texts, pairs, **options))


def test_questions_and_contexts_are_those_of_transformers(shared: Path, both: Any) -> None:
    name, tokenizer, theirs = both
    if name in WITHOUT_FRAME:
        pytest.skip("it frames no pairs")
    contexts = [text for text in some_lines(shared) if text.isascii() and len(text) > 200][:12]
    questions = ["who was it?", "when did the old house burn down?"] * 6
    wanted = theirs(
        questions[: len(contexts)],
        contexts,
        **dict(truncation="only_second", max_length=60, stride=12, return_token_type_ids=True),
        **dict(return_overflowing_tokens=True, return_offsets_mapping=True),
    )
    windows = AlignedEncoder(tokenizer, 60).windows(questions[: len(contexts)], contexts, 12)
    check(windows, wanted)
    assert windows.example_N.tolist() == wanted["overflow_to_sample_mapping"]
    places = iter(zip(windows.place_M.tolist(), windows.offsets_M2.tolist(), strict=True))
    for number, spans in enumerate(wanted["offset_mapping"]):
        context = contexts[windows.example_N[number]]
        for token, owner in enumerate(wanted.sequence_ids(number)):
            if owner == 1:
                place, (begin, end) = next(places)
                assert place == token and context[begin:end] == context[slice(*spans[token])].strip()
    assert next(places, None) is None


def test_words_are_those_of_transformers(shared: Path, both: Any) -> None:
    name, tokenizer, theirs = both
    if name not in SPLITTERS:
        pytest.skip("transformers gives a word other pieces in a list than in a sentence there")
    rows = [text.split() for text in some_lines(shared)[::5] if text.strip()][:60]
    wanted = theirs(rows, is_split_into_words=True, return_token_type_ids=True, verbose=False)
    words = AlignedEncoder(tokenizer, 4000).words(rows, 8)
    check(words, wanted)
    for number in range(len(rows)):
        owners = wanted.word_ids(number)
        firsts = {owner: place for place, owner in reversed(list(enumerate(owners))) if owner is not None}
        here = slice(words.word_starts[number], words.word_starts[number + 1])
        ours = dict(zip(words.word_M[here].tolist(), words.place_M[here].tolist(), strict=True))
        assert {word: place for word, place in ours.items() if word in firsts} == firsts


def test_offsets_cut_whole_characters_with_the_tokens_own_letters(both: Any) -> None:
    """TASKS.md 3.1."""
    _, tokenizer, _ = both
    windows = AlignedEncoder(tokenizer, 4000).windows(["a"] * len(TORTURE), TORTURE, 16)
    for number, text in enumerate(TORTURE):
        begins, ends = (set(side.tolist()) for side in clusters(code_points(text)))
        tokens = slice(windows.token_starts[number], windows.token_starts[number + 1])
        places = windows.place_M[tokens] + windows.starts[number]
        last = 0
        for place, (begin, end) in zip(places, windows.offsets_M2[tokens].tolist(), strict=True):
            assert last <= begin <= end <= len(text)
            assert begin == end or (begin in begins and end in ends and text[begin:end] == text[begin:end].strip())
            assert content(tokenizer, windows.ids_T[place]) in folded(text[begin:end]), text
            last = begin
