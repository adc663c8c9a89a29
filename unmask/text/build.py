"""From text to a corpus of token shards: read once, prepared on all cores, de-duplicated as a whole, resumable.

The main process reads documents and cuts them into chunks; workers clean, split, fingerprint and tokenise them into
part files beside the output. When all parts are there, duplicates and the held-out split are decided over the whole
corpus and the shards are written. The result depends on the texts in their order, the tokenizer and the options, on
nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from unmask.errors import CannotWriteError, DamagedError, UnmaskError
from unmask.files import read_manifest, workspace, write_folder
from unmask.progress import Progress, quiet
from unmask.text.clean import Language
from unmask.text.documents import Document, ReadOptions, ReadReport
from unmask.text.parts import PREPARATION, Chunk, Recipe, add_document, make_part, read_part
from unmask.text.plan import Index, Plan, Totals, make_plan, read_index, store, summary
from unmask.text.reader import read_documents
from unmask.text.shards import FORMAT, SOURCES, SPLITS, TOKENIZER, VERSION, ShardWriter, check_corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import WordSplitter
from unmask.text.workers import available_cores, work

_LIBRARIES = ("unmask", "tokenizers", "sentencex", "rensa", "numpy")


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What decides the content of a corpus besides its texts and its tokenizer."""

    read: ReadOptions = field(default_factory=ReadOptions)
    language: Language = "auto"
    """Whose rules split sentences."""
    words: WordSplitter = field(default_factory=WordSplitter)
    """What whole-word masking takes for a word."""
    duplicates: Literal["keep", "exact", "near"] = "near"
    """Which documents are dropped when an earlier one is equal: none, equal after cleaning, or also nearly equal."""
    heldout_share: float = 0.02
    """Share of the documents kept out of training; 0: none, else at least one."""
    heldout_tokens: int = 1_000_000
    """The most tokens held out."""
    shard_tokens: int = 1 << 26
    """Tokens of a shard; the last document may go beyond."""

    def __post_init__(self) -> None:
        if not 0 <= self.heldout_share < 1:
            raise UnmaskError(f"heldout_share is {self.heldout_share}", do="give a share from 0 to below 1")
        if self.language not in ("auto", "en", "zh"):
            raise UnmaskError(f"unknown language {self.language!r}", do="give auto, en or zh")
        if self.duplicates not in ("keep", "exact", "near"):
            raise UnmaskError(f"duplicates is {self.duplicates!r}", do="give keep, exact or near")
        for name in ("heldout_tokens", "shard_tokens"):
            if getattr(self, name) < 1:
                raise UnmaskError(f"{name} is {getattr(self, name)}", do="give 1 or more")


