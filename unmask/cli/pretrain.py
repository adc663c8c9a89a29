"""`unmask pretrain`: a run from its recipe to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.options import Set, command

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.config import RunConfig
    from unmask.train.loop import Outcome


def pretrain(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe by name (bert, bert_chinese, mlm_only), FILE.toml, FILE.py:function or package.module:function."
        ),
    ] = "bert",
    corpus: Annotated[
        str, typer.Option("--corpus", "-c", help="Folder made by `unmask corpus build`.", show_default=False)
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")] = Path("runs/bert"),
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            "-p",
            help="Size of the encoder: bert_tiny, bert_mini, … bert_large.",
            show_default="the recipe's",
        ),
    ] = "",
    start_from: Annotated[
        str,
        typer.Option("--start-from", help="Model folder to go on from, instead of new weights.", show_default=False),
    ] = "",
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Train for so many minutes of this machine.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Train for so many steps.", show_default=False)] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Train for so many tokens.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of weights, order and masks.", show_default="the recipe's")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, with its own settings, bit for bit.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved run with what it will cost, and leave.")
    ] = False,
    set_: Set = None,
) -> None:
    """Pre-train an encoder on a corpus. Ctrl-C saves and leaves; --resume goes on.

    Example: unmask pretrain bert --corpus corpus --preset bert_mini --minutes 60 --set optimizer.learning_rate=1e-3
    """
    from unmask.cli.console import Console

    with Console() as console:
        if resume:
            named = bool(recipe != "bert" or corpus or preset or start_from or set_ or dry_run)
            _refuse_changes(named or any(value is not None for value in (minutes, steps, tokens, seed)))
            _finish(console, out, _run(console, None, out))
            return
        run = _settings(
            recipe, corpus, preset, start_from, {"minutes": minutes, "steps": steps, "tokens": tokens}, seed, set_ or []
        )
        if dry_run:
            _show_plan(console, run)
        else:
            _finish(console, out, _run(console, run, out))


def _refuse_changes(changed: bool) -> None:
    if changed:
        from unmask.errors import UnmaskError

        raise UnmaskError(
            "a resumed run keeps the settings it began with",
            where="--resume",
            do="drop the other options, or begin a new run with --start-from RUN/model",
        )


def _settings(
    recipe: str,
    corpus: str,
    preset: str,
    start_from: str,
    until: dict[str, float | None],
    seed: int | None,
    changes: list[str],
) -> RunConfig:
    """The resolved settings: recipe, then the named options, then --set."""
    from unmask import presets, recipes, road, settings
    from unmask.config import RunConfig
    from unmask.errors import UnmaskError

    data = settings.plain(recipes.recipe(recipe))
    given = {name: value for name, value in until.items() if value is not None}
    if len(given) > 1:
        raise UnmaskError(
            f"a run ends by one rule, not by {' and '.join(given)}", do="give one of --minutes, --steps, --tokens"
        )
    for name, value in given.items():
        data["until"] = {"kind": name, name: value}
    if preset:
        data["encoder"] = settings.plain(presets.preset(preset)())
    chosen: dict[str, Any] = {"corpus": corpus, "start_from": start_from}
    data |= {name: value for name, value in chosen.items() if value}
    if seed is not None:
        data["seed"] = seed
    run = settings.override(RunConfig, settings.parse(RunConfig, data, where=recipe), changes)
    _refuse_ignored(run, preset, changes)
    return road.fit_to_corpus(run)


def _refuse_ignored(run: RunConfig, preset: str, changes: list[str]) -> None:
    """What the corpus or the model to start from decides can't be chosen: an option without effect would mislead."""
    from unmask.errors import UnmaskError

    names = [change.partition("=")[0].strip() for change in changes] + ["--preset"] * bool(preset)
    decided = ("encoder.vocab_size", "encoder.pad_token_id")
    if ignored := [name for name in names if name in decided]:
        raise UnmaskError(f"{ignored[0]} comes from the corpus", where="--set", do="leave it out")
    if run.start_from and (ignored := [name for name in names if name == "--preset" or name.startswith("encoder")]):
        raise UnmaskError(
            f"the encoder comes from the model to start from, so {ignored[0]} would have no effect",
            where=run.start_from,
            do=f"leave out {ignored[0]} or --start-from",
        )


def _run(console: Console, run: RunConfig | None, out: Path) -> Outcome:
    from unmask import road

    with console.training(str(out)) as view:
        if run is None:
            return road.resume(out, view=view.record, progress=console)
        return road.pretrain(run, out, view=view.record, progress=console)


def _finish(console: Console, out: Path, outcome: Outcome) -> None:
    if not outcome.finished:
        again = command("pretrain", "--resume", "--out", out)
        console.say(f"Stopped and saved after step {outcome.step:,}. Go on with: {again}")
        raise typer.Exit(outcome.exit_code)
    from unmask.text.tokenizer import Tokenizer

    show_result(console, out)
    tokenizer = Tokenizer.load(out / "model")
    example = f"Some text with a {tokenizer.token(tokenizer.mask_token_id)} in it."
    console.say(f"\nModel: {out / 'model'}   Report: {out / 'report.html'}")
    console.say(f"Next: {command('fill', out / 'model', example)}")


def show_result(console: Console, out: Path) -> None:
    """Held-out figures before and after, beside what guessing by frequency would give."""
    from unmask.train.journal import read_run

    result = read_run(out)["result"]
    if "last" not in result:  # nothing was measured, or metrics.jsonl was lost
        return
    first, last = result["first"], result["last"]
    names = {"mlm": "MLM", "nsp": "NSP"}
    rows: list[list[object]] = [
        [f"held-out {names.get(k, k)} loss (nats)", round(first["losses"][k], 4), round(last["losses"][k], 4)]
        for k in last["losses"]
    ]
    rows += [
        [f"held-out {names.get(k, k)} accuracy", round(first["accuracy"][k], 4), round(last["accuracy"][k], 4)]
        for k in last["accuracy"]
    ]
    if "perplexity" in last:
        rows.append(["held-out perplexity", round(first["perplexity"], 1), round(last["perplexity"], 1)])
    console.table("Result", rows, ["", "before", "after"])
    if "mlm" in last["losses"]:
        entropy = result["unigram_entropy"]
        gain = entropy - last["losses"]["mlm"]
        console.say(
            f"\nUnigram entropy of the held-out text: {entropy:.4f} nats; "
            f"the MLM loss is {abs(gain):.4f} nats {'below' if gain >= 0 else 'above'} it."
        )


def _show_plan(console: Console, run: RunConfig) -> None:
    import json

    from unmask import road, settings

    cost = road.estimate(run)
    console.say(json.dumps(settings.plain(run), indent=1, ensure_ascii=False))
    console.table(
        "What it will cost",
        [
            ["parameters", cost["parameters"]],
            ["steps", cost["steps"]],
            ["tokens", cost["tokens"]],
            ["TFLOPs a step", round(cost["flops_per_step"] / 1e12, 4)],
            ["memory for training, GiB", round(cost["bytes"] / 2**30, 2)],
            [
                f"minutes here, at half the peak of {cost['peak_flops'] / 1e9:.0f} GFLOP/s",
                round(cost["seconds"] / 60, 1),
            ],
        ],
    )
