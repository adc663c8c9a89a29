"""A folder with static vectors: opens at once however many they are, and keeps what made them.

    config.json            kind, dimension, number of words, and the settings they were learned with, if by us
    words.txt              UTF-8, a word a line, the most frequent first
    vectors.safetensors    "vectors" [V, D]; "counts" [V] of the words; "output" [V, D], Word2Vec's other matrix or GloVe's,
                           and "ngrams" [B, D], where they are kept
    manifest.json          sizes and SHA-256 of these files

Legend: V words, D dimension, B buckets of n-grams.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config.static import Glove, Word2Vec
from unmask.errors import DamagedError, UnmaskError
from unmask.files import MANIFEST, check_sizes, read_checked, read_manifest, write_folder
from unmask.settings import parse, plain
from unmask.static.ngrams import Ngrams
from unmask.static.tensor_file import map_tensors, write_tensors
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts

FORMAT = "unmask static vectors"
CONFIG, WORDS, TENSORS = "config.json", "words.txt", "vectors.safetensors"


@dataclass(frozen=True, eq=False)
class StaticFolder:
    """What a folder holds: the vectors, how they were learned (None: they come from elsewhere), and the output matrix."""

    vectors: Vectors
    settings: Word2Vec | Glove | None = None
    output: NDArray[np.float32] | None = None  # [V, D]; with hierarchical softmax [V-1, D], one row for each inner node


def is_static_folder(folder: Path) -> bool:
    """Whether a folder is one of these, by its manifest."""
    if not (folder / MANIFEST).is_file():
        return False
    return bool(read_manifest(folder)["about"].get("format") == FORMAT)


def write_static_folder(folder: Path, held: StaticFolder, *, overwrite: bool = False) -> None:
    """Writes the folder, whole or not at all. UnmaskError when a word holds a line feed; see `write_folder` for others."""
    words = held.vectors.words
    if torn := next((word for word in words.words if "\n" in word), None):
        raise UnmaskError(f"the word {torn!r} holds a line feed", where=str(folder), do="leave this word out")
    ngrams = held.vectors.ngrams
    assert ngrams is None or isinstance(held.settings, Word2Vec), "who has n-grams knows how they were learned"
    config = {
        "kind": held.settings.kind if held.settings else "converted",
        "dimension": held.vectors.dimension,
        "words": len(words),
        **({"settings": plain(held.settings)} if held.settings else {}),
    }
    arrays: dict[str, NDArray[Any]] = {
        "vectors": held.vectors.matrix,
        "counts": words.counts,
        **({"output": held.output} if held.output is not None else {}),
        **({"ngrams": ngrams.matrix} if ngrams else {}),
    }
    with write_folder(folder, replace=overwrite, about={"format": FORMAT}) as temporary:
        (temporary / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (temporary / WORDS).write_bytes("".join(f"{word}\n" for word in words.words).encode("utf-8", "surrogatepass"))
        write_tensors(temporary / TENSORS, arrays)


def read_static_folder(folder: Path) -> StaticFolder:
    """Opens a folder; the vectors stay on the disk until they are used, and can't be changed.

    DamagedError when a file is missing, cut short or not what its manifest says; of the large one only the size is
    compared (`unmask.files.verify_folder` reads all of it).
    """
    manifest = check_sizes(folder)
    if manifest["about"].get("format") != FORMAT:
        raise UnmaskError("this folder holds no static vectors", where=str(folder), do="name a folder that does")
    settings = _settings(folder, read_checked(folder, CONFIG, manifest))
    words = read_checked(folder, WORDS, manifest).decode("utf-8", "surrogatepass").split("\n")[:-1]
    arrays = map_tensors(folder / TENSORS)
    _check(folder, len(words), arrays)
    cut = settings.ngrams if isinstance(settings, Word2Vec) else None
    ngrams = Ngrams(cut, arrays["ngrams"]) if cut and cut.buckets and "ngrams" in arrays else None
    vectors = Vectors(WordCounts(words, arrays["counts"]), arrays["vectors"], ngrams)
    return StaticFolder(vectors, settings, arrays.get("output"))


def _settings(folder: Path, data: bytes) -> Word2Vec | Glove | None:
    where = str(folder / CONFIG)
    try:
        told = json.loads(data).get("settings")
    except (ValueError, AttributeError) as error:
        raise _damaged(folder, f"{CONFIG} is not JSON of ours") from error
    if told is None:
        return None
    return parse(Glove, told, where=where) if told.get("kind") == "glove" else parse(Word2Vec, told, where=where)


def _check(folder: Path, words: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """DamagedError unless the arrays are those of so many words."""
    matrix, counts = arrays.get("vectors"), arrays.get("counts")
    if matrix is None or matrix.ndim != 2 or len(matrix) != words or counts is None or counts.shape != (words,):
        raise _damaged(folder, f"{TENSORS} does not hold vectors and counts of the {words:,} words of {WORDS}")


def _damaged(folder: Path, why: str) -> DamagedError:
    return DamagedError(why, where=str(folder), do="use an earlier copy of the folder or write it again")
