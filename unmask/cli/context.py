"""`unmask context`: one word in many sentences, by static vectors, ELMo and encoders; and word-in-context accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.measure.context import Comparison
    from unmask.measure.wic import Pair, WicScore


def context(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD [MODEL]...", help="The word, and further models.", show_default=False),
    ] = None,
    sentences: Annotated[
        str,
        typer.Option(
            "--sentences",
            metavar="FILE",
            help="A sentence a line, its sense after a tab if it has one; or .jsonl with text and sense.",
            show_default=False,
        ),
    ] = "",
    models: Annotated[
        list[Path] | None,
        typer.Option(
            "--models",
            "-m",
            metavar="MODEL [MODEL]...",
            help="Files or folders of static vectors, model folders (ELMo too); repeatable.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.html", help="The page; FILE.json beside it.", show_default=False),
    ] = None,
    forms: Annotated[str, typer.Option("--forms", help="Inflected forms that count too, with commas, e.g. mice.")] = "",
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="Find the word with any capitals.")] = False,
    most: Annotated[int, typer.Option("--most", min=2, help="Uses at most, taken evenly; time grows with them.")] = 400,
    wic: Annotated[
        str,
        typer.Option("--wic", metavar="FILE", help="Pairs of a word-in-context set to test on.", show_default=False),
    ] = "",
    dev: Annotated[
        str,
        typer.Option("--dev", metavar="FILE", help="With --wic: pairs to choose the threshold on.", show_default=False),
    ] = "",
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Show what models make of one word in different sentences: where do its senses part?

    Example: unmask context bank --sentences bank.tsv --models vectors elmo/model bert/model --out bank.html
    Or, how often the cosine tells whether a word is meant alike: unmask context --wic test.jsonl --dev dev.jsonl --models A B
    """
    from unmask.cli.console import Console
    from unmask.errors import UnmaskError

    if device not in ("auto", "cpu", "cuda"):
        raise UnmaskError(f"unknown device {device!r}", where="--device", do="give auto, cpu or cuda")
    given = [*(words or [])]
    with Console() as console:
        if wic:
            _refuse(bool(sentences or out or forms), "--wic", "leave out --sentences, --forms and --out")
            _pairs(console, [*(models or []), *map(Path, given)], wic, dev, device)
            return
        _refuse(bool(dev), "--dev", "give --wic FILE too, or leave it out")
        _refuse(not given, "WORD", "name the word first, e.g. unmask context bank --sentences FILE --models MODEL")
        _refuse(not sentences, "--sentences", "give a file with a sentence a line")
        _refuse(out is None or out.suffix != ".html", "--out", "give the page a name that ends in .html")
        assert out is not None
        _spare(sentences, out)
        _word(
            console,
            given[0],
            [*(models or []), *map(Path, given[1:])],
            sentences,
            out,
            forms,
            ignore_case,
            most,
            device,
        )


def _refuse(wrong: bool, where: str, do: str) -> None:
    from unmask.errors import UnmaskError

    if wrong:
        raise UnmaskError("this does not say what to compare", where=where, do=do)


def _spare(sentences: str, out: Path) -> None:
    """The page, or the JSON beside it, must not take the place of what it is made of."""
    from unmask.errors import UnmaskError

    if Path(sentences).resolve() in (out.resolve(), out.with_suffix(".json").resolve()):
        do = f"give the page another name: {out.with_suffix('.json').name} is written beside {out.name}"
        raise UnmaskError("this would overwrite the sentences", where="--out", do=do)


def _word(
    console: Console,
    word: str,
    models: Sequence[Path],
    sentences: str,
    out: Path,
    forms: str,
    ignore_case: bool,
    most: int,
    device: Any,
) -> None:
    from unmask.files import write_file
    from unmask.measure.context import compare
    from unmask.measure.uses import read_uses
    from unmask.train.report.context import write_context

    uses = read_uses(
        sentences, word, [form.strip() for form in forms.split(",") if form.strip()], ignore_case=ignore_case
    )
    if len(uses.uses) > most:
        console.warn(f"the word is used {len(uses.uses):,} times; {most:,} of them are compared (--most)")
    found = compare(uses.evenly(most), models, device=device, progress=console)
    write_file(out.with_suffix(".json"), json.dumps(found.as_dict(), ensure_ascii=False) + "\n")
    write_context(out, found.as_dict())
    _show(console, found)
    console.say(f"\nThe page: {out}   All figures: {out.with_suffix('.json')}")


def _show(console: Console, found: Comparison) -> None:
    count = f"{len(found.uses):,} uses in {found.sentences:,} sentences"
    missing = f", {found.without:,} without the word" if found.without else ""
    columns = ["model", "layer", "mean cosine"]
    columns += ["same sense", "different", "gap", "silhouette", "clusters right"] if found.senses else []
    columns += [] if found.senses else ["silhouette", "clusters"]
    rows: list[list[object]] = []
    for model in found.models:
        for layer in model.layers:
            own: list[object] = [layer.within, layer.between, layer.gap, layer.silhouette, layer.purity]
            own = own if found.senses else [layer.silhouette, max(layer.clusters) + 1]
            rows.append([model.name, layer.name, layer.similarity, *("–" if value is None else value for value in own)])
    console.table(f"{found.word}: {count}{missing}", rows, columns)
    for note in found.notes:
        console.warn(note)
    for model in found.models:
        for note in model.notes:
            console.warn(f"{model.name}: {note}")
    for how in dict.fromkeys(model.reads for model in found.models):
        names = ", ".join(model.name for model in found.models if model.reads == how)
        console.say(f"{names}: {how}")
    console.say(f"\n{found.verdict}")


def _pairs(console: Console, models: Sequence[Path], test: str, dev: str, device: Any) -> None:
    from unmask.errors import UnmaskError
    from unmask.measure.wic import read_pairs_in_context, word_in_context

    do = "give --dev FILE, other pairs of the set: a threshold chosen on the test pairs would flatter"
    if not dev:
        raise UnmaskError("there are no pairs to choose the threshold on", where="--dev", do=do)
    if Path(dev).resolve() == Path(test).resolve():
        raise UnmaskError("the threshold would be chosen on the test pairs", where="--dev", do=do)
    _refuse(not models, "--models", "give files or folders of vectors, or model folders")
    chosen_on, tested = read_pairs_in_context(dev), read_pairs_in_context(test)
    _show_scores(
        console,
        [word_in_context(one, chosen_on, tested, device=device, progress=console) for one in models],
        tested,
        dev,
    )


def _show_scores(console: Console, scores: Sequence[WicScore], tested: Sequence[Pair], dev: str) -> None:
    from unmask.measure.wic import commonest_answer

    rows: list[list[object]] = []
    for score in scores:
        for at, layer in enumerate(score.layers):
            mark = "chosen" if at == score.chosen else ""
            rows.append([score.name, layer.name, layer.threshold, layer.dev_accuracy, layer.accuracy, mark])
        for note in score.notes:
            console.warn(f"{score.name}: {note}")
    columns = ["model", "layer", "threshold", "dev accuracy", "accuracy", ""]
    console.table(f"{len(tested):,} pairs; thresholds and layers are chosen on {dev}", rows, columns)
    console.say(f"The commoner answer alone is right for {commonest_answer(tested):.1%}.")
