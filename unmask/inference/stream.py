"""Files of texts to a file of vectors, in constant memory."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from unmask.errors import CannotWriteError
from unmask.inference.loaded import Loaded
from unmask.inference.writers import DType, vector_writer
from unmask.nn.pooling import Mode
from unmask.progress import Progress, quiet
from unmask.text.documents import Document, Reading, ReadOptions, ReadReport
from unmask.text.reader import find_sources, read_documents

LINES = ReadOptions(separator="line")  # one line of a .txt file is one text


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """How vectors are made and stored; for what is None or 0 see `Loaded.encode`."""

    read: ReadOptions = LINES
    pooling: tuple[Mode, ...] | None = None
    normalize: bool | None = None
    batch_tokens: int = 0
    layer: int = -1
    prompt: str | None = None
    dtype: DType = "float32"
    keep_text: bool = False  # .parquet only


@dataclass
class EmbedReport:
    """What was done, in counts."""

    texts: int = 0
    tokens: int = 0  # special ones included
    truncated: int = 0  # texts that were cut to the model's length
    dimensions: int = 0
    seconds: float = 0.0
    read: ReadReport = field(default_factory=ReadReport)


def embed_files(
    model: Loaded,
    sources: Sequence[str],
    out: Path,
    options: EmbedOptions = EmbedOptions(),
    *,
    progress: Progress = quiet,
) -> EmbedReport:
    """Embeds every record of the sources, in order, into `out` (.npy or .parquet), which is replaced if it is there.

    Sources that can be read twice are read once before: a damaged record is found at once instead of hours later, and
    the time that is left can be told. `out` has its name only when it is whole. Raises UnmaskError with file and record
    for what cannot be read.
    """
    _refuse_own_input(sources, out, options.read)
    report, waiting = EmbedReport(), deque[Document]()
    about = {"unmask": json.dumps(asdict(options), ensure_ascii=False)}
    with vector_writer(out, options.dtype, keep_text=options.keep_text, about=about) as writer:
        total = _count(sources, options.read, progress)
        began = time.monotonic()
        blocks = model.stream(
            _texts(read_documents(sources, options.read, report.read), waiting),
            pooling=options.pooling,
            normalize=options.normalize,
            batch_tokens=options.batch_tokens,
            layer=options.layer,
            prompt=options.prompt,
            total=total,
            progress=progress,
        )
        for block in blocks:
            size, report.dimensions = block.vectors_ND.shape
            writer.write(block.vectors_ND, [waiting.popleft() for _ in range(size)])
            report.texts += size
            report.tokens += block.tokens
            report.truncated += block.truncated
        report.seconds = time.monotonic() - began
    return report


def _texts(documents: Iterator[Document], waiting: deque[Document]) -> Iterator[str]:
    """The texts alone; whose they are waits until their vectors come."""
    for document in documents:
        waiting.append(document)
        yield document.text


def _count(sources: Sequence[str], options: ReadOptions, progress: Progress) -> int | None:
    """How many texts there are; None for what can be read only once or from afar."""
    found = find_sources(sources, Reading(options, ReadReport()))
    if not all(os.path.isfile(source.name) or source.kind == "python-docs" for source in found):
        return None
    count = 0
    for _ in read_documents(sources, options, ReadReport()):
        count += 1
        if count % 1024 == 0:
            progress("checking, texts", count, None)
    progress("checking, texts", count, count)
    return count


def _refuse_own_input(sources: Sequence[str], out: Path, options: ReadOptions) -> None:
    """The vectors of a corpus must not take the corpus's own name."""
    found = find_sources(sources, Reading(options, ReadReport()))
    if os.path.realpath(out) in {os.path.realpath(source.name) for source in found}:
        raise CannotWriteError("this is one of the files to read", where=str(out), do="choose another name")
