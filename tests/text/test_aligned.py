"""Texts and pairs stand in their frame, and every token knows its characters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from aligned_rows import framed_as, ids, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from torture import KINDS, TORTURE, content, folded, small

from unmask.errors import UnmaskError
from unmask.text.aligned import AlignedEncoder
from unmask.text.graphemes import clusters
from unmask.text.sequences import Labels
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import code_points


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return small(request.param)


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