def build_corpus(
    sources: Sequence[str],
    out: str | Path,
    tokenizer: Tokenizer,
    options: BuildOptions | None = None,
    *,
    workers: int = 0,
    chunk_characters: int = 2_000_000,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Builds the corpus `out` and returns its manifest's `about`, with one more entry: `outcome` says what was done.

    When `out` is there already, made with the same tokenizer, options and sources, undamaged, and reading the sources
    again gives the same texts, nothing is written; otherwise it is built anew and `outcome` says why. After a crash the
    same call goes on: finished parts in `<out>.parts` are used again if they were made from the same texts.
    `workers` processes (0: one for each core) of some 200 MB each; neither their number nor `chunk_characters` changes
    the result. Raises CannotWriteError when `out` is not a corpus or another build is at it.
    """
    out, options = Path(out), options or BuildOptions()
    wish = _wish(sources, tokenizer, options)
    why = ""
    if os.path.lexists(out):
        about = _about_of(out)
        why = _why_not(out, about, wish, options, progress)
        if not why:
            return about | {"outcome": "kept: same texts, tokenizer and options"}
    with workspace(out) as parts:
        shutil.rmtree(parts / TOKENIZER, ignore_errors=True)
        tokenizer.save(parts / TOKENIZER)
        intake = _Intake(options.read)
        lengths = _make_parts(parts, intake, wish, options, workers or available_cores(), chunk_characters, progress)
        if not sum(lengths):
            raise UnmaskError(
                f"There is no text to store: {intake.report.documents} documents, {intake.report.empty} empty ones and "
                f"{intake.report.bad_count} bad ones were read.",
                where=", ".join(sources)[:500],
                do="Check the sources and the field that holds the text.",
            )
        index = read_index(parts, lengths, progress)
        about = _write(out, parts, intake, index, wish, tokenizer, options, progress)
    return about | {"outcome": f"rebuilt: {why}" if why else "built"}


def _wish(sources: Sequence[str], tokenizer: Tokenizer, options: BuildOptions) -> dict[str, Any]:
    """What a corpus must have been made from to be the one asked for, as it reads in a manifest."""
    words = {"segmenter": options.words.segmenter, "sha256": options.words.fingerprint}  # the words may be many
    wish = {
        "tokenizer": tokenizer.fingerprint,
        "options": {**asdict(options), "words": words},
        "sources": list(sources),
        "preparation": PREPARATION,
    }
    plain: dict[str, Any] = json.loads(json.dumps(wish))
    return plain


def _about_of(out: Path) -> dict[str, Any]:
    """The `about` of the corpus that is in the way; refuses everything that is not one."""
    try:
        about: dict[str, Any] = read_manifest(out)["about"]
    except (DamagedError, NotADirectoryError) as error:
        raise _not_a_corpus(out) from error
    if about.get("format") != FORMAT:
        raise _not_a_corpus(out)
    return about


def _why_not(out: Path, about: dict[str, Any], wish: dict[str, Any], options: BuildOptions, progress: Progress) -> str:
    """Why the corpus that is there will not do; empty when it will. The texts are compared by reading them again:
    sizes and times of files can't tell that they are the same."""
    if about.get("version") != VERSION:
        return f"its format is version {about.get('version')}, not {VERSION}"
    if about["tokenizer"]["fingerprint"] != wish["tokenizer"] and about["sources"] != wish["sources"]:
        raise CannotWriteError(
            "This folder holds another corpus, of other sources and by another tokenizer.",
            where=str(out),
            do="Choose another folder; runs may depend on what is here. If it is not needed any more, delete it first.",
        )
    if about["tokenizer"]["fingerprint"] != wish["tokenizer"]:
        return f"the tokenizer changed ({about['tokenizer']['fingerprint'][:12]} -> {wish['tokenizer'][:12]})"
    if about["options"] != wish["options"]:
        return "options changed: " + ", ".join(_changes(about["options"], wish["options"]))
    if about["sources"] != wish["sources"]:
        return "the list of sources changed"
    if about.get("preparation") != wish["preparation"]:
        return "texts are prepared in a better way now"
    if "-" in wish["sources"]:
        return "standard input can be read only once, so it can't be compared"
    try:
        check_corpus(out, progress)
    except DamagedError as error:
        return f"it was damaged: {error.what}"
    intake = _Intake(options.read)
    for _ in intake.documents(wish["sources"]):
        if intake.report.documents % 1000 == 0:
            progress("comparing texts, characters", intake.report.characters, about["report"]["read"]["characters"])
    return "" if intake.sha256() == about["text_sha256"] else "the texts changed"


def _changes(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changes(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name} {before!r} -> {after!r}"


def _not_a_corpus(out: Path) -> CannotWriteError:
    return CannotWriteError(
        "The output exists and is not a whole corpus of unmask, so it will not be replaced.",
        where=str(out),
        do="Choose another name, or delete it yourself.",
    )


class _Intake:
    """One reading of the sources: the account of it, the names of the sources and a hash of all texts."""

    def __init__(self, options: ReadOptions) -> None:
        self.report, self.names = ReadReport(), dict[str, int]()
        self._options, self._digest = options, hashlib.sha256()

    def documents(self, sources: Sequence[str]) -> Iterator[tuple[Document, tuple[int, int]]]:
        """Each document and its origin: the index of its source and its record number."""
        for document in read_documents(sources, self._options, self.report):
            origin = (self.names.setdefault(document.source, len(self.names)), document.record)
            add_document(self._digest, document.text, origin)
            yield document, origin

    def sha256(self) -> str:
        return self._digest.hexdigest()


def _make_parts(
    parts: Path,
    intake: _Intake,
    wish: dict[str, Any],
    options: BuildOptions,
    workers: int,
    chunk_characters: int,
    progress: Progress,
) -> list[int]:
    """Reads everything and makes the parts; returns how many documents with text each has."""
    recipe = Recipe(
        folder=parts,
        tokenizer=wish["tokenizer"],
        language=options.language,
        words=options.words,
        near_duplicates=options.duplicates == "near",
        versions=json.dumps(_versions()),
    )
    lengths, characters = dict[int, int](), 0
    chunks = _chunks(intake, wish["sources"], recipe, chunk_characters)
    with closing(work(make_part, chunks, count=workers, log=parts / "workers.log")) as results:
        for made in results:
            lengths[made.number] = made.documents
            characters += made.characters
            progress("preparing text, characters", characters, None)
    assert characters == intake.report.characters, "every character read went through a worker"
    progress("preparing text, characters", characters, characters)
    return [lengths[number] for number in range(len(lengths))]


def _chunks(intake: _Intake, sources: Sequence[str], recipe: Recipe, size: int) -> Iterator[Chunk]:
    chunk, characters = Chunk(recipe, 0), 0
    for document, origin in intake.documents(sources):
        chunk.texts.append(document.text)
        chunk.origins.append(origin)
        chunk.names[origin[0]] = document.source
        characters += len(document.text)
        if characters >= size:
            yield chunk
            chunk, characters = Chunk(recipe, chunk.number + 1), 0
    if chunk.texts:
        yield chunk


def _write(
    out: Path,
    parts: Path,
    intake: _Intake,
    index: Index,
    wish: dict[str, Any],
    tokenizer: Tokenizer,
    options: BuildOptions,
    progress: Progress,
) -> dict[str, Any]:
    plan = make_plan(
        index,
        drop_duplicates=options.duplicates != "keep",
        heldout_share=options.heldout_share,
        heldout_tokens=options.heldout_tokens,
        shard_tokens=options.shard_tokens,
    )
    totals, about = Totals(), _describe(intake, wish, tokenizer)
    with write_folder(out, replace=True, about=about) as folder:
        writer = ShardWriter(folder, tokenizer.vocab_size)
        for number, (first, end) in enumerate(zip(index.first[:-1], index.first[1:], strict=True), 1):
            store(read_part(parts, number - 1), plan.place[first:end], plan.names, writer, totals)
            progress("writing shards, documents", int(end), len(plan.place))
        (folder / SOURCES).write_text(json.dumps(list(intake.names)))
        tokenizer.save(folder / TOKENIZER)
        about["dtype"], about["shards"] = writer.dtype, writer.shards()
        about["splits"] = {split: _sum_of(about["shards"], split) for split in SPLITS}
        about["report"] = _report(intake, index, plan, totals, about["splits"])
    return about


def _describe(intake: _Intake, wish: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": {
            "kind": tokenizer.kind,
            "fingerprint": tokenizer.fingerprint,
            **tokenizer.vocabulary().as_dict(),
        },
        "sources": wish["sources"],
        "options": wish["options"],
        "preparation": wish["preparation"],
        "text_sha256": intake.sha256(),
        "versions": _versions(),
    }


def _sum_of(shards: list[dict[str, Any]], split: str) -> dict[str, int]:
    chosen = [shard for shard in shards if shard["split"] == split]
    return {name: sum(shard[name] for shard in chosen) for name in ("documents", "sentences", "tokens")}


def _report(
    intake: _Intake, index: Index, plan: Plan, totals: Totals, splits: dict[str, dict[str, int]]
) -> dict[str, Any]:
    """Where every document that was read has gone, and what the stored ones are like."""
    stored = sum(split["documents"] for split in splits.values())
    dropped = plan.exact_duplicates + plan.near_duplicates + index.empty_documents
    assert intake.report.documents == stored + dropped, "no document may vanish"
    return {
        "read": intake.report.as_dict(),
        "clean": {"empty_documents": index.empty_documents, "empty_sentences": index.empty_sentences},
        "duplicates": {"exact": plan.exact_duplicates, "near": plan.near_duplicates},
        **summary(index, plan, totals),
    }


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}
