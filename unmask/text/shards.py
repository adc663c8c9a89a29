"""Token shards: a corpus as flat arrays on the disk, mapped into memory, never trusted before they are checked.

A corpus is a folder of `unmask.files` with, for each shard, five raw little-endian arrays side by side:

    train-00000.tokens      uint16 (vocabularies up to 65,536) or uint32 [T]: token ids, no special tokens
    train-00000.words       uint8 [T]: 1 where the token begins a word
    train-00000.sentences   int64 [S+1]: where sentences begin, in tokens; they tile the shard
    train-00000.documents   int64 [D+1]: where documents begin, in sentences; they tile the sentences
    train-00000.origins     int64 [D, 2]: index into `sources.json`, record number in that source

beside `sources.json` (the names of the sources) and `tokenizer/` (the tokenizer that made the ids).

Legend: D documents, S sentences, T tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unmask.errors import DamagedError, UnmaskError
from unmask.files import MANIFEST, file_sha256, read_checked, read_manifest, safe_join
from unmask.progress import Progress, quiet
from unmask.text.vocabulary import Vocabulary

FORMAT = "unmask-shards"
VERSION = 1
SOURCES = "sources.json"
TOKENIZER = "tokenizer"
Split = Literal["train", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "heldout")
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_WORDS = np.dtype("u1")
_OFFSETS = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class Texts:
    """Documents end to end, ready to be cut into examples."""

    tokens: NDArray[np.int64]  # [T]
    word_starts: NDArray[np.bool_]  # [T], True where the token begins a word
    sentences: NDArray[np.int64]  # [S+1], offsets into tokens
    documents: NDArray[np.int64]  # [D+1], offsets into sentences


@dataclass(frozen=True, slots=True)
class _Shard:
    tokens: NDArray[Any]
    words: NDArray[np.uint8]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    origins: NDArray[np.int64]

    def spans(self, local_D: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """First sentence, number of sentences, first token and number of tokens of each document."""
        first, end = self.documents[local_D], self.documents[local_D + 1]
        begin = self.sentences[first]
        return first, end - first, begin, self.sentences[end] - begin


class Corpus:
    """One split of a corpus, mapped into memory read-only. Nothing is ever written beside it."""

    def __init__(self, folder: Path, split: Split, manifest: dict[str, Any], shards: list[_Shard]) -> None:
        self.folder, self.split, self.about = folder, split, manifest["about"]
        self._manifest, self._shards = manifest, shards
        self._first = offsets_of(np.array([len(shard.documents) - 1 for shard in shards], np.int64))
        self.vocabulary = Vocabulary.from_dict(self.about["vocab_size"], self.about["tokenizer"])
        self.tokenizer_folder = folder / TOKENIZER
        self.num_documents = int(self._first[-1])
        self.num_sentences = sum(len(shard.sentences) - 1 for shard in shards)
        self.num_tokens = sum(len(shard.tokens) for shard in shards)

    @classmethod
    def open(
        cls, folder: str | Path, split: Split = "train", *, verify: bool = True, progress: Progress = quiet
    ) -> Corpus:
        """Opens a split. With `verify`, every byte of its files is compared with the manifest's SHA-256 first.

        Raises DamagedError naming the file and what differs, and UnmaskError when the folder is no corpus or when the
        split is empty. Progress counts bytes.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise UnmaskError("There is no such folder.", where=str(folder), do="Check the path of the corpus.")
        manifest = read_manifest(folder)
        about = manifest["about"]
        if about.get("format") != FORMAT or about.get("version") != VERSION:
            raise UnmaskError(
                f"This folder is not a corpus of token shards, version {VERSION}.",
                where=str(folder),
                do="Make one with `unmask corpus build`.",
            )
        try:
            return cls._opened(folder, split, manifest, verify, progress)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise _damaged(folder, MANIFEST, f"it does not describe a corpus ({type(error).__name__})") from error

    @classmethod
    def _opened(cls, folder: Path, split: Split, manifest: dict[str, Any], verify: bool, progress: Progress) -> Corpus:
        about = manifest["about"]
        shards = [shard for shard in about["shards"] if shard["split"] == split]
        if not shards:
            raise UnmaskError(
                f"The {split} split of this corpus has no documents.",
                where=str(folder),
                do="Build it again from more documents (--separator blank makes one of each paragraph of a .txt), "
                "or with another share of held-out ones.",
            )
        _check_files(folder, manifest, [shard["name"] for shard in shards], verify, progress)
        opened = [_map_shard(folder, shard, _DTYPES[about["dtype"]]) for shard in shards]
        for shard, arrays in zip(shards, opened, strict=True) if verify else ():
            _check_shape(folder, shard["name"], arrays, about["vocab_size"])
        return cls(folder, split, manifest, opened)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process maps the files again instead of receiving a copy of them."""
        return _reopen, (self.folder, self.split)

    @property
    def vocab_size(self) -> int:
        """Number of ids of the corpus' tokenizer."""
        return self.vocabulary.size

    @property
    def fingerprint(self) -> str:
        """Equal for corpora whose files are equal, both splits: a hash of the manifest's hashes."""
        return hashlib.sha256(json.dumps(self._manifest["files"], sort_keys=True).encode()).hexdigest()

    def document_tokens(self) -> NDArray[np.int64]:
        """Tokens of each document [D], in the order of the document numbers."""
        return np.concatenate([np.diff(shard.sentences[shard.documents]) for shard in self._shards])

    def document_sentences(self) -> NDArray[np.int64]:
        """Sentences of each document [D]."""
        return np.concatenate([np.diff(shard.documents) for shard in self._shards])

    def token_counts(self) -> NDArray[np.int64]:
        """How often each id occurs in the split [vocab_size]."""
        counts = np.zeros(self.vocab_size, np.int64)
        for shard in self._shards:
            for begin in range(0, len(shard.tokens), 1 << 24):  # a piece at a time: bincount makes an int64 copy
                counts += np.bincount(shard.tokens[begin : begin + (1 << 24)], minlength=self.vocab_size)
        return counts

    def read(self, documents: NDArray[np.integer]) -> Texts:
        """These documents end to end, in the order given; a number may occur more than once."""
        wanted = np.asarray(documents, np.int64)
        if len(wanted) and not (0 <= wanted.min() and wanted.max() < self.num_documents):
            raise IndexError(f"document numbers run from 0 to {self.num_documents - 1}")
        places = [(shard, rows, shard.spans(wanted[rows] - first)) for shard, rows, first in self._by_shard(wanted)]
        num_sentences, num_tokens = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
        for _, rows, (_, sentences, _, tokens) in places:
            num_sentences[rows], num_tokens[rows] = sentences, tokens
        document_starts, token_starts = offsets_of(num_sentences), offsets_of(num_tokens)
        out = np.empty(token_starts[-1], np.int64)
        words = np.empty(token_starts[-1], np.bool_)
        lengths = np.empty(document_starts[-1], np.int64)
        for shard, rows, (first, sentences, begin, tokens) in places:
            here, there = ranges(begin, tokens), ranges(token_starts[rows], tokens)
            out[there], words[there] = shard.tokens[here], shard.words[here]
            here = ranges(first, sentences)
            lengths[ranges(document_starts[rows], sentences)] = shard.sentences[here + 1] - shard.sentences[here]
        return Texts(out, words, offsets_of(lengths), document_starts)

    def origin(self, document: int) -> tuple[str, int]:
        """Where a document came from: its source and its record number there (line, row or document, from 1)."""
        shard = int(np.searchsorted(self._first, document, "right")) - 1
        source, record = self._shards[shard].origins[document - int(self._first[shard])]
        return self._sources[int(source)], int(record)

    @cached_property
    def _sources(self) -> list[str]:
        names: list[str] = json.loads(read_checked(self.folder, SOURCES, self._manifest))
        return names

    def _by_shard(self, wanted_D: NDArray[np.int64]) -> Iterator[tuple[_Shard, NDArray[np.int64], int]]:
        """Each shard that holds wanted documents, their places in `wanted`, and the shard's first document number."""
        shard_D = np.searchsorted(self._first, wanted_D, "right") - 1
        for number in np.unique(shard_D):
            yield self._shards[number], np.flatnonzero(shard_D == number), int(self._first[number])


