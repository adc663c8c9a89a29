"""A chunk of documents made ready in a worker process and kept in one file, until the whole corpus is known.

A part file can be believed after a crash: it is written at once, begins with a checksum, and carries a stamp of the
texts and the recipe it was made from. Layout: SHA-256 of the rest (32 bytes), stamp (32 bytes), arrays as safetensors.

Legend: D documents, S sentences, T tokens of one chunk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from unmask.errors import DamagedError, UnmaskError
from unmask.files import write_file
from unmask.text.clean import Language, normalise, split_sentences
from unmask.text.duplicates import band_keys, fingerprint
from unmask.text.shards import TOKENIZER
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import HANZI, WordSplitter, character_classes

PREPARATION = 3  # version of what a part holds and how it is made
_BATCH = 1 << 17  # characters given to the tokenizer at once: its results take some 100 bytes a token while they live


@dataclass(frozen=True, slots=True)
class Recipe:
    """How chunks become parts: all that decides the content of a part besides its texts."""

    folder: Path  # of the parts, with the tokenizer inside
    tokenizer: str  # its fingerprint
    language: Language
    words: WordSplitter
    near_duplicates: bool
    versions: str  # of the libraries that split and tokenise


@dataclass(slots=True)
class Chunk:
    """Some documents, in order: a job for a worker."""

    recipe: Recipe
    number: int
    texts: list[str] = field(default_factory=list)
    origins: list[tuple[int, int]] = field(default_factory=list)  # index of the source, record number
    names: dict[int, str] = field(default_factory=dict)  # of these sources, for errors

    def stamp(self) -> bytes:
        """SHA-256 of the recipe, the texts and where they come from: a part with this stamp need not be made again."""
        recipe = self.recipe
        made_by = (recipe.tokenizer, recipe.language, recipe.words.fingerprint, recipe.near_duplicates, recipe.versions)
        digest = hashlib.sha256(repr((PREPARATION, *made_by)).encode())
        for text, origin in zip(self.texts, self.origins, strict=True):
            add_document(digest, text, origin)
        return digest.digest()


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of the documents of a chunk that hold text; `empty` of them held none."""

    tokens: NDArray[Any]  # [T]
    words: NDArray[np.uint8]  # [T]
    sentence_lengths: NDArray[np.int64]  # [S], in tokens
    document_lengths: NDArray[np.int64]  # [D], in sentences
    document_tokens: NDArray[np.int64]  # [D]
    origins: NDArray[np.int64]  # [D, 2]
    exact: NDArray[np.uint64]  # [D, 2]
    bands: NDArray[np.uint64]  # [D, bands], or [D, 0]
    counts: NDArray[np.int64]  # [D, 3]: characters, hanzi and unknown tokens of each document
    empty: NDArray[np.int64]  # [2]: documents, and sentences of other documents, without tokens


@dataclass(frozen=True, slots=True)
class Made:
    """A worker's answer."""

    number: int
    characters: int
    documents: int  # that hold text
    reused: bool  # an earlier run had made it


def make_part(chunk: Chunk) -> Made:
    """Cleans, splits, fingerprints and tokenises a chunk and writes its part, unless the right one is there already."""
    path, stamp = part_path(chunk.recipe.folder, chunk.number), chunk.stamp()
    content = _checked(path) if path.is_file() else None
    reused = content is not None and content[:32] == stamp
    if content is None or not reused:
        content = stamp + save({name: np.ascontiguousarray(array) for name, array in _prepare(chunk).items()})
        write_file(path, hashlib.sha256(content).digest() + content)
    return Made(chunk.number, sum(map(len, chunk.texts)), len(load(content[32:])["origins"]), reused)


def read_part(folder: Path, number: int) -> Part:
    """A part, checked. Raises DamagedError when it changed since it was written."""
    path = part_path(folder, number)
    content = _checked(path)
    if content is None:
        raise DamagedError("A part file changed while the corpus was built.", where=str(path), do="Run the same again.")
    return Part(**load(content[32:]))


def part_path(folder: Path, number: int) -> Path:
    """Where the part of a chunk is."""
    return folder / f"{number:06}.part"


def add_document(digest: Any, text: str, origin: tuple[int, int]) -> None:
    """Adds a document to a running hash so that no other list of documents gives the same."""
    data = text.encode("utf-8", "surrogatepass")
    digest.update(b"%d %d %d\n" % (*origin, len(data)))
    digest.update(data)


def _checked(path: Path) -> bytes | None:
    content = path.read_bytes()
    return content[32:] if hashlib.sha256(content[32:]).digest() == content[:32] else None


