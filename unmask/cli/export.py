"""`unmask export` and `unmask report`: what a run leaves for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder of the model; an existing model there is replaced.", show_default=False
        ),
    ],
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="last, best (held-out loss) or a step.")] = "last",
) -> None:
    """Write a Hugging Face folder from a checkpoint of a run.

    Example: unmask export runs/first --checkpoint best --out best-model
    """
    from unmask import road
    from unmask.cli.console import Console

    with Console() as console:
        step = road.export(run, out, checkpoint)
        console.say(
            f"Model of step {step:,} in {out}; transformers loads it with AutoModelForPreTraining or AutoModelForMaskedLM."
        )


def report(run: Annotated[Path, typer.Argument(help="Folder of the run.")]) -> None:
    """Write report.html of a run anew, also while it is running."""
    from unmask import road
    from unmask.cli.console import Console
    from unmask.train.report.page import write_report

    road.read_settings(run)
    with Console() as console:
        console.say(str(write_report(run)))
