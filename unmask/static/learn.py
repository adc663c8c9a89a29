"""From text to a folder of static vectors: read once, count, train, save; interrupted, the same call goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from unmask.config.static import Glove, Word2Vec
from unmask.errors import UnmaskError
from unmask.files import MANIFEST, read_manifest, remove_folder, require_free, workspace
from unmask.progress import Progress, quiet
from unmask.static import glove, word2vec
from unmask.static.checkpoint import require_same_settings
from unmask.static.folder import FORMAT as VECTORS
from unmask.static.folder import StaticFolder, write_static_folder
from unmask.static.ngrams import Ngrams
from unmask.static.pairs import count
from unmask.static.split import Splitting
from unmask.static.tokens import Tokens, tokens_of_corpus, tokens_of_lines
from unmask.static.vectors import Vectors
from unmask.text.documents import ReadOptions, ReadReport
from unmask.text.reader import read_documents
from unmask.text.shards import FORMAT as SHARDS
from unmask.text.shards import Corpus

_CHECKPOINT = "checkpoint"

Stopping = AbstractContextManager[Callable[[], bool]]
"""Entered while training runs, which is asked now and then whether to save and stop."""


@dataclass(frozen=True)
class Learned:
    """What came of it."""

    read: ReadReport | None
    """Of texts; None: a corpus of shards was taken."""
    tokens: int
    """Words read."""
    kept: int
    """Those that have vectors."""
    words: int
    """Distinct ones."""
    losses: list[float]
    """Of each epoch; of GloVe the costs."""


def learn(
    sources: Sequence[str],
    out: Path,
    settings: Word2Vec | Glove,
    splitting: Splitting | None = None,
    options: ReadOptions | None = None,
    *,
    threads: int = 1,
    overwrite: bool = False,
    stopping: Stopping | None = None,
    progress: Progress = quiet,
) -> Learned | None:
    """Trains on texts, or on one corpus of shards (its tokens are the words then), and writes the folder `out`.

    Work in progress lies in `<out>.parts`; when training was stopped (then None is returned), and after a crash, the same call
    reads the text again and goes on with the training where it was last saved. Raises UnmaskError for text without frequent
    words and where training was begun with other settings or text, and CannotWriteError when `out` is taken.
    """
    require_free(out, overwrite, {"format": VECTORS})
    with suppress(_Stopped), workspace(out) as parts, _kept_if_saved(parts):
        require_same_settings(parts / _CHECKPOINT, settings)
        tokens, report = _tokens(sources, parts, settings, splitting or Splitting(), options or ReadOptions(), progress)
        held, losses = _trained(tokens, parts, settings, threads, stopping or nullcontext(bool), progress)
        write_static_folder(out, held, overwrite=overwrite)
        return Learned(report, tokens.read, len(tokens.ids), len(tokens.words), losses)
    return None


class _Stopped(Exception):
    """Training was asked to stop, and saved."""


@contextmanager
def _kept_if_saved(parts: Path) -> Iterator[None]:
    """What a block that fails leaves is of use only to one that goes on from a checkpoint."""
    try:
        yield
    except BaseException:
        if not (parts / _CHECKPOINT).exists():
            remove_folder(parts)
        raise


def _tokens(
    sources: Sequence[str],
    parts: Path,
    settings: Word2Vec | Glove,
    splitting: Splitting,
    options: ReadOptions,
    progress: Progress,
) -> tuple[Tokens, ReadReport | None]:
    folder = _emptied(parts / "tokens")
    if any(_is_corpus(Path(source)) for source in sources):
        if len(sources) > 1 or splitting != Splitting():
            raise UnmaskError(
                "a corpus of shards is a source alone, and its tokenizer has said what its words are",
                where=", ".join(sources),
                do="leave out the other sources and --words, --segmenter, --keep-case, or give the text itself",
            )
        corpus = Corpus.open(sources[0], progress=progress)
        return tokens_of_corpus(corpus, folder, settings.words, progress=progress), None
    report = ReadReport()
    lines = splitting.lines(read_documents(sources, options, report))
    return tokens_of_lines(lines, folder, settings.words, progress=progress), report


def _is_corpus(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and read_manifest(folder)["about"].get("format") == SHARDS


def _trained(
    tokens: Tokens, parts: Path, settings: Word2Vec | Glove, threads: int, stopping: Stopping, progress: Progress
) -> tuple[StaticFolder, list[float]]:
    point = parts / _CHECKPOINT
    match settings:
        case Glove():
            folder = _emptied(parts / "pairs")
            pairs = count(
                tokens, folder, window=settings.window, memory=settings.memory, seed=settings.seed, progress=progress
            )
            with stopping as stop:
                fitted = glove.train(
                    pairs, len(tokens.words), settings, threads=threads, checkpoint=point, stop=stop, progress=progress
                )
            if not fitted.finished:
                raise _Stopped
            vectors = Vectors(tokens.words, fitted.vectors)
            return StaticFolder(vectors, settings, fitted.context), fitted.costs
        case Word2Vec():
            with stopping as stop:
                made = word2vec.train(tokens, settings, threads=threads, checkpoint=point, stop=stop, progress=progress)
            if not made.finished:
                raise _Stopped
            losses = [epoch.loss for epoch in made.epochs]
            if made.ngrams is None:
                return StaticFolder(Vectors(tokens.words, made.inputs), settings, made.outputs), losses
            ngrams = Ngrams(settings.ngrams, made.ngrams)
            vectors = Vectors(tokens.words, ngrams.compose(tokens.words.words, made.inputs), ngrams)
            return StaticFolder(vectors, settings, made.outputs), losses


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
