"""`unmask export` and `unmask report`: what a run leaves for others."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from unmask.cli.console import Console


def export(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run; for ONNX also a model folder.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder of the model; an existing model there is replaced.", show_default=False
        ),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            help="last, best (held-out loss) or a step. A fine-tuning run keeps the model of its best one only.",
            show_default="last; best of a fine-tuning run",
        ),
    ] = "",
    kind: Annotated[
        str, typer.Option("--format", help="huggingface, or onnx (a graph for other runtimes).")
    ] = "huggingface",
    head: Annotated[
        str,
        typer.Option(
            "--head",
            help="ONNX: none (hidden states), mlm, causal, rtd, nsp, sop, infill, classify, tag or answer; "
            "auto: the task's head of a fine-tuned model, none elsewhere.",
        ),
    ] = "auto",
    int8: Annotated[bool, typer.Option("--int8", help="ONNX: in 8 bits, if texts keep their vectors.")] = False,
    texts: Annotated[
        Path | None,
        typer.Option("--texts", help="ONNX: texts, one a line, that int8 is checked on.", show_default="built-in"),
    ] = None,
) -> None:
    """Write a Hugging Face folder from a checkpoint of a run, or an ONNX folder from a run or a model.

    Of a fine-tuning run it is the model that the run kept.

    Example: unmask export runs/first --checkpoint best --out best-model

    Example: unmask export best-model --format onnx --int8 --out best-model-onnx

    Example: unmask export runs/finetune --format onnx --out classifier-onnx
    """
    from unmask import road
    from unmask.cli.console import Console
    from unmask.errors import UnmaskError
    from unmask.tasks import export as tuned

    with Console() as console:
        match kind:
            case "huggingface" if tuned.is_tuning(source):
                tuned.export(source, out, checkpoint)
                console.say(f"The run's model in {out}; its README.md says how to use it.")
            case "huggingface":
                step = road.export(source, out, checkpoint or "last")
                console.say(
                    f"Model of step {step:,} in {out}; "
                    "transformers loads it with AutoModelForPreTraining or AutoModelForMaskedLM."
                )
            case "onnx":
                _export_onnx(console, source, out, checkpoint, head, int8, texts)
            case _:
                raise UnmaskError(f"unknown format {kind!r}", where="--format", do="give huggingface or onnx")


def _export_onnx(
    console: Console, source: Path, out: Path, checkpoint: str, head: str, int8: bool, texts: Path | None
) -> None:
    """From a model folder as it is; a run's checkpoint becomes one first, which is deleted again."""
    from unmask import road
    from unmask.hub.onnx.export import export_onnx
    from unmask.hub.onnx.sentences import SENTENCES

    lines = SENTENCES if texts is None else _lines(texts)
    with tempfile.TemporaryDirectory(prefix="unmask-export-") as scratch:
        model = _model_of(source, checkpoint)
        if model is None:
            model = Path(scratch) / "model"
            road.export(source, model, checkpoint or "last")
        report = export_onnx(model, out, head=head, int8=int8, texts=lines, progress=console)
    rows: list[list[object]] = [["fp32, worst difference from the model", f"{report.difference:.1e}"]]
    if report.cosine is not None:
        rows.append([f"int8, least cosine over {len(lines):,} texts", f"{report.cosine:.4f}"])
        rows.append(["matrix products left in fp32", report.spared])
    if report.head != "none":
        rows.append(["logits of the head", report.head])
    console.table(f"{', '.join(report.files)} in {out}", rows)
    for note in report.notes:
        console.say(f"Note: {note}.")


def _model_of(source: Path, checkpoint: str) -> Path | None:
    """The model folder that `source` is, or the one a fine-tuning run kept in it; None: a checkpoint must become one."""
    from unmask.tasks.export import is_tuning, kept_model

    if any((source / name).exists() for name in ("config.json", "modules.json")):
        return source
    return kept_model(source, checkpoint) if is_tuning(source) else None


def _lines(path: Path) -> list[str]:
    from unmask.errors import UnmaskError

    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise UnmaskError(f"the texts can't be read: {error}", where=str(path), do="give a UTF-8 file") from None
    found = [line for line in lines if line]
    if not found:
        raise UnmaskError("there is no text in the file", where=str(path), do="give texts, one a line")
    return found


def report(run: Annotated[Path, typer.Argument(help="Folder of the run.")]) -> None:
    """Write report.html of a run anew, also while it is running."""
    from unmask import road
    from unmask.cli.console import Console
    from unmask.tasks.export import is_tuning
    from unmask.train.report.page import write_report

    if not is_tuning(run):
        road.read_settings(run)
    with Console() as console:
        console.say(str(write_report(run)))
