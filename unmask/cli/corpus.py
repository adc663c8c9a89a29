"""`unmask corpus`: build token shards, and look at them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.options import (
    Field,
    MaxDocument,
    Segmenter,
    Separator,
    SkipBad,
    Sources,
    UserWords,
    command,
    read_options,
    word_splitter,
)

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.text.tokenizer import Tokenizer

app = typer.Typer(no_args_is_help=True, help="Turn text into token shards, and look at them.")


@app.command()
def build(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the corpus.", show_default=False)],
    tokenizer: Annotated[
        Path, typer.Option("--tokenizer", "-t", help="Folder of the tokenizer (or of a model).", show_default=False)
    ],
    language: Annotated[str, typer.Option("--language", help="Whose rules split sentences: auto, en or zh.")] = "auto",
    segmenter: Segmenter = "none",
    user_words: UserWords = None,
    duplicates: Annotated[
        str, typer.Option("--duplicates", help="Drop none (keep), exact ones, or also near ones.")
    ] = "near",
    heldout: Annotated[
        float, typer.Option("--heldout", min=0.0, max=0.9, help="Share of documents never trained on.")
    ] = 0.02,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes; 0 takes every core.")] = 0,
    field: Field = "",
    separator: Separator = "file",
    skip_bad: SkipBad = 0,
    max_document: MaxDocument = 32,
) -> None:
    """Clean, de-duplicate, split and tokenise text into shards. Interrupted, the same command goes on.

    Example: unmask corpus build notes/ --tokenizer tok --out corpus
    """
    from unmask.cli.console import Console
    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.tokenizer import Tokenizer

    options = BuildOptions(
        read=read_options(field, separator, skip_bad, max_document),
        language=language,  # type: ignore[arg-type]  # checked by BuildOptions, whose error names the choices
        words=word_splitter(segmenter, user_words),
        duplicates=duplicates,  # type: ignore[arg-type]
        heldout_share=heldout,
    )
    with Console() as console:
        about = build_corpus(sources, out, Tokenizer.load(tokenizer), options, workers=workers, progress=console)
        show(console, out, about)
        if _fit_for_a_run(console, about):
            goal = _goal_for(Tokenizer.load(tokenizer), chinese=segmenter != "none")
            console.say(f"\nNext: {command('pretrain', *goal, '--corpus', out, '--out', 'runs/first')}")


def _fit_for_a_run(console: Console, about: dict[str, Any]) -> bool:
    """False for a corpus without held-out documents; warns of that, and of a tokenizer that does not suit the text."""
    unknown = about["report"]["text"]["unknown_token_share"]
    if unknown > 0.05:
        console.warn(
            f"{unknown:.0%} of the tokens are unknown to this tokenizer: was it trained for such text, and with enough "
            "characters (`tokenizer train --limit-alphabet`)?"
        )
    if not about["splits"]["heldout"]["documents"]:
        console.warn("no document is held out, and a run needs some: --separator blank makes one of each paragraph")
        return False
    return True


def _goal_for(tokenizer: Tokenizer, *, chinese: bool) -> list[str]:
    """A recipe for which this tokenizer has the special tokens, with a small model to begin with."""
    if tokenizer.sentinel_ids:
        return ["t5"]
    if tokenizer.mask_token_id is None:
        return ["gpt2"]
    return ["bert_chinese" if chinese else "bert", "--preset", "bert_mini"]


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="Folder of the corpus.")],
    document: Annotated[
        int | None, typer.Option("--document", help="Show this document of the split.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train or heldout.")] = "train",
) -> None:
    """What a corpus holds: counts, lengths, and single documents as the model will see them.

    Example: unmask corpus inspect corpus --document 0
    """
    from unmask.cli.console import Console
    from unmask.errors import UnmaskError
    from unmask.text.shards import Corpus

    if split not in ("train", "heldout"):
        raise UnmaskError(f"unknown split {split!r}", where="--split", do="give train or heldout")
    with Console() as console:
        corpus = Corpus.open(folder, "train" if split == "train" else "heldout", progress=console)
        if document is None:
            show(console, folder, corpus.about)
        else:
            _show_document(console, corpus, document)


def show(console: Any, folder: Path, about: dict[str, Any]) -> None:
    """What was read, dropped and stored, as a table."""
    report, splits = about["report"], about["splits"]
    read, duplicates = report["read"], report["duplicates"]
    rows = [
        ["documents read", read["documents"]],
        ["empty, left out", read["empty"] + report["clean"]["empty_documents"]],
        ["bad records, left out", read["bad_count"]],
        *([f"files of kind {kind}, passed over", count] for kind, count in sorted(read["ignored"].items())),
        ["exact duplicates, left out", duplicates["exact"]],
        ["near duplicates, left out", duplicates["near"]],
        *([f"{name} documents", split["documents"]] for name, split in splits.items()),
        *([f"{name} sentences", split["sentences"]] for name, split in splits.items()),
        *([f"{name} tokens", split["tokens"]] for name, split in splits.items()),
        ["unknown tokens, %", round(100 * report["text"]["unknown_token_share"], 3)],
        ["byte order marks removed", read["boms"]],
        ["NUL characters removed", read["nuls"]],
    ]
    console.table(f"Corpus in {folder}" + (f" ({about['outcome']})" if "outcome" in about else ""), rows)
    console.table("Documents by tokens", list(report["lengths"].items()), ["tokens", "documents"])


def _show_document(console: Any, corpus: Any, number: int) -> None:
    import numpy as np

    from unmask.errors import UnmaskError
    from unmask.text.tokenizer import Tokenizer

    if not 0 <= number < corpus.num_documents:
        raise UnmaskError(
            f"there is no document {number}", where="--document", do=f"give 0 … {corpus.num_documents - 1}"
        )
    source, record = corpus.origin(number)
    texts, tokenizer = corpus.read(np.array([number])), Tokenizer.load(corpus.tokenizer_folder)
    rows = [
        [k, end - begin, " ".join(tokenizer.token(i) for i in texts.tokens[begin:end].tolist())]
        for k, (begin, end) in enumerate(zip(texts.sentences.tolist(), texts.sentences.tolist()[1:], strict=False))
    ]
    console.table(f"Document {number}: {source}, record {record}", rows, ["sentence", "tokens", "text"])
