from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torture import KINDS, TORTURE, content, folded, small

from unmask.errors import UnmaskError
from unmask.text.aligned import AlignedEncoder, Framed, Windows, Words
from unmask.text.graphemes import clusters
from unmask.text.running_text import text_words
from unmask.text.sequences import Labels
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import WordSplitter, code_points

WORDS = [
    "Ada",
    "lives",
    "in",
    "\u200b",
    "Rome",
    "",
    "\u02dc",
    "北京",
    "😂😂",
    "state-of-the-art",
    " ",
    "\ufeff",
    "(id:7)",
    "가나",
]


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return small(request.param)


def rows(made: Framed | Words | Windows) -> list[list[int]]:
    return [made.ids_T[a:b].tolist() for a, b in zip(made.starts, made.starts[1:], strict=False)]


def framed_as(tokenizer: Tokenizer, *texts: list[int]) -> list[int]:
    """[CLS] A [SEP] B [SEP], with the separator twice in the middle for byte-level BPE."""
    cls, sep = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    ids = cls + texts[0] + sep
    return ids if len(texts) == 1 else ids + (sep if tokenizer.kind == "bpe" else []) + texts[1] + sep


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text])[0].ids.tolist()


def spans(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    """Of every token of a context that fits into one window."""
    windows = AlignedEncoder(tokenizer, 4000).windows(["a"], [text], 16)
    assert len(windows.starts) == 2
    return [(int(begin), int(end)) for begin, end in windows.offsets_M2]


def marked(tokenizer: Tokenizer, text: str, piece: str) -> str:
    """What is cut out by the tokens that share characters with `piece`."""
    at = text.index(piece)
    touched = [span for span in spans(tokenizer, text) if span[0] < at + len(piece) and span[1] > at]
    return text[touched[0][0] : touched[-1][1]]


# --- texts and pairs ---------------------------------------------------------------------------------------------------
def test_texts_and_pairs_stand_in_the_tokenizers_frame(tokenizer: Tokenizer) -> None:
    encoder = AlignedEncoder(tokenizer, 512)
    a, b = "Ada lives in Rome", "Where does Ada live?"
    alone, pair = encoder.texts([a, "", b, a]), encoder.texts([a, b], [b, ""])
    assert rows(alone) == [framed_as(tokenizer, ids(tokenizer, text)) for text in (a, "", b, a)]
    assert rows(pair) == [
        framed_as(tokenizer, ids(tokenizer, a), ids(tokenizer, b)),
        framed_as(tokenizer, ids(tokenizer, b), []),
    ]
    assert alone.token_type_ids_T is None and alone.truncated == pair.truncated == 0
    if tokenizer.kind == "bpe":
        assert pair.token_type_ids_T is None
    else:
        first, second = len(ids(tokenizer, a)), len(ids(tokenizer, b))
        assert pair.token_type_ids_T is not None
        assert pair.token_type_ids_T[: pair.starts[1]].tolist() == [0] * (first + 2) + [1] * (second + 1)
    sequences = alone.sequences({"label": Labels.one_each(np.arange(4))})
    assert sequences.num_units == len(sequences) == 4 and sequences.example_N.tolist() == [0, 1, 2, 3]


def test_truncation_takes_from_the_longer_text_and_counts_each_sequence_once(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.14: nothing is cut in silence."""
    long, short = "Ada lives in Rome " * 9, "ok"
    a, b = ids(tokenizer, long), ids(tokenizer, short)
    assert len(a) > 30 and len(b) <= 4
    frame = len(framed_as(tokenizer, [], []))
    encoder = AlignedEncoder(tokenizer, 20 + frame)
    made = encoder.texts([long, short, long, short], [short, long, long, short])
    assert made.truncated == 3
    room = 20 - len(b)
    assert rows(made)[:3] == [
        framed_as(tokenizer, a[:room], b),
        framed_as(tokenizer, b, a[:room]),
        framed_as(tokenizer, a[:10], a[:10]),
    ]
    cut = AlignedEncoder(tokenizer, 22).texts([long, short, long])
    assert cut.truncated == 2 and rows(cut)[0] == framed_as(tokenizer, a[:20])


def test_texts_of_nothing_give_the_frame_alone(tokenizer: Tokenizer) -> None:
    encoder = AlignedEncoder(tokenizer, 16)
    frame = framed_as(tokenizer, [])
    assert rows(encoder.texts([""])) == [frame]
    assert rows(encoder.texts([])) == [] and encoder.texts([], []).truncated == 0
    if tokenizer.kind != "bpe":  # byte-level BPE has a piece for every byte
        assert rows(encoder.texts(["\u200b", " \t\n", "\ufeff"])) == [frame] * 3 or tokenizer.kind == "unigram"


def test_special_tokens_spelled_in_a_text_are_ordinary_text(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.40."""
    special = {tokenizer.token(id) for id in tokenizer.special_ids} | {"[MASK]", "[SEP]", "</s>", "<mask>"}
    text = " ".join(["Ada", *special, "".join(special)])
    encoder = AlignedEncoder(tokenizer, 4000)
    forbidden = set(tokenizer.special_ids) - {tokenizer.unk_token_id}
    frame = [id for id in framed_as(tokenizer, [], []) if id in forbidden]
    for row in rows(encoder.texts([text], [text])) + rows(encoder.windows([text], [text], 16)):
        assert [id for id in row if id in forbidden] == frame
    word = rows(encoder.words([sorted(special)], 0))[0]
    assert [id for id in word if id in forbidden] == framed_as(tokenizer, [])


def test_a_text_that_is_no_text_is_an_error_that_shows_it(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.40: a lone surrogate, None, a number out of an empty cell."""
    encoder = AlignedEncoder(tokenizer, 16)
    for bad, shown in (("half \ud83d", r"half \\ud83d"), (None, "None"), (float("nan"), "nan")):
        with pytest.raises(UnmaskError, match=f"can't be tokenised[^$]*the text '?{shown}"):
            encoder.texts(["fine", bad])  # type: ignore[list-item]
    with pytest.raises(UnmaskError, match="can't be tokenised"):
        encoder.windows(["who?"], ["\ud83d lives"], 4)
    with pytest.raises(UnmaskError, match="can't be tokenised"):
        encoder.words([["fine", "\udc00"]], 4)


def test_a_tokenizer_without_a_separator_frames_no_pairs() -> None:
    content, config = small("wordpiece").documents()
    pieces = content["model"]["vocab"]
    content["model"]["vocab"] = {("[X]" if piece == "[SEP]" else piece): id for piece, id in pieces.items()}
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[SEP]"]
    bare = Tokenizer({**content, "post_processor": None}, {k: v for k, v in config.items() if v != "[SEP]"})
    encoder = AlignedEncoder(bare, 16)
    assert rows(encoder.texts(["ok"])) == [ids(bare, "ok")]
    with pytest.raises(UnmaskError, match="frames no pairs"):
        encoder.texts(["ok"], ["then"])
    with pytest.raises(UnmaskError, match="frames no pairs"):
        encoder.windows(["ok"], ["then"], 4)
    with pytest.raises(UnmaskError, match="without any token.*\n.*text 1"):
        encoder.texts(["ok", ""])


def test_a_length_that_the_frame_fills_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UnmaskError, match="texts of 2 tokens have no room"):
        AlignedEncoder(tokenizer, 2)
    encoder = AlignedEncoder(tokenizer, 3)
    assert len(rows(encoder.texts(["Ada lives"]))[0]) == 3
    with pytest.raises(UnmaskError, match="pairs of texts of 3 tokens have no room"):
        encoder.texts(["Ada"], ["lives"])


def test_lower_case_texts_give_the_same_ids_and_offsets_of_the_original() -> None:
    """A capital dotted I becomes two characters."""
    cased, text = small("wordpiece"), "İİ ADA İ Rome"
    encoder = AlignedEncoder(cased, 64, lowercase=True)
    assert rows(encoder.texts([text])) == [framed_as(cased, ids(cased, text.lower()))]
    assert rows(encoder.words([text.split()], 0)) == rows(encoder.texts([text]))
    windows = encoder.windows(["A"], [text], 4)
    cut = {text[begin:end] for begin, end in windows.offsets_M2}
    assert {"ADA", "Rome"} <= cut or {"A", "D"} & cut
    assert (windows.offsets_M2[:, 1] <= len(text)).all()
    ends = [int(end) for begin, end in windows.offsets_M2 if begin == text.index("R")]
    assert ends and windows.offsets_M2[-1, 1] == len(text)


# --- offsets -------------------------------------------------------------------------------------------------------------
def check_offsets(tokenizer: Tokenizer, text: str) -> None:
    """Whole characters, in order, without white space at the edges, and each token's own letters inside."""
    windows = AlignedEncoder(tokenizer, 4000).windows(["a"], [text], 16)
    begins, ends = (set(side.tolist()) for side in clusters(code_points(text)))
    last = 0
    for place, (begin, end) in zip(windows.place_M, windows.offsets_M2.tolist(), strict=True):
        piece, cut = content(tokenizer, windows.ids_T[place]), text[begin:end]
        assert last <= begin <= end <= len(text), (text, begin, end)
        assert begin == end or (begin in begins and end in ends and cut == cut.strip())
        assert piece in folded(cut), (text, piece, cut)
        last = begin


@pytest.mark.parametrize("text", TORTURE)
def test_B054_B055_B070_B172_offsets_cut_whole_characters_out_of_the_given_text(
    tokenizer: Tokenizer, text: str
) -> None:
    """TASKS.md 3.1, 3.30; also with line breaks of Windows, and in the middle of other text."""
    check_offsets(tokenizer, text)
    check_offsets(tokenizer, f"{text} Ada\r\n{text}")
    assert marked(tokenizer, f"{text} Ada {text}", "Ada") == "Ada"


@settings(deadline=None)
@given(st.text(st.sampled_from([*"aZ é1,.#\t\n", *"".join(TORTURE)]), max_size=25), st.sampled_from(KINDS))
def test_offsets_are_right_for_any_mixture_of_such_characters(text: str, kind: str) -> None:
    check_offsets(small(kind), text)


def test_B160_an_accent_an_emoji_and_a_syllable_are_taken_in_whole(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.1, 3.27: half-open, in code points."""
    assert max(end for _, end in spans(tokenizer, "cafe\u0301")) == 5
    assert marked(tokenizer, "the cafe\u0301 there", "cafe") == "cafe\u0301"
    assert marked(tokenizer, "\U0001f469\u200d\U0001f4bb Ada lives in Rome", "Rome") == "Rome"
    assert spans(tokenizer, "\U0001f469\u200d\U0001f4bb")[-1] == (0, 3)
    syllable = "\u1112\u1161\u11ab"
    assert {span for span in spans(tokenizer, f"{syllable} x") if span[1] <= 3 and span[0] < span[1]} == {(0, 3)}


def test_repeated_emoji_stand_where_they_are_known_or_not(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.30."""
    text = "ok \U0001f602\U0001f602\U0001f602 then"
    assert marked(tokenizer, text, "\U0001f602\U0001f602\U0001f602") == "\U0001f602\U0001f602\U0001f602"
    assert marked(tokenizer, text, "then") == "then"


def test_B156_B157_B161_a_number_is_cut_out_whole_by_its_pieces(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.2, 3.3, 3.6: characters, never counts of tokens; offset 0 is an offset."""
    for text in ("5.975,74 euros", "costs 5.975,74 now", "7.7"):
        number = next(word for word in text.split() if word[0].isdigit())
        assert marked(tokenizer, text, number) == number


# --- words ----------------------------------------------------------------------------------------------------------------
def test_B056_B071_B072_B074_B075_every_word_has_one_place_even_if_it_has_no_piece(tokenizer: Tokenizer) -> None:
    """TASKS.md 3.5, 3.7."""
    given_rows = [
        WORDS,
        ["hello", "\u200b", "world"],
        [],
        ["1"],
        ["\ufeff"],
        ["hi", " ", "x", " "],
        ["Hello", "\x10", "!"],
    ]
    words = AlignedEncoder(tokenizer, 4000).words(given_rows, 8)
    filled = [row for row in given_rows if row]
    assert words.row_N.tolist() == [0, 1, 3, 4, 5, 6] and words.best_M.all() and words.cut == 0
    assert np.diff(words.word_starts).tolist() == [len(row) for row in filled]
    assert rows(words) == [framed_as(tokenizer, tokenizer.encode_words(row).ids.tolist()) for row in filled]
    for number, row in enumerate(filled):
        here = slice(words.word_starts[number], words.word_starts[number + 1])
        first = np.flatnonzero(tokenizer.encode_words(row).word_starts) + 1
        assert words.place_M[here].tolist() == first.tolist()
        assert words.word_M[here].tolist() == list(range(len(row)))
    assert words.sequences().unit_N.tolist() == [0, 1, 2, 3, 4, 5]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=30), max_size=4),
    st.integers(3, 40),
    st.integers(0, 12),
    st.sampled_from(KINDS),
)
def test_windows_hold_whole_words_and_all_of_them(
    given_rows: list[list[str]], length: int, overlap: int, kind: str
) -> None:
    """TASKS.md 3.4, 3.8, 3.13, B078: nothing is too long."""
    tokenizer = small(kind)
    words = AlignedEncoder(tokenizer, length).words(given_rows, overlap)
    assert (np.diff(words.starts) <= length).all()
    seen = list(zip(words.rows_M().tolist(), words.word_M.tolist(), strict=True))
    wanted = [(r, w) for r, row in enumerate(given_rows) for w in range(len(row))]
    assert sorted(set(seen)) == wanted
    assert sorted(pair for pair, best in zip(seen, words.best_M, strict=True) if best) == wanted
    firsts = [int(tokenizer.encode_words([given_rows[r][w]]).ids[0]) for r, w in seen]
    tokens = words.place_M + np.repeat(words.starts[:-1], np.diff(words.word_starts))
    assert words.ids_T[tokens].tolist() == firsts
    sequences = words.sequences({"tag": Labels(words.word_starts, words.place_M, words.word_M)})
    assert sequences.num_units == sum(map(bool, given_rows))


def test_a_word_longer_than_a_window_keeps_its_first_pieces(tokenizer: Tokenizer) -> None:
    long = "lives" * 40
    words = AlignedEncoder(tokenizer, 12).words([["Ada", long, "Rome"], ["Ada"]], 2)
    pieces = tokenizer.encode_words([long]).ids.tolist()
    if len(pieces) > 10:
        assert words.cut == 1
        assert framed_as(tokenizer, pieces[:10]) in rows(words)
    assert words.best_M.sum() == 4


def test_a_words_best_window_shows_most_of_what_is_around_it() -> None:
    tokenizer = small("wordpiece")
    row = ["ok"] * 60
    words = AlignedEncoder(tokenizer, 2 + 20 * len(ids(tokenizer, "ok"))).words([row], 8)
    first = words.word_M[words.word_starts[:-1]]
    assert first.tolist() == [0, 12, 24, 36, 48]
    window = np.repeat(np.arange(len(first)), np.diff(words.word_starts))
    chosen = window[words.best_M][np.argsort(words.word_M[words.best_M])]
    assert chosen.tolist() == [0] * 16 + [1] * 12 + [2] * 12 + [3] * 12 + [4] * 8


# --- questions and contexts -----------------------------------------------------------------------------------------------
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


# --- words of running text --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", TORTURE)
def test_words_of_running_text_are_whole_characters_and_leave_nothing_out_but_white_space(text: str) -> None:
    found = text_words(text)
    begins, ends = (set(side.tolist()) for side in clusters(code_points(text)))
    assert all(begin in begins and end in ends and begin < end for begin, end in found)
    assert "".join(text[begin:end] for begin, end in found) == "".join(text.split())
    assert all(last <= begin for (_, last), (begin, _) in zip(found, found[1:], strict=False))


def test_words_of_running_text_are_those_of_whole_word_masking() -> None:
    cut = lambda text: [text[begin:end] for begin, end in text_words(text)]
    assert cut("Ada's café, 用BERT。 7.7") == ["Ada", "'", "s", "café", ",", "用", "BERT", "。", "7", ".", "7"]
    assert cut("#\ufe0f\u20e3a cafe\u0301, e\u0301") == ["#\ufe0f\u20e3", "a", "cafe\u0301", ",", "e\u0301"]
    assert cut("") == cut(" \n") == []
    text = "Well , it doesn't work: a naïve café, 2024 times. 自然语言x"
    starts = WordSplitter().starts(text)
    at = [*np.flatnonzero(starts).tolist(), len(text)]
    assert cut(text) == [text[a:b].strip() for a, b in zip(at, at[1:], strict=False)]


# --- threads ------------------------------------------------------------------------------------------------------------------
def test_B081_B082_threads_share_an_encoder(tokenizer: Tokenizer) -> None:
    encoder = AlignedEncoder(tokenizer, 24)

    def job(number: int) -> list[list[int]]:
        text = f"Ada lives {number} " * (1 + number % 7)
        made = [encoder.texts([text], ["ok"]), encoder.words([text.split()], 2), encoder.windows(["ok"], [text], 4)]
        return [row for part in made for row in rows(part)]

    alone = [job(number) for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(job, range(40))) == alone


def test_the_encoder_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, unmask.text.aligned; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