class ShardWriter:
    """Appends documents to shards by name; holds nothing but counts, so memory does not grow with the corpus."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self.folder, self.dtype = folder, "uint16" if vocab_size <= 1 << 16 else "uint32"
        self._counts: dict[str, list[int]] = {}

    def append(
        self,
        name: str,
        tokens_T: NDArray[np.integer],
        words_T: NDArray[Any],
        sentence_lengths_S: NDArray[np.integer],
        document_lengths_D: NDArray[np.integer],
        origins_D2: NDArray[np.integer],
    ) -> None:
        """Adds documents to the end of shard `name`: sentence lengths in tokens, document lengths in sentences."""
        assert sentence_lengths_S.sum() == len(tokens_T) == len(words_T), "sentences must tile the tokens"
        assert document_lengths_D.sum() == len(sentence_lengths_S), "documents must tile the sentences"
        assert len(document_lengths_D) == len(origins_D2)
        if name not in self._counts:
            self._counts[name] = [0, 0, 0]
            self._write(name, "sentences", np.zeros(1, _OFFSETS))
            self._write(name, "documents", np.zeros(1, _OFFSETS))
        documents, sentences, tokens = self._counts[name]
        self._write(name, "tokens", tokens_T.astype(_DTYPES[self.dtype]))
        self._write(name, "words", words_T.astype(_WORDS))
        self._write(name, "sentences", (tokens + np.cumsum(sentence_lengths_S)).astype(_OFFSETS))
        self._write(name, "documents", (sentences + np.cumsum(document_lengths_D)).astype(_OFFSETS))
        self._write(name, "origins", origins_D2.astype(_OFFSETS))
        self._counts[name] = [
            documents + len(document_lengths_D),
            sentences + len(sentence_lengths_S),
            tokens + len(tokens_T),
        ]

    def shards(self) -> list[dict[str, Any]]:
        """What was written, for the manifest: name, split, documents, sentences, tokens of each shard, in order."""
        return [
            {
                "name": name,
                "split": name.split("-")[0],
                "documents": documents,
                "sentences": sentences,
                "tokens": tokens,
            }
            for name, (documents, sentences, tokens) in sorted(self._counts.items())
        ]

    def _write(self, name: str, kind: str, array: NDArray[Any]) -> None:
        with open(self.folder / f"{name}.{kind}", "ab") as file:
            file.write(np.ascontiguousarray(array).data)


def shard_name(split: Split, number: int) -> str:
    """The name that the files of a shard begin with."""
    return f"{split}-{number:05}"


def check_corpus(folder: Path, progress: Progress = quiet) -> dict[str, Any]:
    """The `about` of a corpus of which every file of every split has the right bytes. Raises as `Corpus.open` does."""
    manifest = read_manifest(folder)
    _check_files(folder, manifest, [shard["name"] for shard in manifest["about"]["shards"]], True, progress)
    about: dict[str, Any] = manifest["about"]
    return about


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths [N] as offsets [N+1] that begin with 0."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The whole numbers of many ranges, end to end: starts [2, 7], lengths [2, 3] give [2, 3, 7, 8, 9]."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _reopen(folder: Path, split: Split) -> Corpus:
    return Corpus.open(folder, split, verify=False)


def _check_files(folder: Path, manifest: dict[str, Any], shards: list[str], verify: bool, progress: Progress) -> None:
    """Sizes, and with `verify` SHA-256, of the shards' files, the tokenizer and the list of sources."""
    kinds = ("tokens", "words", "sentences", "documents", "origins")
    entries = manifest["files"]
    names = [f"{shard}.{kind}" for shard in shards for kind in kinds]
    names += [name for name in entries if name == SOURCES or name.startswith(f"{TOKENIZER}/")]
    for name in names:
        _check_size(folder, name, entries.get(name))
    total, done = sum(entries[name]["bytes"] for name in names), 0
    for name in names if verify else ():
        digest = file_sha256(safe_join(folder, name))
        if digest != entries[name]["sha256"]:
            raise _damaged(folder, name, _how_it_differs(digest, entries))
        done += entries[name]["bytes"]
        progress("checking the corpus, bytes", done, total)


