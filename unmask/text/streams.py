"""Bytes of a file, in chunks, whatever compresses it; and the lines in them. Memory stays at one chunk or one line."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal

from unmask.text.documents import DamagedInputError, Reading

Compression = Literal["", "gz", "zst"]
CHUNK = 1 << 20
ZSTD_CHUNK = 4096  # one compressed chunk can become 128 KiB for every 4 bytes, all at once
BOMB_FLOOR = 64 * 2**20  # smaller outputs are harmless whatever their ratio
BOM = b"\xef\xbb\xbf"
DO_UNPACK = "get the file again, or unpack it and see what is wrong"


def file_chunks(path: Path, compression: Compression, reading: Reading) -> Iterator[bytes]:
    """The decompressed bytes of a file; DamagedInputError where the data end or break early."""
    try:
        with path.open("rb") as file:
            chunks = decompressed(file, compression)
            yield from limited(chunks, path.stat().st_size, reading) if compression else chunks
    except OSError as error:
        raise DamagedInputError(
            f"cannot read: {error.strerror or error}", "check the path and its permissions"
        ) from error


def member_chunks(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, compression: Compression, reading: Reading
) -> Iterator[bytes]:
    """The decompressed bytes of one member of a zip file, never written to disk."""
    try:
        with archive.open(member) as file:
            chunks = decompressed(file, compression)
            yield from limited(chunks, max(member.compress_size, 1), reading)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DamagedInputError(f"damaged zip member: {error}", DO_UNPACK) from error
    except (RuntimeError, NotImplementedError) as error:
        raise DamagedInputError(f"cannot unpack this zip member: {error}", "unpack it first") from error


def decompressed(file: IO[bytes], compression: Compression) -> Iterator[bytes]:
    """Chunks of at most 1 MiB (zstd: what 4 KiB of input become)."""
    match compression:
        case "gz":
            return _gzip_chunks(file)
        case "zst":
            return _zstd_chunks(file)
        case _:
            return iter(lambda: file.read(CHUNK), b"")


def _gzip_chunks(file: IO[bytes]) -> Iterator[bytes]:
    done = 0
    try:
        with gzip.GzipFile(fileobj=file) as plain:
            while chunk := plain.read(CHUNK):
                done += len(chunk)
                yield chunk
    except EOFError as error:
        raise DamagedInputError(f"gzip data end early, after {done:,} bytes of text: truncated", DO_UNPACK) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DamagedInputError(f"damaged gzip data after {done:,} bytes of text: {error}", DO_UNPACK) from error


def _zstd_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Frame by frame: the library's own stream reader takes a truncated file for a complete one."""
    import zstandard

    done, frame, data = 0, None, b""
    try:
        while data or (data := file.read(ZSTD_CHUNK)):
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            if chunk := frame.decompress(data):
                done += len(chunk)
                yield chunk
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise DamagedInputError(f"damaged zstd data after {done:,} bytes of text: {error}", DO_UNPACK) from error
    if frame is not None:
        raise DamagedInputError(f"zstd data end early, after {done:,} bytes of text: truncated", DO_UNPACK)


def limited(chunks: Iterable[bytes], compressed_size: int, reading: Reading) -> Iterator[bytes]:
    """The same chunks, until they are so much more than the file that it cannot be text."""
    most = max(BOMB_FLOOR, compressed_size * reading.options.max_expansion)
    done = 0
    for chunk in chunks:
        done += len(chunk)
        if done > most:
            raise DamagedInputError(
                f"{compressed_size:,} compressed bytes become more than {most:,}: this looks like a decompression bomb",
                "if the file is really text, unpack it first",
            )
        yield chunk


def plain_text(chunks: Iterable[bytes], reading: Reading) -> Iterator[bytes]:
    """The same bytes without a leading byte order mark, and with LF for CRLF and lone CR."""
    held, start = b"", True
    for chunk in chunks:
        data = held + chunk
        if start and len(data) < len(BOM):
            held = data
            continue
        data, start, held = (_without_bom(data, reading) if start else data), False, b""
        if data.endswith(b"\r"):  # may be half of a CRLF
            data, held = data[:-1], b"\r"
        if data:
            yield _line_feeds(data)
    if held:
        yield _line_feeds(held)


def _without_bom(data: bytes, reading: Reading) -> bytes:
    reading.report.boms += data.startswith(BOM)
    return data.removeprefix(BOM)


def _line_feeds(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """(line number from 1, its bytes) of text with LF line ends; None in place of a line longer than the cap.

    Only LF ends a line: U+2028, U+2029, U+0085, VT, FF and FS are characters like any other.
    """
    number, pending, size = 1, list[bytes](), 0
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        size += len(first)
        if size <= max_bytes:
            pending.append(first)
        for part in more:
            yield number, (b"".join(pending) if size <= max_bytes else None)
            number, pending, size = number + 1, [part], len(part)
        if size > max_bytes:
            pending.clear()  # its length is known to be too much; its text is not kept
    if size:
        yield number, (b"".join(pending) if size <= max_bytes else None)


def pieces(chunks: Iterable[bytes], separator: str, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """(line it begins on, bytes) of each document in text, parted by "file", "blank", "line" or a string.

    Runs of blank lines are one separator. None stands for a document longer than `max_bytes`.
    """
    match separator:
        case "line":
            return lines(chunks, max_bytes)
        case "blank":
            return _paragraphs(lines(chunks, max_bytes), max_bytes)
        case "file":
            return _split(chunks, None, max_bytes)
        case _:
            return _split(chunks, separator.replace("\r\n", "\n").replace("\r", "\n").encode(), max_bytes)


def _paragraphs(numbered: Iterable[tuple[int, bytes | None]], max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    begin, kept, size = 0, list[bytes](), 0
    for number, line in numbered:
        if line is None or line.strip():
            begin = begin or number
            size += max_bytes + 2 if line is None else len(line) + 1
            if size <= max_bytes + 1:
                kept.append(line or b"")
            else:
                kept.clear()
        elif begin:
            yield begin, (b"\n".join(kept) if size <= max_bytes + 1 else None)
            begin, kept, size = 0, [], 0
    if begin:
        yield begin, (b"\n".join(kept) if size <= max_bytes + 1 else None)


def _split(chunks: Iterable[bytes], separator: bytes | None, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Parts between separators (no separator: the whole file, even an empty one); nothing after a final separator."""
    line, kept, dropped = 1, bytearray(), False
    seen = 0  # bytes of `kept` in which no separator begins
    overlap = len(separator) - 1 if separator else 0
    for chunk in chunks:
        kept += chunk
        while separator and (at := kept.find(separator, seen)) >= 0:
            yield line, (None if dropped or at > max_bytes else bytes(kept[:at]))
            line += kept.count(b"\n", 0, at + len(separator))
            del kept[: at + len(separator)]
            seen, dropped = 0, False
        seen = max(len(kept) - overlap, 0)
        if seen > max_bytes:  # too long: forget it, but keep counting lines and looking for its end
            line, dropped = line + kept.count(b"\n", 0, seen), True
            del kept[:seen]
            seen = 0
    if kept or dropped or separator is None:
        yield line, (None if dropped else bytes(kept))