@lru_cache(maxsize=1)
def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


def _prepare(chunk: Chunk) -> dict[str, NDArray[Any]]:
    """The arrays of a part. An error of a library becomes one that names the document."""
    try:
        return _arrays(chunk)
    except (KeyboardInterrupt, SystemExit, MemoryError, UnmaskError):
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        for text, origin in zip(chunk.texts, chunk.origins, strict=True):
            try:
                _arrays(replace(chunk, texts=[text], origins=[origin]))
            except BaseException as cause:
                raise UnmaskError(
                    f"This document can't be prepared: {type(cause).__name__}: {cause}",
                    where=f"{chunk.names[origin[0]]}, record {origin[1]}",
                    do="Take it out of the corpus, and please report it: no text should do this.",
                ) from cause
        raise error


def _arrays(chunk: Chunk) -> dict[str, NDArray[Any]]:
    tokenizer = _tokenizer(chunk.recipe.folder / TOKENIZER)
    texts = [normalise(text) for text in chunk.texts]
    sentences = [split_sentences(text, chunk.recipe.language) for text in texts]
    if tokenizer.kind == "bpe":
        sentences = [with_spaces(text, parts) for text, parts in zip(texts, sentences, strict=True)]
    every = [sentence for document in sentences for sentence in document]
    ids, words, lengths_S = _encode(tokenizer, every, chunk.recipe.words)
    document_S = np.repeat(np.arange(len(texts)), [len(document) for document in sentences])
    tokens_D = np.bincount(document_S, lengths_S, len(texts)).astype(np.int64)
    unknown_D = np.bincount(np.repeat(document_S, lengths_S)[ids == tokenizer.unk_token_id], minlength=len(texts))
    some_S, some_D = lengths_S > 0, tokens_D > 0
    full = [text for text, some in zip(texts, some_D, strict=True) if some]
    blank = int((~some_S & some_D[document_S]).sum())
    return {
        "tokens": ids,
        "words": words,
        "sentence_lengths": lengths_S[some_S],
        "document_lengths": np.bincount(document_S[some_S], minlength=len(texts))[some_D],
        "document_tokens": tokens_D[some_D],
        "origins": np.array(chunk.origins, np.int64).reshape(-1, 2)[some_D],
        "exact": np.frombuffer(b"".join(map(fingerprint, full)), np.uint64).reshape(-1, 2),
        "bands": _bands(full if chunk.recipe.near_duplicates else [], len(full)),
        "counts": np.column_stack([_lengths(full), _hanzi(full), unknown_D[some_D]]),
        "empty": np.array([len(texts) - len(full), blank]),
    }


def with_spaces(text: str, sentences: list[str]) -> list[str]:
    """Each sentence with the white space before it as one space: byte-level pieces tell "word" from " word"."""
    spaced: list[str] = []
    end = 0
    for sentence in sentences:
        begin = text.index(sentence, end)
        spaced.append(" " * (0 < end < begin) + sentence)
        end = begin + len(sentence)
    return spaced


def _encode(
    tokenizer: Tokenizer, sentences: list[str], splitter: WordSplitter
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Ids and word starts of sentences end to end, and the length of each sentence."""
    ids: list[NDArray[Any]] = [np.zeros(0, np.uint32)]
    words: list[NDArray[Any]] = [np.zeros(0, np.bool_)]
    lengths: list[int] = []
    for batch in _batches(sentences):
        encoded = tokenizer.encode(batch, splitter)
        lengths += [len(sentence.ids) for sentence in encoded]
        ids.append(np.concatenate([sentence.ids for sentence in encoded]))
        words.append(np.concatenate([sentence.word_starts for sentence in encoded]))
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    return np.concatenate(ids).astype(dtype), np.concatenate(words).astype(np.uint8), np.array(lengths, np.int64)


def _batches(sentences: list[str]) -> Iterator[list[str]]:
    first = size = 0
    for number, sentence in enumerate(sentences, 1):
        size += len(sentence)
        if size >= _BATCH or number == len(sentences):
            yield sentences[first:number]
            first, size = number, 0


def _bands(texts: list[str], count: int) -> NDArray[np.uint64]:
    return np.stack([band_keys(text) for text in texts]) if texts else np.zeros((count, 0), np.uint64)


def _lengths(texts: list[str]) -> NDArray[np.int64]:
    return np.array([len(text) for text in texts], np.int64)


def _hanzi(texts: list[str]) -> NDArray[np.int64]:
    return np.array([np.count_nonzero(character_classes(text) == HANZI) for text in texts], np.int64)
