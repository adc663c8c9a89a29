"""`unmask explain`: one text from its tokens to the loss, table by table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.options import Segmenter, UserWords, word_splitter

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.explanation.result import Explanation, Loss, Worked
    from unmask.explanation.result import Sequence as Shown

MOST_ROWS = 48  # of a table; the rest is in the JSON
_NAMES = {
    "mlm": "hidden tokens", "sbo": "hidden tokens from the borders of their spans", "nsp": "does B follow A",
    "sop": "are the segments in order", "rtd": "is a token replaced", "causal": "next tokens", "infill": "missing spans",
}  # fmt: skip
_FATES = {"mask": "[MASK]", "random": "random", "kept": "kept", "sentinel": "sentinel", "": ""}


def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence or a few.", show_default=False)],
    second: Annotated[str, typer.Option("--second", metavar="TEXT", help="Another text beside it.")] = "",
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            help="mlm, wwm (whole words), ngram, span (with SBO), nsp, sop, rtd, causal or infill.",
            show_default="the preset's, or mlm",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", "-p", help="Whose shapes and parameters to show.", show_default="the objective's"),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="A model folder: its real weights.", show_default=False)
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", "-t", help="A tokenizer folder.", show_default="learned from the text"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other draws.")] = 0,
    segmenter: Segmenter = "jieba",
    user_words: UserWords = None,
    json: Annotated[bool, typer.Option("--json", help="Everything as JSON, nothing cut off.")] = False,
) -> None:
    """Show what a model sees of a text in pre-training, and how the loss is made.

    Example: unmask explain "The cat sat on the mat." --objective wwm --preset roberta_base
    """
    from unmask.cli.console import Console
    from unmask.explanation import explain as find

    found = find(
        text,
        second=second,
        objective=objective,
        preset=preset,
        model=model,
        tokenizer=tokenizer,
        seed=seed,
        words=word_splitter(segmenter, user_words),
    )
    with Console() as console:
        if json:
            console.say(_json(found))
        else:
            _show(console, found)


def _json(found: Explanation) -> str:
    """Readable where it can be; what would act on a terminal is escaped."""
    import json

    text = json.dumps(found.as_dict(), ensure_ascii=False, indent=1)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _show(console: Console, found: Explanation) -> None:
    goal = f"{found.objective} with {found.network}, seed {found.seed}"
    tokens = found.tokenizer
    console.say(f"{goal}\ntokenizer: {tokens.kind}, {tokens.vocab_size:,} pieces, from {tokens.where}")
    for settings in found.settings["objectives"]:
        console.say(_goal(settings))
    console.say()
    for number, sequence in enumerate(found.sequences, 1):
        several = f"sequence {number} of {len(found.sequences)} (text {sequence.text + 1})"
        name = several if len(found.sequences) > 1 else "the text"
        _show_sequence(console, sequence, name)
    _show_padding(console, found.sequences)
    for loss in found.losses:
        _show_loss(console, loss)
    if found.losses:
        terms = " + ".join(f"{loss.weight:g} × {loss.mean:.4f}" for loss in found.losses)
        console.say(f"Loss of the step: {terms} = {found.loss:.4f}\n")
    _show_network(console, found)
    for note in found.notes:
        console.say(f"Note: {note}")


def _goal(settings: Mapping[str, Any]) -> str:
    """What is hidden, and what becomes of it."""
    hidden = settings.get("masking", settings)
    words = [f"{settings['kind']}: {_NAMES[settings['kind']]}"]
    if "mask_rate" in hidden:
        words.append(f"{hidden['mask_rate']:.0%} of the tokens are chosen")
    if "unit" in hidden:
        masked, random = hidden["replace_mask"], hidden["replace_random"]
        words.append(f"{masked:.0%} of them become [MASK], {random:.0%} random, {1 - masked - random:.0%} stay")
        words.append(f"chosen by {hidden['unit']}")
    return "; ".join(words)


def _show_sequence(console: Console, one: Shown, name: str) -> None:
    if one.pair:
        rows = [["A", one.pair.first], ["B", one.pair.second], ["label", f"{one.pair.label}: {one.pair.what}"]]
        console.table(f"Sentence pair of {name}", rows)
    words = [["" if w is None else str(w), "" if w is None else one.word_texts[w]] for w in one.words]
    if one.decoder:
        rows = [[str(n), t, str(i), *w] for n, (t, i, w) in enumerate(zip(one.tokens, one.ids, words, strict=True))]
        _table(console, f"Tokens of {name}", rows, ["place", "token", "id", "word", "of"])
        _table(console, f"What the encoder reads of {name}", list(_input_rows(one)), _INPUT)
        _show_decoder(console, one, name)
    else:
        rows = [
            [t, str(i), *w, *row] for t, i, w, row in zip(one.tokens, one.ids, words, _input_rows(one), strict=True)
        ]
        _table(console, f"Tokens of {name}, and what the encoder reads", rows, ["token", "id", "word", "of", *_INPUT])
    if one.spans:
        _table(console, f"Chosen in {name}", list(_span_rows(one)), ["places", "tokens", "words", "becomes", "borders"])
    if one.replaced:
        shown = zip(one.tokens, one.input_tokens, one.replaced.tokens, one.replaced.labels, strict=True)
        rows = [
            [str(n), a, b, c, f"{label} {'replaced' if label else 'original'}"]
            for n, (a, b, c, label) in enumerate(shown)
        ]
        columns = ["place", "token", "the generator reads", "the encoder reads", "label"]
        _table(console, f"Generator and encoder on {name}", rows, columns)


_INPUT = ["position", "token_type", "drawn", "input", "input id", "label"]


def _input_rows(one: Shown) -> Iterator[list[str]]:
    columns = (one.position_ids, one.token_type_ids, one.fates, one.input_tokens, one.input_ids, one.labels)
    for position, kind, fate, token, id, label in zip(*columns, strict=True):
        yield [str(position), str(kind), _FATES[fate], token, str(id), str(label)]


def _span_rows(one: Shown) -> Iterator[list[str]]:
    for span in one.spans:
        places = str(span.start) if span.end == span.start + 1 else f"{span.start}–{span.end - 1}"
        becomes = span.sentinel or ", ".join(_FATES[fate] for fate in span.fates)
        borders = (
            "" if span.left is None else f"{span.left} ({_at(one, span.left)}), {span.right} ({_at(one, span.right)})"
        )
        yield [places, " ".join(span.tokens), str(span.words), becomes, borders]


def _at(one: Shown, place: int | None) -> str:
    return "" if place is None else one.tokens[place]


def _show_decoder(console: Console, one: Shown, name: str) -> None:
    assert one.decoder is not None
    d = one.decoder
    columns = (d.input_tokens, d.input_ids, d.target_tokens, d.labels)
    rows = [[str(n), a, str(i), b, str(j)] for n, (a, i, b, j) in enumerate(zip(*columns, strict=True))]
    _table(console, f"The decoder on {name}", rows, ["place", "reads", "input id", "is to write", "label"])


def _show_padding(console: Console, sequences: Sequence[Shown]) -> None:
    rows = [[str(n), len(one.input_ids), "".join(map(str, one.attention_mask))] for n, one in enumerate(sequences, 1)]
    _table(console, "attention_mask, if sequences were padded to one length", rows, ["sequence", "tokens", "mask"])


def _show_loss(console: Console, loss: Loss) -> None:
    title = f"{loss.name.upper()} loss ({_NAMES[loss.name]})"
    rows = [[f"{t.sequence + 1}", str(t.place), t.token, str(t.label), t.loss] for t in loss.targets]
    _table(console, f"{title}: -log p of each target", rows, ["sequence", "place", "true answer", "label", "-log p"])
    count = f"{len(loss.targets):,} target{'s' * (len(loss.targets) != 1)}"
    console.say(f"mean over {count}: {loss.mean:.4f}; were every answer as likely: {loss.chance:.4f}\n")
    if loss.worked:
        _show_worked(console, loss.name.upper(), loss.worked)


def _show_worked(console: Console, name: str, worked: Worked) -> None:
    true, likely = worked.true, [one for one in worked.likeliest if one.id != worked.true.id]
    rows = [[one.token, str(one.id), f"{one.logit:.4f}", f"{one.probability:.4f}"] for one in (true, *likely)]
    rows[0][0] += " (true)"
    where = f"sequence {worked.sequence + 1}" + ("" if worked.side == "sequence" else f", place {worked.place}")
    columns = ["answer", "id", "logit z", "softmax: exp(z) / Σ exp"]
    console.table(f"{name} worked out at {where}: {len(worked.logits):,} answers, the likeliest of them", rows, columns)
    console.say(f"log Σ exp(z) = {worked.log_sum_exp:.4f}")
    console.say(f"p(true) = exp({true.logit:.4f} - {worked.log_sum_exp:.4f}) = {true.probability:.6f}")
    console.say(f"-log p = {worked.log_sum_exp:.4f} - ({true.logit:.4f}) = {worked.loss:.4f}\n")


def _show_network(console: Console, found: Explanation) -> None:
    console.say("Sizes: " + ", ".join(f"{letter} = {size:,}" for letter, size in found.sizes.items()) + "\n")
    rows = [
        [stage.part, stage.name, _letters(stage.letters), _letters(map(str, stage.shape)), _letters(stage.padded)]
        for stage in found.shapes
    ]
    console.table(f"Shapes in {found.network}", rows, ["where", "what", "shape", "here", "padded"])
    shares = [[p.part, p.name, p.parameters, f"{p.share:.2%}", p.note] for p in found.parts]
    shares.append(["", "all", found.parameters, "100.00%", ""])
    console.table(f"Parameters of {found.network}", shares, ["where", "what", "parameters", "share", ""])


def _letters(of: Sequence[str] | Iterator[str]) -> str:
    return f"[{', '.join(of)}]"


def _table(console: Console, title: str, rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
    """Long tables are cut; columns that are empty everywhere are left out."""
    used = [n for n in range(len(columns)) if any(row[n] != "" for row in rows)]
    shown = [[row[n] for n in used] for row in rows[:MOST_ROWS]]
    more = f" (the first {MOST_ROWS} of {len(rows):,}; --json has all)" if len(rows) > MOST_ROWS else ""
    console.table(title + more, shown, [columns[n] for n in used])
