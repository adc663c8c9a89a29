"""Writes files of vectors that other programs read.

Legend: V words, D dimension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.files import write_stream
from unmask.progress import Progress, quiet
from unmask.static.formats.report import FileFormat
from unmask.static.vectors import Vectors

_BLOCK = 4096  # words written at once
_TEXT_TEARS = re.compile(r"[\s\ud800-\udfff]")
_BINARY_TEARS = re.compile(r"[ \n\ud800-\udfff]")


def write_file(
    vectors: Vectors,
    path: Path,
    form: FileFormat,
    *,
    spaces: Literal["error", "underscore"] = "error",
    progress: Progress = quiet,
) -> None:
    """Writes all vectors, the most frequent word first; the file is there whole, or not at all.

    "word2vec" and "fasttext" are the same text with a header, "glove" is without one; numbers have as many digits as give
    back the same float32. White space of any kind would tear a word of a text file apart (a space or line feed one of a
    binary file), and half a surrogate pair is no UTF-8: UnmaskError names such words, unless `spaces` says to write _.
    """
    words = _safe(vectors.words.words, form, spaces)
    with write_stream(path) as file:
        if form != "glove":
            file.write(b"%d %d\n" % vectors.matrix.shape)
        for begin in range(0, len(words), _BLOCK):
            progress("writing vectors, words", begin, len(words))
            block = vectors.matrix[begin : begin + _BLOCK]
            rows = (_binary_rows if form == "word2vec-binary" else _text_rows)(words[begin : begin + _BLOCK], block)
            file.writelines(rows)
    progress("writing vectors, words", len(words), len(words))


def _text_rows(words: Sequence[str], block_RD: NDArray[np.float32]) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.cast(pa.array(block_RD.ravel()), pa.string())  # the shortest that give back the same float32
    lists = pa.FixedSizeListArray.from_arrays(numbers, block_RD.shape[1]).cast(pa.list_(pa.string()))
    for word, row in zip(words, pc.binary_join(lists, " ").to_pylist(), strict=True):
        yield f"{word} {row}\n".encode()


def _binary_rows(words: Sequence[str], block_RD: NDArray[np.float32]) -> Iterator[bytes]:
    for word, row in zip(words, block_RD.astype("<f4", copy=False), strict=True):
        yield word.encode() + b" " + row.tobytes() + b"\n"


def _safe(words: Sequence[str], form: FileFormat, spaces: Literal["error", "underscore"]) -> Sequence[str]:
    """The words as they can be written. UnmaskError where they can't, or where two would become one."""
    torn = _BINARY_TEARS if form == "word2vec-binary" else _TEXT_TEARS
    if not torn.search("".join(words)):
        return words
    bad = [word for word in words if torn.search(word)]
    if spaces == "error":
        raise UnmaskError(
            f"{len(bad):,} words hold white space, which would tear them apart in a {form} file: {_named(bad)}",
            where="writing vectors",
            do="write them with _ for white space, or keep a folder of unmask's",
        )
    safe = [torn.sub("_", word) for word in words]
    if len(set(safe)) < len(safe):
        known = set(words)
        doubled = [word for word in bad if torn.sub("_", word) in known] or bad
        raise UnmaskError(
            f"with _ for white space, words become equal to others: {_named(doubled)}",
            where="writing vectors",
            do="keep a folder of unmask's, or remove these words",
        )
    return safe


def _named(words: Sequence[str]) -> str:
    return ", ".join(repr(word) for word in words[:5]) + (" …" if len(words) > 5 else "")
