"""`unmask`: the commands together, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

import typer

from unmask.cli import (
    context,
    corpus,
    demo,
    doctor,
    embed,
    explain,
    export,
    fill,
    finetune,
    mine,
    predict,
    pretrain,
    tokenizer,
    vectors,
)
from unmask.errors import UnmaskError

app = typer.Typer(
    name="unmask",
    help="Pre-train text encoders on your own corpus and put them to work.\n\n"
    "The road: [bold]tokenizer train[/] → [bold]corpus build[/] → [bold]pretrain[/] → [bold]finetune[/], [bold]fill[/], "
    "[bold]export[/]. "
    "[bold]unmask demo[/] walks all of it on text that is already on this machine.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(corpus.app, name="corpus")
app.command("pretrain")(pretrain.pretrain)
app.command("finetune")(finetune.finetune)
app.command("evaluate")(predict.evaluate)
app.command("predict")(predict.predict)
app.command("mine")(mine.mine)
app.command("fill")(fill.fill)
app.command("embed")(embed.embed)
app.command("explain")(explain.explain)
app.command("context")(context.context)
app.command("export")(export.export)
app.command("report")(export.report)
app.add_typer(vectors.app, name="vectors")
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def _whole(
    version: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if version:
        import unmask

        typer.echo(f"unmask {unmask.__version__}")
        raise typer.Exit


def main() -> None:
    """The console script.

    Exit codes: 0 done, 2 bad input, 73 can't write there, 74 the system failed, 130 or 143 stopped, 1 our fault.
    """
    # Computing threads that spin long while they wait for each other stop nearly all work as soon as another program wants
    # their core; a short spin costs 3 % on a quiet machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # worker processes are the parallelism here
    try:
        app()
    except UnmaskError as error:
        from unmask.cli.console import Console

        Console().print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        sys.exit(_refused(error) if error.errno and error.filename else _fault())
    except (MemoryError, RuntimeError) as error:
        sys.exit(_too_large() if _is_about_memory(error) else _fault())
    except SystemError as error:  # what compiled code makes of a Ctrl-C that reaches it
        sys.exit(130 if isinstance(error.__cause__, KeyboardInterrupt) else _fault())
    except Exception:
        sys.exit(_fault())


def _refused(error: OSError) -> int:
    """The system's refusal about a file, where no sentence of our own met it (a name too long, say); EX_IOERR."""
    from unmask.cli.console import Console

    do = "check the path, its permissions and the disk"
    Console().print_error(UnmaskError(f"the system refuses: {error.strerror}", where=str(error.filename), do=do))
    return 74


def _is_about_memory(error: Exception) -> bool:
    """torch tells it by a class of its own on a GPU and in words on a CPU."""
    name = type(error).__name__
    return name in ("MemoryError", "OutOfMemoryError") or "can't allocate memory" in str(error)


def _too_large() -> int:
    from unmask.cli.console import Console

    do = "choose a smaller preset, batch.tokens or max_length; `unmask pretrain … --dry-run` tells what a run needs"
    Console().print_error(UnmaskError("there is not enough memory for this", do=do))
    return UnmaskError.exit_code


def _fault() -> int:
    """A fault of ours: the traceback goes to a file, a sentence to the person."""
    with tempfile.NamedTemporaryFile("w", prefix="unmask-fault-", suffix=".log", delete=False, encoding="utf-8") as log:
        log.write(" ".join(sys.argv) + "\n\n" + traceback.format_exc())
    last = traceback.format_exc().strip().splitlines()[-1]
    print(
        f"error: this is a fault in unmask: {last[:300]}\n  where: {log.name}\n  do: please report it with that file",
        file=sys.stderr,
    )
    return 1
