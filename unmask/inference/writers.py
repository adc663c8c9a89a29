"""Files of vectors, written as a stream: whole under their name, or not there at all.

Legend: N texts, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.files import remove_leftovers, write_stream
from unmask.text.documents import Document

DType = Literal["float32", "float16"]
_HEADER = 128  # bytes; room for any number of rows


class VectorWriter(Protocol):
    """What takes vectors, block by block."""

    def write(self, vectors_ND: NDArray[np.float32], documents: Sequence[Document]) -> None:
        """The next vectors, and where their texts come from."""


@contextmanager
def vector_writer(
    path: Path, dtype: DType, *, keep_text: bool = False, about: Mapping[str, str] | None = None
) -> Iterator[VectorWriter]:
    """A writer for `path`, .npy or .parquet; when the block ends well the file is there, before it never.

    .npy holds the vectors alone [N, D]; .parquet has id (from 0), source, record, with `keep_text` also text, and
    vector, a list of D numbers, and `about` in its metadata. Raises UnmaskError for another extension and when there
    was no vector, CannotWriteError and DiskError like `write_file`.
    """
    if path.suffix not in (".npy", ".parquet"):
        raise UnmaskError(f"{path.name} is no .npy and no .parquet", where=str(path), do="give one of these extensions")
    if dtype not in ("float32", "float16"):
        raise UnmaskError(f"unknown type {dtype!r}", where="dtype", do="give float32 or float16")
    if keep_text and path.suffix == ".npy":
        raise UnmaskError("a .npy file has no place for texts", where=str(path), do="write .parquet to keep them")
    remove_leftovers(path.resolve().parent)  # those of a large file are large
    with write_stream(path) as file:
        writer: NpyWriter | ParquetWriter
        writer = NpyWriter(file, dtype) if path.suffix == ".npy" else ParquetWriter(file, dtype, keep_text, about or {})
        yield writer
        writer.close()


class NpyWriter:
    """NumPy's own format, version 1.0; the header gets its number of rows at the end."""

    def __init__(self, file: BinaryIO, dtype: DType):
        self._file, self._dtype = file, dtype
        self._rows = self._width = 0

    def write(self, vectors_ND: NDArray[np.float32], documents: Sequence[Document]) -> None:
        """Appends rows; where they come from has no place here."""
        if not self._rows:
            self._width = vectors_ND.shape[1]
            self._file.write(self._header())
        self._rows += len(vectors_ND)
        self._file.write(_narrowed(vectors_ND, self._dtype).tobytes())

    def close(self) -> None:
        """Puts the number of rows into the header."""
        _require_rows(self._rows)
        self._file.seek(0)
        self._file.write(self._header())

    def _header(self) -> bytes:
        shape = (self._rows, self._width)
        kind = "<f4" if self._dtype == "float32" else "<f2"
        text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        begin = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little")
        return begin + text.ljust(_HEADER - 11).encode("ascii") + b"\n"


class ParquetWriter:
    """One row group for each block."""

    def __init__(self, file: BinaryIO, dtype: DType, keep_text: bool, about: Mapping[str, str]):
        self._file, self._dtype, self._keep_text, self._about = file, dtype, keep_text, about
        self._rows = 0
        self._table: Any = None

    def write(self, vectors_ND: NDArray[np.float32], documents: Sequence[Document]) -> None:
        """Appends rows with what they come from."""
        import pyarrow as pa

        width = vectors_ND.shape[1]
        flat = pa.array(_narrowed(vectors_ND, self._dtype).ravel())
        columns = {
            "id": pa.array(np.arange(self._rows, self._rows + len(vectors_ND))),
            "source": pa.array([document.source for document in documents], pa.string()),
            "record": pa.array([document.record for document in documents], pa.int64()),
            **({"text": pa.array([document.text for document in documents], pa.string())} if self._keep_text else {}),
            "vector": pa.FixedSizeListArray.from_arrays(flat, width),
        }
        table = pa.table(columns)
        if self._table is None:
            self._table = self._begin(table.schema.with_metadata(dict(self._about)))
        self._table.write_table(table.replace_schema_metadata(dict(self._about)))
        self._rows += len(vectors_ND)

    def close(self) -> None:
        """Writes what parquet keeps at the end of a file."""
        _require_rows(self._rows)
        self._table.close()

    def _begin(self, schema: Any) -> Any:
        import pyarrow.parquet as pq

        texts = ["source", *(["text"] if self._keep_text else [])]
        return pq.ParquetWriter(  # numbers of vectors hardly ever repeat
            self._file, schema, use_dictionary=["source"], compression=dict.fromkeys(texts, "zstd")
        )


def _narrowed(vectors_ND: NDArray[np.float32], dtype: DType) -> NDArray[Any]:
    """Little-endian numbers of the wanted type."""
    if dtype == "float32":
        return np.ascontiguousarray(vectors_ND, "<f4")
    if np.abs(vectors_ND).max() > np.finfo(np.float16).max:
        raise UnmaskError(
            "a vector holds a number beyond float16's 65,504", where="dtype", do="write float32, or normalise"
        )
    return vectors_ND.astype("<f2")


def _require_rows(rows: int) -> None:
    if not rows:
        raise UnmaskError("there is no text to embed", do="check the sources and the field")