def _check_size(folder: Path, name: str, entry: dict[str, Any] | None) -> None:
    if entry is None:
        raise _damaged(folder, name, "the manifest does not name it")
    path = safe_join(folder, name)
    if not path.is_file():
        packed = [other.name for other in sorted(path.parent.glob(f"{path.name}.*"))]
        hint = f"; only {packed[0]} is left, unpack it first" if packed else ""
        raise _damaged(folder, name, f"the file is missing{hint}")
    size = path.stat().st_size
    if size != entry["bytes"]:
        how = "truncated" if size < entry["bytes"] else "too long"
        raise _damaged(folder, name, f"{how}: {size:,} bytes, the manifest says {entry['bytes']:,}")


def _how_it_differs(digest: str, entries: dict[str, Any]) -> str:
    twin = next((name for name, entry in entries.items() if entry["sha256"] == digest), None)
    if twin:
        return f"it holds the content of {twin}; files were swapped"
    return f"altered: its SHA-256 is {digest[:12]}…, not the manifest's (or it comes from another corpus)"


def _map_shard(folder: Path, shard: dict[str, Any], dtype: np.dtype[Any]) -> _Shard:
    name, documents, sentences, tokens = (shard[key] for key in ("name", "documents", "sentences", "tokens"))
    return _Shard(
        _map(folder, f"{name}.tokens", dtype, tokens),
        _map(folder, f"{name}.words", _WORDS, tokens),
        _map(folder, f"{name}.sentences", _OFFSETS, sentences + 1),
        _map(folder, f"{name}.documents", _OFFSETS, documents + 1),
        _map(folder, f"{name}.origins", _OFFSETS, documents * 2).reshape(-1, 2),
    )


def _map(folder: Path, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    path = safe_join(folder, name)
    if path.stat().st_size != count * dtype.itemsize:
        raise _damaged(folder, name, f"{path.stat().st_size:,} bytes do not hold {count:,} values of {dtype}")
    if count == 0:
        return np.zeros(0, dtype)  # an empty file can't be mapped
    return np.asarray(np.memmap(path, dtype, "r"))


def _check_shape(folder: Path, name: str, shard: _Shard, vocab_size: int) -> None:
    for kind, offsets, end in (
        ("sentences", shard.sentences, len(shard.tokens)),
        ("documents", shard.documents, len(shard.sentences) - 1),
    ):
        if offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) <= 0).any():
            raise _damaged(folder, f"{name}.{kind}", f"its offsets do not rise from 0 to {end:,}")
    if len(shard.tokens) and int(shard.tokens.max()) >= vocab_size:
        raise _damaged(folder, f"{name}.tokens", f"a token id is outside the vocabulary of {vocab_size:,}")


def _damaged(folder: Path, name: str, why: str) -> DamagedError:
    return DamagedError(
        f"{name} is damaged: {why}.", where=str(folder), do="Use an earlier copy of the corpus or build it again."
    )
