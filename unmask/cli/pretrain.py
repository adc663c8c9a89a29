"""`unmask pretrain`: a run from its recipe to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask import presets, recipes
from unmask.cli.options import Set, command

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.config import RunConfig
    from unmask.train.loop import Outcome


def pretrain(
    recipe: Annotated[
        str,
        typer.Argument(
            help=f"What is learned and how: {', '.join(recipes.RECIPES)}; or FILE.toml, FILE.py:function, "
            "package.module:function. Or the corpus' folder, where a preset says the rest.",
            show_default="the preset's, or bert",
        ),
    ] = "",
    corpus: Annotated[
        str, typer.Option("--corpus", "-c", help="Folder made by `unmask corpus build`.", show_default=False)
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the run.", show_default="runs/ and the name of preset or recipe"),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            "-p",
            help="The encoder, which brings the recipe of its family where none is named: "
            + "; ".join(", ".join(family) for family in presets.families()),
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

    Example: unmask pretrain --preset electra_small --corpus corpus --minutes 60 --set optimizer.learning_rate=1e-3
    """
    from unmask.cli.console import Console

    if recipe and not corpus and Path(recipe).is_dir():  # `unmask pretrain --preset P CORPUS`
        recipe, corpus = "", recipe
    out = out or Path("runs") / (preset or Path(recipe.partition(":")[0]).stem or "bert").replace("-", "_")
    with Console() as console:
        if resume:
            named = bool(recipe or corpus or preset or start_from or set_ or dry_run)
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
    from unmask import road, settings
    from unmask.config import RunConfig
    from unmask.errors import UnmaskError

    data = settings.plain(recipes.recipe(recipe, preset))
    given = {name: value for name, value in until.items() if value is not None}
    if len(given) > 1:
        raise UnmaskError(
            f"a run ends by one rule, not by {' and '.join(given)}", do="give one of --minutes, --steps, --tokens"
        )
    for name, value in given.items():
        data["until"] = {"kind": name, name: value}
    chosen: dict[str, Any] = {"corpus": corpus, "start_from": start_from}
    data |= {name: value for name, value in chosen.items() if value}
    if seed is not None:
        data["seed"] = seed
    run = settings.override(RunConfig, settings.parse(RunConfig, data, where=recipe or preset), changes)
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
    from unmask.hub.configs import read_json

    show_result(console, out)
    console.say(f"\nModel: {out / 'model'}   Report: {out / 'report.html'}")
    if read_json(out / "model" / "config.json").get("model_type") == "unmask":
        console.say("No class of transformers computes this network: the folder loads with unmask alone.")
    if example := _example(out):
        console.say(f"Next: {example}")


def _example(out: Path) -> str:
    """A command that lets the model, or the generator that trained it, guess a word; empty where neither can."""
    from unmask import road
    from unmask.text.tokenizer import Tokenizer

    kinds = {goal.kind for goal in road.read_settings(out).objectives}
    tokenizer = Tokenizer.load(out / "model")
    if tokenizer.mask_token_id is None or not kinds & {"mlm", "rtd"}:
        return ""
    folder = out / "model" if "mlm" in kinds else out / "model" / "generator"
    return command("fill", folder, f"Some text with a {tokenizer.token(tokenizer.mask_token_id)} in it.")


def show_result(console: Console, out: Path) -> None:
    """Held-out figures before and after the run, or its last phase, beside what guessing by frequency would give."""
    from unmask.train.journal import read_run
    from unmask.train.report.text import loss_name

    data = read_run(out)
    result = data["result"]
    if "last" not in result:  # nothing was measured, or metrics.jsonl was lost
        return
    first, last = result["first"], result["last"]
    whose = {name: loss_name(name) for name in last["losses"]}
    if "rtd" in whose:
        whose["mlm"] = "generator's MLM"  # not that of the model in model/
    rows: list[list[object]] = [
        [f"held-out {whose[k]} loss (nats)", round(first["losses"][k], 4), round(last["losses"][k], 4)]
        for k in last["losses"]
    ]
    rows += [
        [f"held-out {whose[k]} accuracy", round(first["accuracy"][k], 4), round(last["accuracy"][k], 4)]
        for k in last["accuracy"]
    ]
    if "perplexity" in last:
        rows.append(
            [
                f"{'generator' if 'rtd' in whose else 'held-out'} perplexity",
                round(first["perplexity"], 1),
                round(last["perplexity"], 1),
            ]
        )
    console.table("Result of the last phase" if data["run"].get("phases") else "Result", rows, ["", "before", "after"])
    entropy = result["unigram_entropy"]
    name = next((name for name in ("mlm", "causal") if name in last["losses"]), "")
    if name and entropy is not None:
        gain = entropy - last["losses"][name]
        console.say(
            f"\nUnigram entropy of the held-out text: {entropy:.4f} nats; "
            f"the {whose[name]} loss is {abs(gain):.4f} nats {'below' if gain >= 0 else 'above'} it."
        )


def _show_plan(console: Console, run: RunConfig) -> None:
    """The resolved settings, and for each phase what it will cost."""
    import json

    from unmask import road, settings

    console.say(json.dumps(settings.plain(run), indent=1, ensure_ascii=False))
    parts = road.phases_of(run)
    for number, part in enumerate(parts, 1):
        title = f"What phase {number} of {len(parts)} will cost" if len(parts) > 1 else "What it will cost"
        console.table(title, _cost_rows(road.estimate(part)))


def _cost_rows(cost: dict[str, Any]) -> list[list[object]]:
    beside = cost["parameters"] - cost["encoder_parameters"]
    peak = f"{cost['peak_flops'] / 1e9:.0f} GFLOP/s"
    return [
        ["parameters", cost["parameters"]],
        ["of these beside the encoder", beside],
        ["steps", cost["steps"]],
        ["tokens", cost["tokens"]],
        ["TFLOPs a step", round(cost["flops_per_step"] / 1e12, 4)],
        ["memory for training, GiB", round(cost["bytes"] / 2**30, 2)],
        [f"minutes here, at half the peak of {peak}", round(cost["seconds"] / 60, 1)],
    ]
