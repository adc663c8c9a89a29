"""`unmask demo`: the whole road on text that is already on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.options import Set

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.config import RunConfig

PROMPTS = (
    "Return a [MASK] of strings.",
    "If the file does not [MASK], an exception is raised.",
    "The default [MASK] is None.",
    "This method returns the [MASK] of elements in the array.",
)


def demo(
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="Time for pre-training.")] = 5.0,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything the demo makes.")] = Path("runs/demo"),
    set_: Set = None,
) -> None:
    """Walk the whole road in a few minutes: text, tokenizer, shards, pre-training, held-out loss, fill-mask, report.

    The text is Python's own documentation as installed here; nothing is downloaded.

    Example: unmask demo --minutes 2
    """
    from unmask import recipes, settings
    from unmask.cli.console import Console
    from unmask.cli.fill import show_guesses
    from unmask.config import RunConfig

    run = settings.override(RunConfig, recipes.demo(minutes), set_ or [])  # a mistyped --set is told before the work
    with Console() as console:
        text = _collect(console, out / "text.jsonl")
        _prepare(console, text, out)
        folder = _train(console, run, out, minutes)
        console.say("\n5/5 What it guesses\n")
        show_guesses(console, folder / "model", PROMPTS, top=3)
        console.say(f"\nReport (open it in a browser): {(folder / 'report.html').resolve()}")
        console.say(f"Model (transformers loads it):  {folder / 'model'}")
        console.say(f"Try: unmask fill {folder / 'model'} 'A [MASK] is raised if the key is missing.'")


def _collect(console: Console, path: Path) -> Path:
    """Python's documentation as one JSON Lines file; kept between demos, since reading the sources takes half a minute."""
    from unmask.cli.tokenizer import texts
    from unmask.files import make_folder, write_file
    from unmask.text.documents import ReadOptions

    console.say("1/5 Reading Python's own documentation, as installed here")
    if not path.exists():
        make_folder(path.parent)
        lines = [
            json.dumps({"text": text}, ensure_ascii=False) + "\n"
            for text in texts(["python-docs"], ReadOptions(), console)
        ]
        write_file(path, "".join(lines))
    console.say(f"    {path.stat().st_size / 1e6:.1f} MB of English in {path}")
    return path


def _prepare(console: Console, text: Path, out: Path) -> None:
    from unmask.cli.tokenizer import texts
    from unmask.text.build import build_corpus
    from unmask.text.documents import ReadOptions
    from unmask.text.train_tokenizer import TrainOptions, train

    console.say("2/5 Learning a WordPiece tokenizer of 8,192 tokens")
    options = TrainOptions(kind="wordpiece", vocab_size=8192, lowercase=True)
    tokenizer, _ = train(texts([str(text)], ReadOptions(), console), options, progress=console)
    tokenizer.save(out / "tokenizer")
    console.say("3/5 Cleaning, de-duplicating and cutting the text into token shards")
    splits = build_corpus([str(text)], out / "corpus", tokenizer, progress=console)["splits"]
    console.say(f"    {splits['train']['tokens']:,} tokens to train on, {splits['heldout']['tokens']:,} held out")


def _train(console: Console, run: RunConfig, out: Path, minutes: float) -> Path:
    """Pre-trains in a new folder below `out`; an earlier demo's run is kept."""
    from dataclasses import replace

    from unmask import road
    from unmask.cli.pretrain import show_result

    folder, number = out / "run", 1
    while (folder / "run.json").exists():
        number += 1
        folder = out / f"run-{number}"
    console.say(f"4/5 Pre-training a small BERT (MLM + NSP) for {minutes:g} minutes")
    run = road.fit_to_corpus(replace(run, corpus=str(out / "corpus")))
    with console.training(str(folder)) as view:
        outcome = road.pretrain(run, folder, view=view.record, progress=console)
    if not outcome.finished:
        console.say(f"Stopped and saved. Go on with: unmask pretrain --resume --out {folder}")
        raise typer.Exit(outcome.exit_code)
    show_result(console, folder)
    return folder
