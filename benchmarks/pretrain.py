"""Pre-training steps of unmask and of transformers, in turns: forward, backward, clipping, fused AdamW.

    python -m benchmarks.pretrain [--rows bert-mini-8k-128,…] [--rounds 5] [--steps 2] [--threads 2] [--json FILE]

Same model, same first weights, same text, same share of hidden tokens, same optimizer and threads. Tokens are real ones:
padding never counts. Every side has a process of its own, and a round gives each of them its turn; a ratio is the median of
the rounds' ratios. Ours reads documents unpadded and without dropout, which is how unmask pre-trains; against peer D it gets
the peer's own rows, and both must find the same loss on the first of them. The share of peak is useful arithmetic (real
tokens, masked-only head) per second over what this machine reaches in matrix products, measured between the rounds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.ours import Ours
from benchmarks.peers import Peer
from benchmarks.rows import GROWTHS, PEERS, ROWS, Growth, Row, Task
from benchmarks.sides import Measured, ratio, take_turns
from benchmarks.text import default_cache, default_text, load_text
from unmask import road
from unmask.hub.files import save_model
from unmask.text.tokenizer import Tokenizer

SAME_LOSS = 1e-3  # nats: two float32 implementations differ by less, another computation by more
UNPADDED, ON_ROWS = "ours", "ours on D's rows"
Result = dict[str, Any]


def main() -> None:
    given = _options()
    names = given.rows.split(",") if given.rows else [work.name for work in (*ROWS, *GROWTHS)]
    known: dict[str, Row | Growth] = {work.name: work for work in (*ROWS, *GROWTHS)}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no such rows: {', '.join(unknown)}\nchoose from: {', '.join(known)}")
    results: list[Result] = []
    for name in names:
        work = known[name]
        result = growth(work, given) if isinstance(work, Growth) else compare(work, given)
        results.append(result)
        print(_line(result), flush=True)
    print("\n" + report(results))
    tables.write_json(given.json, "pretrain", results)


def _options() -> Any:
    ask = tables.arguments(__doc__)
    ask.add_argument("--rows", help="names, with commas (default: all)")
    ask.add_argument("--steps", type=int, default=2, help="steps of a turn")
    ask.add_argument(
        "--tokens", type=int, default=0, help="at most so many tokens a step (rows with a bar on memory keep theirs)"
    )
    return ask.parse_args()


# --- measuring --------------------------------------------------------------------------------------------------------------
def compare(row: Row, given: Any) -> Result:
    """One row of the table."""
    row = _sized(row, given)
    with tempfile.TemporaryDirectory() as folder:
        task = _task(row, given, Path(folder))
        sides: dict[str, Any] = {UNPADDED: partial(Ours, task, False)} if row.peers != "D" else {}
        sides |= {ON_ROWS: partial(Ours, task, True)} if "D" in row.peers else {}
        sides |= {peer: partial(Peer, task, peer) for peer in row.peers}
        measured = take_turns(
            sides, rounds=task.rounds, steps=task.steps, threads=given.threads, clock=given.clock,
            before={ON_ROWS: ("loss",), "D": ("loss",)},
            between={_main_side(sides): ("peak",)}, after={_main_side(sides): ("peak_at_shapes",)},
        )  # fmt: skip
    _require_same_loss(row, measured)
    return _result(row, measured, given.clock)


def _main_side(sides: Mapping[str, Any]) -> str:
    """Which of ours the row is about."""
    return UNPADDED if UNPADDED in sides else ON_ROWS


def growth(work: Growth, given: Any) -> Result:
    """How much of its speed ours keeps on longer sequences."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        long = _sized(work.long, given)
        short = replace(_sized(work.short, given), tokens=long.tokens)
        for length, row in (("short", short), ("long", long)):
            task = _task(row, given, Path(folder) / length)
            sides[length] = partial(Ours, task, True)
        measured = take_turns(sides, rounds=given.rounds, steps=given.steps, threads=given.threads, clock=given.clock)
    kept = ratio(measured["long"], measured["short"])
    speeds = {name: side.speed() for name, side in measured.items()}
    return {"name": work.name, "title": work.title, "kept": kept, "bar": work.bar, "speeds": speeds}


def _sized(row: Row, given: Any) -> Row:
    if given.tiny:
        length = min(row.length, 64)
        encoder = replace(row.encoder, vocab_size=1000, num_hidden_layers=2, num_hidden_groups=0)
        return replace(row, encoder=encoder, length=length, tokens=4 * length, bars={}, share=0.0, memory=0.0)
    few = given.tokens and row.memory == 1.0  # where there is a bar on memory, it is one at the row's own number
    return replace(row, tokens=min(row.tokens, max(given.tokens, row.length))) if few else row


