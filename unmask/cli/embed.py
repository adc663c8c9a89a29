"""`unmask embed`: vectors of texts, from files to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.options import Field, MaxDocument, SkipBad, Sources, read_options

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.inference.stream import EmbedReport


def embed(
    folder: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model folder: ours, Hugging Face's or sentence-transformers'.")
    ],
    sources: Sources,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="vectors.npy or vectors.parquet; replaced if there.", show_default=False)
    ],
    field: Field = "",
    separator: Annotated[
        str, typer.Option("--separator", help="What ends a text in .txt: line, blank (lines), file, or any string.")
    ] = "line",
    skip_bad: SkipBad = 0,
    max_document: MaxDocument = 32,
    pooling: Annotated[
        str,
        typer.Option(
            "--pooling",
            help="mean, cls, max, weightedmean, lasttoken, mean_sqrt_len_tokens; several with commas.",
            show_default="the folder's own, else mean",
        ),
    ] = "",
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Vectors of length 1.", show_default="the folder's own"),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="Text put before each text; '' for none.", show_default="the folder's own"),
    ] = None,
    prompt_name: Annotated[
        str, typer.Option("--prompt-name", help="One of the folder's prompts, e.g. query.", show_default=False)
    ] = "",
    layer: Annotated[
        int, typer.Option("--layer", help="Hidden states to pool: 0 the embedded tokens, -1 the output.")
    ] = -1,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float16.")] = "float32",
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Store the texts too (.parquet).")] = False,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", min=0, help="Tokens of a batch; 0: what suits the device.")
    ] = 0,
    threads: Annotated[
        int, typer.Option("--threads", min=0, max=1024, help="To compute with; 0: what torch chooses.")
    ] = 0,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    backend: Annotated[str, typer.Option("--backend", help="torch or onnx.")] = "torch",
    precision: Annotated[str, typer.Option("--precision", help="fp32, or bf16 where the hardware has it.")] = "fp32",
) -> None:
    """Turn texts into vectors: one for each line of .txt, each record of .jsonl, .csv, .parquet.

    Example: unmask embed runs/demo/run/model notes.jsonl --out vectors.parquet --normalize
    """
    from unmask.cli.console import Console
    from unmask.errors import UnmaskError
    from unmask.inference.loaded import load
    from unmask.inference.stream import EmbedOptions, embed_files
    from unmask.tasks.export import model_folder

    if prompt is not None and prompt_name:
        raise UnmaskError(
            "--prompt and --prompt-name exclude each other", where="--prompt", do="leave one of them away"
        )
    # `main` turns threads of the tokenizer off for the sake of worker processes, of which there are none here.
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    with Console() as console:
        model = load(model_folder(folder), device, threads, backend, precision)  # type: ignore[arg-type]  # checked there
        options = EmbedOptions(
            read=read_options(field, separator, skip_bad, max_document),
            pooling=tuple(pooling.split(",")) if pooling else None,  # type: ignore[arg-type]
            normalize=normalize,
            batch_tokens=batch_tokens,
            layer=layer,
            prompt=model.prompt_named(prompt_name) if prompt_name else prompt,
            dtype=dtype,  # type: ignore[arg-type]
            keep_text=keep_text,
        )
        report = embed_files(model, sources, out, options, progress=console)
        show(console, out, report, model.max_length)


def show(console: Console, out: Path, report: EmbedReport, max_length: int) -> None:
    """Counts and speed, and what a person has to know of texts that are cut or missing."""
    read = report.read
    rows = [
        ["texts", report.texts],
        ["dimensions", report.dimensions],
        ["tokens", report.tokens],
        ["tokens/s", round(report.tokens / max(report.seconds, 1e-9))],
        [f"cut to {max_length:,} tokens", report.truncated],
        ["empty, left out", read.empty],
        ["bad records, left out", read.bad_count],
        *([f"files of kind {kind}, passed over", count] for kind, count in sorted(read.ignored.items())),
    ]
    console.table(f"Vectors in {out}", rows)
    if report.truncated:
        console.warn(
            f"texts of more than {max_length:,} tokens: {report.truncated:,}; only their beginning is embedded"
        )
    if out.suffix == ".npy" and (missing := read.empty + read.bad_count):
        console.warn(
            f"records without a row, empty or bad: {missing:,}; so rows and records are not numbered alike. A .parquet file "
            "names the record of each row"
        )
