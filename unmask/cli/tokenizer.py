"""`unmask tokenizer`: train, inspect, extend."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.options import Field, MaxDocument, Separator, SkipBad, Sources, command, read_flags, read_options

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.text.documents import ReadOptions
    from unmask.text.tokenizer import Tokenizer

app = typer.Typer(no_args_is_help=True, help="Train, inspect and extend tokenizers.")

Like = Annotated[
    str | None,
    typer.Option(
        "--like",
        help="Do all as a published tokenizer does: bert, electra, roberta, deberta, modernbert, gpt2, albert, deberta-v3, "
        "xlm-roberta, t5.",
        show_default=False,
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="wordpiece (BERT), bpe (RoBERTa), unigram (SentencePiece), characters (Chinese).",
        show_default="of --like, else wordpiece",
    ),
]


@app.command()
def train(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the tokenizer's files.", show_default=False)],
    like: Like = None,
    kind: Kind = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            "--vocab-size",
            min=10,
            help="Pieces in all, special tokens included.",
            show_default="of --like, else 30000",
        ),
    ] = None,
    lowercase: Annotated[
        bool | None,
        typer.Option(
            "--lowercase/--cased",
            help="Fold upper case, as bert-uncased does.",
            show_default="of --like, else cased",
        ),
    ] = None,
    strip_accents: Annotated[
        bool | None,
        typer.Option(
            "--strip-accents/--keep-accents",
            help="Drop accents; takes the voicing marks of kana too.",
            show_default="of --like, else keep",
        ),
    ] = None,
    digits: Annotated[bool, typer.Option("--individual-digits", help="No piece ever holds two digits.")] = False,
    min_frequency: Annotated[int, typer.Option("--min-frequency", min=1, help="Rarer pieces are not learned.")] = 2,
    alphabet: Annotated[
        int | None,
        typer.Option("--limit-alphabet", min=1, help="Most different characters to keep.", show_default="by kind"),
    ] = None,
    max_megabytes: Annotated[
        int, typer.Option("--max-megabytes", min=1, help="Text to learn from; of more, a fair sample is taken.")
    ] = 256,
    field: Field = "",
    separator: Separator = "file",
    skip_bad: SkipBad = 0,
    max_document: MaxDocument = 32,
) -> None:
    """Learn a tokenizer from text.

    Example: unmask tokenizer train notes/ --out tok --like roberta --vocab-size 16000
    """
    from unmask.cli.console import Console
    from unmask.text.families import FAMILIES, PLAIN
    from unmask.text.train_tokenizer import TrainOptions
    from unmask.text.train_tokenizer import train as learn

    _require_place(out)
    options = TrainOptions(
        like=_one_of(FAMILIES, like, "--like", "family"),
        kind=_one_of(PLAIN, kind, "--kind", "kind of tokenizer"),
        vocab_size=vocab_size,
        lowercase=lowercase,
        strip_accents=strip_accents,
        individual_digits=digits,
        min_frequency=min_frequency,
        limit_alphabet=alphabet,
        max_bytes=max_megabytes << 20,
    )
    with Console() as console:
        tokenizer, report = learn(
            texts(sources, read_options(field, separator, skip_bad, max_document), console), options, progress=console
        )
        tokenizer.save(out)
        console.table(f"Tokenizer in {out}", list(report.as_dict().items()))
        flags = read_flags(field, separator, skip_bad)
        again = command("corpus", "build", *sources, "--tokenizer", out, "--out", "corpus", *flags)
        console.say(f"\nNext: {again}")


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="A tokenizer's or a model's folder.")],
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE...]", help="Text to measure it on.", show_default=False)
    ] = None,
    text: Annotated[str, typer.Option("--text", help="Show how this text is cut.", show_default=False)] = "",
    field: Field = "",
    separator: Separator = "file",
    skip_bad: SkipBad = 0,
    max_document: MaxDocument = 32,
) -> None:
    """Show how a tokenizer cuts a text, and how well it suits a corpus.

    Example: unmask tokenizer inspect tok notes/ --text "unmaskable"
    """
    from unmask.cli.console import Console
    from unmask.text.inspect import inspect as measure
    from unmask.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder)
    with Console() as console:
        console.say(
            f"{tokenizer.kind} tokenizer of {tokenizer.vocab_size:,} tokens, fingerprint {tokenizer.fingerprint[:16]}"
        )
        if text:
            found = tokenizer.encode([text])[0]
            rows = [
                [tokenizer.token(i), i, text[a:b], "word" if starts else ""]
                for i, (a, b), starts in zip(
                    found.ids.tolist(), found.offsets.tolist(), found.word_starts.tolist(), strict=True
                )
            ]
            console.table("Tokens", rows, ["token", "id", "text", "begins"])
        if sources:
            report = measure(tokenizer, texts(sources, read_options(field, separator, skip_bad, max_document), console))
            console.table("On this text", list(report.as_dict().items()))


@app.command()
def extend(
    folder: Annotated[Path, typer.Argument(help="The tokenizer (or model folder) to extend.")],
    sources: Sources,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder for the new tokenizer, or the new model with --model.", show_default=False
        ),
    ],
    add: Annotated[int, typer.Option("--add", min=1, help="How many tokens to learn from the text.")] = 1000,
    model: Annotated[
        bool,
        typer.Option(
            "--model", help="FOLDER is a model: grow its embeddings too; new rows are the mean of the old pieces'."
        ),
    ] = False,
    min_frequency: Annotated[int, typer.Option("--min-frequency", min=1, help="Rarer words are not added.")] = 5,
    field: Field = "",
    separator: Separator = "file",
    skip_bad: SkipBad = 0,
    max_document: MaxDocument = 32,
) -> None:
    """Add tokens of a field to an existing tokenizer; old ids stay as they are.

    Example: unmask tokenizer extend bert-base/ notes/ --add 2000 --model --out bert-notes
    """
    from unmask.cli.console import Console
    from unmask.text.extend import extend as learn
    from unmask.text.inspect import piece_text
    from unmask.text.tokenizer import Tokenizer

    _require_place(out)
    old = Tokenizer.load(folder)
    with Console() as console:
        sample = texts(sources, read_options(field, separator, skip_bad, max_document), console)
        new, pieces = learn(old, sample, add, min_frequency=min_frequency)
        if model:
            _grow(folder, new, pieces, out)
        else:
            new.save(out)
        rows = [
            [piece_text(new, new.token(old.vocab_size + k)), " ".join(piece_text(old, old.token(i)) for i in row)]
            for k, row in enumerate(pieces[:15])
        ]
        console.table(f"{len(pieces):,} new tokens, the first of them", rows, ["token", "was"])
        console.say(f"\n{'Model' if model else 'Tokenizer'} of {new.vocab_size:,} tokens in {out}")


def _grow(model: Path, tokenizer: Tokenizer, pieces: Sequence[Sequence[int]], out: Path) -> None:
    """The model with rows for what `tokenizer` has more, each made of `pieces` of the old one."""
    from unmask.hub.grow import grow_vocabulary

    with tempfile.TemporaryDirectory() as temporary:
        tokenizer.save(Path(temporary) / "tokenizer")
        grow_vocabulary(model, Path(temporary) / "tokenizer", pieces, out)


def _require_place(out: Path) -> None:
    """A tokenizer may replace a tokenizer, and nothing else: a model with other ids' tokenizer would answer nonsense."""
    from unmask.errors import CannotWriteError
    from unmask.text.tokenizer import FILES

    others = sorted(path.name for path in out.iterdir() if path.name not in FILES) if out.is_dir() else []
    if others:
        raise CannotWriteError(
            f"this folder holds more than a tokenizer ({others[0]})",
            where=str(out),
            do="choose a new folder for the tokenizer",
        )


def texts(sources: list[str], options: ReadOptions, console: Console) -> Iterator[str]:
    """The texts of the sources, counted on the console while they are used; what was left out is said at the end."""
    from unmask.text.documents import ReadReport
    from unmask.text.reader import read_documents

    report = ReadReport()
    for document in read_documents(sources, options, report):
        if report.documents % 100 == 0:
            console("reading, documents", report.documents, None)
        yield document.text
    console("reading, documents", report.documents, report.documents)
    for name, count in (
        ("empty documents", report.empty),
        ("bad records left out", report.bad_count),
        ("NUL characters removed", report.nuls),
    ):
        if count:
            console.warn(f"{count:,} {name}")


def _one_of(known: Iterable[str], name: str | None, option: str, what: str) -> Any:
    from unmask.errors import UnmaskError

    if name is not None and name not in known:
        raise UnmaskError(f"unknown {what} {name!r}", where=option, do=f"give one of {', '.join(known)}")
    return name