def _task(row: Row, given: Any, folder: Path) -> Task:
    """The text, and the weights that all sides begin with."""
    text = load_text(given.text or default_text(), row.encoder.vocab_size, given.cache or default_cache())
    vocabulary = Tokenizer.load(text.tokenizer_folder).vocabulary()
    row = replace(row, encoder=replace(row.encoder, vocab_size=vocabulary.size))
    task = Task(row, text, folder / "model", min(given.rounds, row.rounds or given.rounds), given.steps)
    model = road.build(task.run(), vocabulary)
    save_model(task.model, model.encoder, model.objective, tokenizer_folder=text.tokenizer_folder, about={})
    return task


def _require_same_loss(row: Row, measured: Mapping[str, Measured]) -> None:
    if "D" in measured:
        ours, theirs = (measured[name].answers["loss"][0] for name in (ON_ROWS, "D"))
        assert abs(ours - theirs) < SAME_LOSS, f"{row.name}: our loss is {ours}, the peer's {theirs}"


def _result(row: Row, measured: Mapping[str, Measured], clock: str) -> Result:
    mine = measured[_main_side(measured)]
    peaks = {kind: statistics.median(mine.answers[kind]) for kind in ("peak", "peak_at_shapes")}
    ratios = {peer: ratio(measured[ON_ROWS] if peer == "D" else mine, measured[peer]) for peer in row.peers}
    shared = clock == "wall"  # the peak is measured by the wall: on a busy machine it says nothing about CPU seconds
    return {
        "name": row.name,
        "title": row.title,
        "tokens": row.tokens,
        "speeds": {name: side.speed() for name, side in measured.items()},
        "ratios": ratios,
        "bars": dict(row.bars),
        "memory": {name: side.memory for name, side in measured.items()},
        "memory_bar": row.memory,
        "flop_rate": mine.flop_rate(),
        **peaks,
        "share": mine.flop_rate() / peaks["peak"] if shared else None,
        "share_at_shapes": mine.flop_rate() / peaks["peak_at_shapes"] if shared else None,
        "share_bar": row.share,
        "losses": {name: side.answers["loss"][0] for name, side in measured.items() if "loss" in side.answers},
        "rounds": {name: side.speeds() for name, side in measured.items()},
    }


# --- telling ----------------------------------------------------------------------------------------------------------------
def _line(result: Result) -> str:
    if "kept" in result:
        return f"{result['name']}: {result['kept']:.2f} of the speed is left"
    ratios = ", ".join(f"{peer} {value:.2f}×" for peer, value in result["ratios"].items())
    speeds = ", ".join(f"{name} {value:,.0f}" for name, value in result["speeds"].items())
    return f"{result['name']}: {ratios}; tokens/s: {speeds}; of peak: {tables.at_least(result['share'], 0, '%')}"


def report(results: list[Result]) -> str:
    """The tables, and who the peers are."""
    rows = [r for r in results if "ratios" in r]
    grown = [r for r in results if "kept" in r]
    parts = ["\n".join(f"- **{letter}**: {words}" for letter, words in PEERS.items())] if rows else []
    if rows:
        head = [
            "ours against",
            *(f"peer {letter}" for letter in "ABCD"),
            "ours, tokens/s",
            "of peak",
            "of peak at its shapes",
        ]
        parts.append(tables.markdown(head, [_speed_cells(r) for r in rows]))
        head = ["peak memory above the imports, MB", "ours", *PEERS, "ours / A"]
        parts.append(tables.markdown(head, [_memory_cells(r) for r in rows]))
    if grown:
        head = ["cost grows linearly", "tokens/s, short", "tokens/s, long", "speed left"]
        parts.append(tables.markdown(head, [_growth_cells(r) for r in grown]))
    return "\n\n".join(parts)


def _speed_cells(r: Result) -> list[str]:
    mine = r["speeds"][_main_side(r["speeds"])]
    ratios = [tables.at_least(r["ratios"].get(peer), r["bars"].get(peer)) for peer in "ABCD"]
    shares = [tables.at_least(r["share"], r["share_bar"], "%"), tables.at_least(r["share_at_shapes"], 0, "%")]
    return [r["title"], *ratios, f"{mine:,.0f}", *shares]


def _memory_cells(r: Result) -> list[str]:
    memory, bar = r["memory"], r["memory_bar"]
    mine = memory[_main_side(memory)]
    missed = bar and mine >= min(memory[peer] for peer in r["ratios"])
    shown = f"**{tables.megabytes(mine)}** (bar: below every peer, **missed**)" if missed else tables.megabytes(mine)
    peers = [tables.megabytes(memory[peer]) if peer in memory else "–" for peer in PEERS]
    of_a = tables.at_most(mine / memory["A"], bar if bar < 1 else 0) if "A" in memory else "–"
    return [r["title"], shown, *peers, of_a]


def _growth_cells(r: Result) -> list[str]:
    short, long = (f"{r['speeds'][name]:,.0f}" for name in ("short", "long"))
    return [r["title"], short, long, tables.at_least(r["kept"], r["bar"])]


if __name__ == "__main__":
    main()
