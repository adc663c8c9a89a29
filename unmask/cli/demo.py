"""`unmask demo`: the whole road on text that is already on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unmask.cli.options import Set

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
    from unmask import recipes, road, settings
    from unmask.cli.console import Console
    from unmask.cli.fill import fill
    from unmask.cli.pretrain import show_result
    from unmask.cli.tokenizer import texts
    from unmask.config import RunConfig
    from unmask.text.build import build_corpus
    from unmask.text.documents import ReadOptions
    from unmask.text.train_tokenizer import TrainOptions, train

    run = settings.override(RunConfig, recipes.demo(minutes), set_ or [])
    name, number = out / "run", 1
    while (name / "run.json").exists():  # an earlier demo is kept
        number += 1
        name = out / f"run-{number}"
    with Console() as console:
        console.say("1/4 Learning a WordPiece tokenizer of 8,192 tokens from Python's documentation")
        options = TrainOptions(kind="wordpiece", vocab_size=8192, lowercase=True)
        tokenizer, report = train(texts(["python-docs"], ReadOptions(), console), options, progress=console)
        tokenizer.save(out / "tokenizer")
        console.say(f"    {report.texts:,} documents, {report.characters / 1e6:.1f} M characters")
        console.say("2/4 Cleaning, de-duplicating and cutting the text into token shards")
        about = build_corpus(["python-docs"], out / "corpus", tokenizer, progress=console)
        splits = about["splits"]
        console.say(f"    {splits['train']['tokens']:,} tokens to train on, {splits['heldout']['tokens']:,} held out")
        console.say(f"3/4 Pre-training a small BERT (MLM + NSP) for {minutes:g} minutes")
        run = road.fit_to_corpus(settings.override(RunConfig, run, [f"corpus={out / 'corpus'}"]))
        with console.training(str(name)) as view:
            outcome = road.pretrain(run, name, view=view.record, progress=console)
        if not outcome.finished:
            console.say(f"Stopped and saved. Go on with: unmask pretrain --resume --out {name}")
            raise typer.Exit(outcome.exit_code)
        console.say("4/4 What it has learned\n")
        show_result(console, name)
    fill(name / "model", list(PROMPTS), top=3)
    with Console() as console:
        console.say(f"\nReport (open it in a browser): {(name / 'report.html').resolve()}")
        console.say(f"Model (transformers loads it):  {name / 'model'}")
        console.say(f"Try: unmask fill {name / 'model'} 'A [MASK] is raised if the key is missing.'")
