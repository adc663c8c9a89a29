"""`unmask fill`: what the model would put at [MASK]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from unmask.cli.console import Console


def fill(
    folder: Annotated[
        Path, typer.Argument(help="A model folder with an MLM head: ours, or another of a family we read.")
    ],
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Text with one or more [MASK].", show_default=False)
    ],
    top: Annotated[int, typer.Option("--top", min=1, max=1000, help="Guesses for each place.")] = 5,
) -> None:
    """Let a model guess masked words.

    Example: unmask fill runs/demo/run/model "The function returns a [MASK] of strings."
    """
    from unmask.cli.console import Console

    with Console() as console:
        show_guesses(console, folder, texts, top)


def show_guesses(console: Console, folder: Path, texts: Sequence[str], top: int) -> None:
    """A table of likely tokens for each mask of each text."""
    from unmask.hub.masked_model import load_masked_model
    from unmask.measure.fill import fill_mask

    model = load_masked_model(folder)
    for text in texts:
        guesses = fill_mask(model.encoder, model.mlm, model.tokenizer, text, top)
        for place, row in enumerate(guesses, 1):
            title = text if len(guesses) == 1 else f"{text}  (mask {place})"
            console.table(title, [[guess.token, f"{guess.probability:.4f}"] for guess in row], ["token", "probability"])
