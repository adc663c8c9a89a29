"""SentencePiece's .model files, read without SentencePiece: pieces, scores and the table that normalises text.

The file is a protobuf message of a stranger. The reader below knows four kinds of field, follows no nesting but the two
levels it needs, checks each length against what is there, and takes no more memory than the file has bytes (times a
constant): whatever is wrong becomes a DamagedError.

    model     1: piece (repeated), 2: how it was trained, 3: how it normalises
    piece     1: text, 2: score (a log-probability), 3: type
    trained   3: type of model
    normalise 2: table of replacements ("charsmap"), compiled
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from unmask.errors import DamagedError, UnmaskError

ORDINARY, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces
_UNIGRAM = 1  # type of model
_LARGEST_FILE = 64 << 20  # bytes; published ones are below 6 MB
_MOST_PIECES = 1 << 20  # published ones have up to 256,000
_LONGEST_PIECE = 1 << 12  # bytes
_DO_GET_ANOTHER = "Take the file from its source again, or choose another tokenizer."

Value = int | float | memoryview
_WIRE_OF = {int: "a number", float: "a fraction", memoryview: "bytes"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its id is its place."""

    text: str
    score: float = 0.0
    type: int = ORDINARY


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """A unigram model; `charsmap` is empty where text is not normalised."""

    pieces: tuple[Piece, ...]
    charsmap: bytes


def read_model(path: Path) -> SentencePieceModel:
    """Reads a unigram model; DamagedError for a file that is none, UnmaskError for a model of another type."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ValueError(f"it has more than {_LARGEST_FILE >> 20} MB")
        return _model(memoryview(path.read_bytes()))
    except (OSError, ValueError) as error:
        what = f"{path.name} is no readable SentencePiece model: {error}"
        raise DamagedError(what, where=str(path), do=_DO_GET_ANOTHER) from error


def _model(data: memoryview) -> SentencePieceModel:
    pieces: list[Piece] = []
    charsmap, kind = b"", _UNIGRAM
    for field, value in _fields(data):
        if field == 1:
            pieces.append(_piece(_bytes(value)))
            if len(pieces) > _MOST_PIECES:
                raise ValueError(f"it has more than {_MOST_PIECES:,} pieces")
        elif field == 2:
            kind = next((_number(inner) for name, inner in _fields(_bytes(value)) if name == 3), kind)
        elif field == 3:
            charsmap = next((bytes(_bytes(inner)) for name, inner in _fields(_bytes(value)) if name == 2), charsmap)
    if kind != _UNIGRAM:
        raise UnmaskError(
            "The SentencePiece model is no unigram model.",
            do="Only unigram models are read; for a BPE model, take the folder's tokenizer.json.",
        )
    _check(pieces)
    return SentencePieceModel(tuple(pieces), charsmap)


def _check(pieces: list[Piece]) -> None:
    if not pieces:
        raise ValueError("it has no pieces")
    if len({piece.text for piece in pieces}) < len(pieces):
        raise ValueError("a piece occurs twice")
    if sum(piece.type == UNKNOWN for piece in pieces) != 1:
        raise ValueError("it must have one unknown piece")


def _piece(data: memoryview) -> Piece:
    text, score, kind = memoryview(b""), 0.0, ORDINARY
    for field, value in _fields(data):
        if field == 1:
            text = _bytes(value)
        elif field == 2:
            score = _fraction(value)
        elif field == 3:
            kind = _number(value)
    if not 0 < len(text) <= _LONGEST_PIECE or not math.isfinite(score) or not ORDINARY <= kind <= BYTE:
        raise ValueError("a piece is blank, too long, or has an impossible score or type")
    return Piece(bytes(text).decode("utf-8"), score, kind)


# --- protobuf ----------------------------------------------------------------------------------------------------------
def _fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field of one message; submessages and strings come as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: Value
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
            case 1:
                value, at = struct.unpack("<d", _take(data, at, 8))[0], at + 8
            case 2:
                size, at = _varint(data, at)
                value, at = _take(data, at, size), at + size
            case 5:
                value, at = struct.unpack("<f", _take(data, at, 4))[0], at + 4
            case other:
                raise ValueError(f"byte {at} begins a field of unknown kind {other}")
        yield tag >> 3, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A whole number of 7 bits a byte, the lowest first, at most 64 bits; and the place behind it."""
    number = 0
    for place in range(10):
        if at + place >= len(data):
            raise ValueError("it ends within a number")
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise ValueError(f"byte {at} begins a number of more than 64 bits")


def _take(data: memoryview, at: int, size: int) -> memoryview:
    if size > len(data) - at:
        raise ValueError(f"byte {at} announces {size} bytes, {len(data) - at} are left")
    return data[at : at + size]


def _bytes(value: Value) -> memoryview:
    return value if isinstance(value, memoryview) else _refuse(value, "bytes")


def _number(value: Value) -> int:
    return value if isinstance(value, int) else _refuse(value, "a number")


def _fraction(value: Value) -> float:
    return value if isinstance(value, float) else _refuse(value, "a fraction")


def _refuse(value: Value, wanted: str) -> NoReturn:
    raise ValueError(f"a field holds {_WIRE_OF[type(value)]} instead of {wanted}")
