from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published import SPM_FILES, spm_model

from unmask.errors import DamagedError, UnmaskError
from unmask.text.sentencepiece_file import CONTROL, UNKNOWN, read_model
from unmask.text.tokenizer import Tokenizer


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def field(number: int, value: bytes | int | float) -> bytes:
    match value:
        case bytes():
            return varint(number << 3 | 2) + varint(len(value)) + value
        case float():
            return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def piece(text: str | bytes, score: float = 0.0, kind: int = 1) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return field(1, field(1, data) + field(2, score) + field(3, kind))


SPECIALS = piece("<pad>", kind=3) + piece("</s>", kind=3) + piece("<unk>", kind=2)
SMALL = SPECIALS + piece("▁", -1.0) + piece("a", -2.0)


def written(folder: Path, data: bytes) -> Path:
    (folder / "spiece.model").write_bytes(data)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    return folder


@pytest.mark.parametrize("family", SPM_FILES)
def test_pieces_scores_and_types_are_those_sentencepiece_reads(shared, tmp_path, family):
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "m").write_bytes(spm_model(shared, family))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=spm_model(shared, family))
    model = read_model(tmp_path / "m")
    ids = range(len(theirs))
    assert [p.text for p in model.pieces] == [theirs.id_to_piece(id) for id in ids]
    assert [p.score for p in model.pieces] == [theirs.get_score(id) for id in ids]
    assert [p.type == CONTROL for p in model.pieces] == [theirs.is_control(id) for id in ids]
    assert [p.type == UNKNOWN for p in model.pieces] == [theirs.is_unknown(id) for id in ids]
    assert len(model.charsmap) > 100_000


def test_a_small_model_made_by_hand_is_read(tmp_path):
    tokenizer = Tokenizer.load(written(tmp_path, SMALL))
    assert [tokenizer.token(id) for id in tokenizer.encode(["aa b"])[0].ids] == ["▁", "a", "a", "▁", "<unk>"]
    unknown_fields = SMALL + field(9, 5) + field(200, b"x") + field(77, 1.5) + varint(8 << 3 | 1) + bytes(8)
    assert Tokenizer.load(written(tmp_path, unknown_fields)).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no pieces"),
        (b"\x0a", "ends within a number"),
        (b"\x0a\xff\xff\xff\xff\x7f", "announces"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "announces"),
        (b"\x0a" + b"\xff" * 11, "more than 64 bits"),
        (b"\x0b\x00", "unknown kind 3"),
        (b"\x0f\x00", "unknown kind 7"),
        (field(1, 7), "a number instead of bytes"),
        (field(1, 1.5), "a fraction instead of bytes"),
        (field(1, field(1, 3)), "a number instead of bytes"),
        (field(1, field(1, b"a") + field(2, 3)), "a number instead of a fraction"),
        (field(1, field(1, b"a") + field(3, b"x")), "bytes instead of a number"),
        (piece(b"\xff\xfe"), "utf-8"),
        (piece(""), "blank"),
        (piece("x" * 5000), "too long"),
        (piece("a", float("nan")), "score"),
        (piece("a", float("-inf")), "score"),
        (piece("a", kind=0), "type"),
        (piece("a", kind=99), "type"),
        (piece("a") + piece("b"), "one unknown piece"),
        (SMALL + piece("<unk2>", kind=2), "one unknown piece"),
        (SMALL + piece("a"), "twice"),
        (SMALL + field(2, 5), "instead of bytes"),
        (SMALL + field(2, field(3, b"x")), "instead of a number"),
        (SMALL + field(3, field(2, 1)), "instead of bytes"),
        (SMALL + field(3, 1.0), "instead of bytes"),
    ],
)
def test_a_damaged_model_says_what_is_wrong_and_where(tmp_path, data, says):
    with pytest.raises(DamagedError, match=says) as error:
        Tokenizer.load(written(tmp_path, data))
    assert "spiece.model" in str(error.value)


def test_a_model_of_another_type_is_named_as_such(tmp_path):
    with pytest.raises(UnmaskError, match="no unigram model"):
        Tokenizer.load(written(tmp_path, SMALL + field(2, field(3, 2))))


def test_pieces_that_do_not_fit_the_family_are_refused(tmp_path):
    with pytest.raises(UnmaskError, match="</s>"):
        Tokenizer.load(written(tmp_path, piece("<unk>", kind=2) + piece("<pad>", kind=3)))
    with pytest.raises(UnmaskError, match="twice"):
        Tokenizer.load(written(tmp_path, SMALL + piece("<extra_id_5>")))


@pytest.mark.parametrize(
    "charsmap", [b"x", b"\xff" * 64, struct.pack("<I", 1 << 31), struct.pack("<I", 8) + b"\xff" * 40]
)
def test_a_damaged_table_of_replacements_is_an_ordinary_error_or_does_nothing(tmp_path, charsmap):
    """The library panics at some of them: no Exception."""
    try:
        tokenizer = Tokenizer.load(written(tmp_path, SMALL + field(3, field(2, charsmap))))
        tokenizer.encode(["aa (ＡＢＣ) … é 的"])
    except UnmaskError:
        pass


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_model_or_our_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.model"
    path.write_bytes(SPECIALS + data)
    try:
        assert read_model(path).pieces
    except UnmaskError:
        pass


def test_truncated_and_altered_files_are_never_anything_but_our_error(shared, tmp_path):
    data = spm_model(shared, "t5")
    rng = random.Random(0)
    refused = 0
    for _ in range(12):
        bad = bytearray(data)
        for _ in range(3):
            bad[rng.randrange(30_000)] = rng.randrange(256)
        for damaged in (bytes(bad), data[: rng.randrange(1, len(data) - 1)]):
            try:
                tokenizer = Tokenizer.load(written(tmp_path, damaged))
                tokenizer.encode(["some text, 的"])
            except UnmaskError:
                refused += 1
    assert refused > 12


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x00" * 500_000,  # blank pieces
        b"\x0a" + varint(1 << 40) + b"x" * 1000,  # a length that is not there
        SMALL + field(3, field(2, bytes(2_000_000))),  # a table of nothing
        field(9, b"\x0a\x00" * 500_000),  # much that nobody asked for
        b"".join(piece(f"p{n}") for n in range(20_000)),
    ],
)
def test_memory_stays_near_the_size_of_the_file(tmp_path, data):
    (tmp_path / "m").write_bytes(data)
    tracemalloc.start()
    began = time.process_time()
    try:
        read_model(tmp_path / "m")
    except UnmaskError:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * len(data) + 1_000_000
    assert time.process_time() - began < 4


def test_more_pieces_than_any_vocabulary_has_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.text.sentencepiece_file._MOST_PIECES", 4)
    (tmp_path / "m").write_bytes(SMALL)
    with pytest.raises(DamagedError, match="more than 4 pieces"):
        read_model(tmp_path / "m")
    monkeypatch.setattr("unmask.text.sentencepiece_file._LARGEST_FILE", 20)
    with pytest.raises(DamagedError, match="more than 0 MB"):
        read_model(tmp_path / "m")
