"""The bytes of a file of vectors, whatever compresses it, and what stands at their beginning: which format is it?

The content decides, not the name. Files that would have to be unpickled are refused: a pickle can run any program.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from unmask.errors import UnmaskError
from unmask.progress import Progress
from unmask.text.documents import DamagedInputError
from unmask.text.streams import BOM, CHUNK, Compression, decompressed

LONGEST_LINE = 2**26  # bytes; a million numbers of 60 characters
BLANKS = b" \t"
NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,7})[ \t]*\r?\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1b]")
_PICKLES = (".kv", ".model", ".pkl", ".pickle", ".wordvectors")
_SAVE_AS_TEXT = (
    "open it with the program that wrote it, and only if you trust it, and save the vectors as word2vec format"
)
_REFUSED = {
    b"\x93NUMPY": ("this is a NumPy array that another file of gensim's belongs to", _SAVE_AS_TEXT),
    b"PK\x03\x04": ("this is a zip archive", "unpack it and name the file of vectors in it"),
    b"BZh": ("this is compressed with bzip2", "unpack it, or use .gz or .zst"),
    b"\xfd7zXZ": ("this is compressed with xz", "unpack it, or use .gz or .zst"),
    b"\xba\x16\x4f\x2f": ("this is a fastText model (.bin), not a file of vectors", "use the .vec file beside it"),
    b"\xff\xfe": ("this is UTF-16 text", "convert it to UTF-8"),
    b"\xfe\xff": ("this is UTF-16 text", "convert it to UTF-8"),
}


@dataclass(frozen=True)
class Start:
    """What the first bytes tell: the numbers of the header, if there is one, and where the rows begin."""

    binary: bool
    dimension: int
    promised: int | None
    body: int


class Source:
    """An open file: `head`, its first megabyte or all of it, and then its chunks from the beginning."""

    def __init__(self, path: Path, file: BinaryIO, compression: Compression, progress: Progress):
        self.path, self._file, self._progress = path, file, progress
        self.size = os.fstat(file.fileno()).st_size
        self.compressed = bool(compression)
        self._chunks = decompressed(file, compression)
        self.head = b""
        while len(self.head) < CHUNK and (chunk := next(self._chunks, b"")):
            self.head += chunk

    def chunks(self, begin: int) -> Iterator[bytes]:
        """What follows the first `begin` bytes, which lie in the head; tells the progress on the way."""
        yield self.head[begin:]
        for chunk in self._chunks:
            self._progress("reading vectors, bytes", min(self._file.tell(), self.size - 1), self.size)
            yield chunk
        self._progress("reading vectors, bytes", self.size, self.size)


@contextmanager
def opened(path: Path, progress: Progress) -> Iterator[Source]:
    """Opens a file of vectors; UnmaskError where that can't be done, is not safe, or its compressed data break."""
    try:
        with open(path, "rb") as file:
            begin = file.read(4)
            file.seek(0)
            compression: Compression = (
                "gz" if begin[:2] == b"\x1f\x8b" else "zst" if begin == b"\x28\xb5\x2f\xfd" else ""
            )
            source = Source(path, file, compression, progress)
            _refuse(source)
            yield source
    except OSError as error:
        raise UnmaskError(f"cannot read: {error.strerror or error}", where=str(path), do="check the path") from error
    except DamagedInputError as error:
        raise UnmaskError(error.why, where=str(path), do=error.do) from error


def _refuse(source: Source) -> None:
    head = source.head
    if not head.strip():
        raise UnmaskError("the file is empty", where=str(source.path), do="name a file with vectors")
    if re.match(rb"\x80[\x02-\x05]", head):
        named = next((f" ({end})" for end in _PICKLES if source.path.name.endswith(end)), "")
        raise UnmaskError(
            f"this is a pickle{named}, which can run any program when it is opened; unmask never opens one",
            where=str(source.path),
            do=f"{_SAVE_AS_TEXT}: in gensim, model.wv.save_word2vec_format('vectors.bin', binary=True)",
        )
    for magic, (what, do) in _REFUSED.items():
        if head.startswith(magic):
            raise UnmaskError(what, where=str(source.path), do=do)


def look(source: Source) -> Start:
    """Finds the format. Without a header, the width is that of most of the first rows: words with spaces are rare."""
    skipped = len(BOM) if source.head.startswith(BOM) else 0
    header = _HEADER.match(source.head, skipped)
    body = header.end() if header else skipped
    told = int(header[2]) if header else 0
    if header and not told:
        raise UnmaskError("the header says that vectors have no numbers", where=f"{source.path}:1", do="get it again")
    if header and _is_binary(source.head[body:], told):
        return Start(True, told, int(header[1]), body)
    seen = _width(source.head[body:])
    if not header and not seen:
        raise UnmaskError(
            "this is no file of vectors: its lines are not words followed by numbers",
            where=f"{source.path}:1",
            do="give word2vec text or binary, GloVe text or fastText .vec",
        )
    if header and seen and told not in seen:
        raise UnmaskError(
            f"the header says {told} numbers a word, but the rows have {seen[0]}",
            where=f"{source.path}:1",
            do="correct the header, or remove it",
        )
    return Start(False, told or seen[0], int(header[1]) if header else None, body)


def _is_binary(body: bytes, dimension: int) -> bool:
    """Whether what follows a header is floats as they lie in memory: its first line is no row, and the rest isn't either."""
    fields = body.partition(b"\n")[0].split()
    if len(fields) >= dimension and all(NUMBER.fullmatch(field) for field in fields[-dimension:]):
        return False
    return _CONTROL.search(body) is not None or not _width(body)


def _width(body: bytes) -> list[int]:
    """How many numbers follow the word in the first rows, the most common first."""
    lines = body[: body.rfind(b"\n") + 1 or None].split(b"\n")[:1000]
    rows = [line.split() for line in lines if line.strip()]
    widths = Counter(len(row) - 1 for row in rows if len(row) > 1 and NUMBER.fullmatch(row[-1]))
    return [width for width, _ in widths.most_common()]
