"""Options that several commands share, each with one meaning."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.text.documents import ReadOptions
    from unmask.text.words import WordSplitter

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Text: files (.txt .jsonl .csv .tsv .parquet, also .gz .zst .zip), folders, globs, '-' for standard input, "
        "hf:OWNER/NAME/CONFIG:SPLIT, or python-docs.",
        show_default=False,
    ),
]
Field = Annotated[
    str,
    typer.Option("--field", help="Field of each record that holds the text.", show_default='"text", or the only one'),
]
Separator = Annotated[
    str, typer.Option("--separator", help="What ends a document in .txt: file, blank (lines), line, or any string.")
]
SkipBad = Annotated[
    int, typer.Option("--skip-bad", min=0, help="Leave out up to this many bad records, counted, instead of stopping.")
]
MaxDocument = Annotated[
    int,
    typer.Option("--max-document-megabytes", min=1, help="A longer document is a bad record; memory grows with it."),
]
Segmenter = Annotated[
    str,
    typer.Option("--segmenter", help="What whole-word masking takes for a Chinese word: none (a character) or jieba."),
]
UserWords = Annotated[
    Path | None,
    typer.Option(
        "--user-words",
        help="File of words the segmenter should know, one a line, a frequency after it if wanted.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change any setting, e.g. encoder.hidden_size=256. Repeatable.",
        show_default=False,
    ),
]


def command(*words: object) -> str:
    """A command to go on with, quoted so that it can be pasted into a shell."""
    return shlex.join(["unmask", *map(str, words)])


@contextmanager
def cuts_told(console: Console) -> Iterator[None]:
    """Lets a warning of the library that texts were cut look like any other warning here."""
    from unmask.inference.loaded import TruncationWarning

    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, TruncationWarning):
                console.warn(str(message))
            else:
                others(message, category, *where)

        warnings.simplefilter("always", TruncationWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def read_options(field: str, separator: str, skip_bad: int, max_document: int) -> ReadOptions:
    """The reader's options from the shared flags."""
    from unmask.text.documents import ReadOptions

    return ReadOptions(
        field=field or None, separator=separator.replace("\\n", "\n"), skip_bad=skip_bad, max_bytes=max_document << 20
    )


def read_flags(field: str, separator: str, skip_bad: int) -> list[object]:
    """The flags that read the same text the same way again; none where all are as usual."""
    usual = (("--field", field, ""), ("--separator", separator, "file"), ("--skip-bad", skip_bad, 0))
    return [word for flag, value, default in usual if value != default for word in (flag, value)]


def word_splitter(segmenter: str, user_words: Path | None) -> WordSplitter:
    """What a word is, from the shared flags."""
    from unmask.errors import UnmaskError
    from unmask.text.words import WordSplitter, read_user_words

    words = read_user_words(user_words) if user_words else ()
    match segmenter:
        case "none":
            return WordSplitter("none", words)
        case "jieba":
            return WordSplitter("jieba", words)
    raise UnmaskError(f"unknown segmenter {segmenter!r}", where="--segmenter", do="give none or jieba")
