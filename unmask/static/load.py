"""Vectors from wherever they are: a folder of ours, or a file that another program wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.progress import Progress, quiet
from unmask.static.folder import is_static_folder, read_static_folder
from unmask.static.formats import VectorReport, read_file
from unmask.static.vectors import Vectors


def load_vectors(path: Path, *, limit: int = 0, progress: Progress = quiet) -> tuple[Vectors, VectorReport | None]:
    """The vectors of the `limit` most frequent words (0: all), and for a file, the report of its reading.

    A folder of ours is mapped into memory and opens at once; a file is read whole, at best once, and then converted.
    """
    if limit < 0:
        raise UnmaskError(f"limit is {limit}", where=str(path), do="ask for 1 word or more, or for all with 0")
    if not path.is_dir():
        return read_file(path, limit=limit, progress=progress)
    if not is_static_folder(path):
        raise UnmaskError(
            "this folder holds no static vectors", where=str(path), do="name a folder of unmask's, or a file of vectors"
        )
    vectors = read_static_folder(path).vectors
    if limit:
        vectors = replace(vectors, words=vectors.words.first(limit), matrix=vectors.matrix[:limit])
    return vectors, None
