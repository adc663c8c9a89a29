"""The report's words and tables: status, the summary sentence, headline figures, settings, corpus statistics."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unmask.train.interval import ENOUGH, SLOW_LOADER
from unmask.train.report import text
from unmask.train.report.charts import label, token_term
from unmask.train.report.data import History

_LONGEST_VALUE = 400
_ROWS, _BARS, _PHASES = 400, 64, 100
_LENGTHS = {"lengths": "Documents", "sentence_lengths": "Sentences"}


@dataclass(frozen=True)
class Card:
    """One headline figure; `before` is what it was at the first evaluation, `note` a word of explanation."""

    label: str
    value: str
    before: str = ""
    note: str = ""


@dataclass(frozen=True)
class Status:
    """Where the run stands: `word` (running, finished, stopped), why, and how much of the plan is done, 0 to 1."""

    word: str
    why: str
    share: float | None
    progress: str


def table(value: object) -> dict[str, Any]:
    """`value` where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def plans(run: dict[str, Any], history: History) -> list[dict[str, Any]]:
    """The plan and its changes: as metrics.jsonl tells them or, before there is a record, as run.json does."""
    recorded = run.get("plan")
    listed = recorded if isinstance(recorded, list) else []
    return list(history.plans.newest) or [plan for plan in listed if isinstance(plan, dict)]


def phases(run: dict[str, Any], history: History) -> list[tuple[str, str, str]]:
    """For each phase the step it began at, how long it is and what it changes; the first row is the run's own beginning."""
    run_settings = table(run.get("run"))
    later = run_settings.get("phases")
    wanted = [run_settings, *(table(phase) for phase in later)] if isinstance(later, list) else []
    rows = []
    for number, phase in enumerate(wanted[:_PHASES]):
        until = table(phase.get("until"))
        length = until.get(str(until.get("kind")))
        changes = phase.get("changes") if number else None
        began = "–" if number not in history.phases else text.count(history.phases[number])
        listed = ", ".join(map(str, changes)) if isinstance(changes, list) else ""
        shown = f"{_written(length)} {_written(until.get('kind'))}"
        rows.append((began, shown, text.visible(listed, _LONGEST_VALUE)))
    return rows


def status(run: dict[str, Any], history: History) -> Status:
    """The run's state when the page was written."""
    result = run.get("result")
    step, total = int(history.last_step.get("step", 0)), _total_steps(run, history)
    share = min(step / total, 1.0) if total else None
    progress = f"step {text.count(step)} of {text.count(total)}" if total else f"step {text.count(step)}"
    if not isinstance(result, dict) or result.get("status") == "running":
        if share and share < 1 and "seconds" in history.last_step:
            progress += f", about {text.duration(history.last_step['seconds'] * (1 / share - 1))} left"
        return Status("running", "not at its end when this page was written", share, progress)
    word = str(result.get("status", "finished"))
    return Status(word if word == "finished" else "stopped", str(result.get("why") or ""), share, progress)


def summary(history: History, unigram_entropy: float | None) -> str:
    """What happened, in a sentence or two for somebody who sees such a page for the first time."""
    last, term = history.last_step, token_term(history)
    if not last:
        return "No training step is recorded yet."
    words = f"So far: {text.count(last['step'])} steps"
    if "tokens" in last and "seconds" in last:
        words = f"In {text.duration(last['seconds'])} the model read {text.compact(last['tokens'])} tokens"
    first, now = history.first_evaluation.get(term), history.last_evaluation.get(term)
    if first is None or now is None or history.first_evaluation["step"] == history.last_evaluation["step"]:
        return words + "."
    unit = " nats a token" if not any(name.startswith("metrics.") for name in history.last_evaluation) else ""
    verb = "fell" if now < first else "went"
    where = "in its last phase its" if history.borders else "its"
    words += f"; {where} held-out {_term_name(term)} {verb} from {first:.2f} to {now:.2f}{unit}"
    if unigram_entropy is None:
        return words + "."
    gap = unigram_entropy - now
    side = "below" if gap >= 0 else "above"
    return f"{words}, {abs(gap):.2f} {side} what guessing by word frequency alone reaches ({unigram_entropy:.2f})."


def warning(history: History) -> str:
    """What made the run slower than it had to be; empty where nothing did."""
    share = _mean(history, "loader_wait") or 0.0
    if share <= SLOW_LOADER or history.last_step.get("step", 0) < ENOUGH:
        return ""
    return (
        f"{text.percent(share)} of the time went into waiting for batches: more machine.workers would make it faster."
    )


def figures(run: dict[str, Any], history: History, unigram_entropy: float | None) -> list[Card]:
    """The headline figures the run has recorded."""
    return list(_learned(history, unigram_entropy)) + list(_spent(run, history))


def _learned(history: History, unigram_entropy: float | None) -> Iterator[Card]:
    first, last, term = history.first_evaluation, history.last_evaluation, token_term(history)
    moved = bool(first) and first["step"] < last["step"]
    for name, title in ((term, f"Held-out {_term_name(term)}"), ("perplexity", "Held-out perplexity")):
        if name in last:
            before = _short(first[name]) if moved and name in first else ""
            yield Card(title, _short(last[name]), before, f"at step {text.count(last['step'])}")
    if unigram_entropy is not None:
        yield Card("Unigram entropy", _short(unigram_entropy), note="loss of guessing by word frequency")
    for name in [n for n in last if n.startswith("accuracy.")]:
        before = text.percent(first[name]) if moved and name in first else ""
        yield Card(f"{label(name)} accuracy", text.percent(last[name]), before, "held-out")


def _spent(run: dict[str, Any], history: History) -> Iterator[Card]:
    last = history.last_step
    if "tokens" in last:
        yield Card("Tokens seen", text.compact(last["tokens"]), note=text.count(last["tokens"]))
    if (speed := _mean(history, "tokens_per_second")) is not None:
        peak = _mean(history, "peak_share")
        yield Card(
            "Tokens a second", text.compact(speed), note=f"{text.percent(peak)} of peak" if peak else "mean of the run"
        )
    if "seconds" in last:
        yield Card(
            "Training time",
            text.duration(last["seconds"]),
            note=f"{text.count(last['step'])} step{'s' * (last['step'] != 1)}",
        )
    model = run.get("model")
    if isinstance(model, dict) and (size := text.number(model.get("parameters"))) is not None:
        yield Card("Parameters", text.compact(size), note=text.count(size))


def settings_groups(settings: dict[str, Any], *, exact: bool = False) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every setting, grouped by the first part of its name; those without a group come first."""
    alone = {name: value for name, value in settings.items() if not isinstance(value, dict | list) or not value}
    groups = [("general", flat(alone, exact=exact))] if alone else []
    return groups + [
        (name, flat({name: settings[name]}, skip=1, exact=exact)) for name in settings if name not in alone
    ]


def flat(value: object, *, skip: int = 0, exact: bool = False) -> list[tuple[str, str]]:
    """Nested plain data as rows (dotted name, value as text), the first `skip` parts of the name left out.

    `exact` writes values as a settings file holds them (30522, true), otherwise as a reader likes them (30,522, yes).
    """
    write = _exact if exact else _written
    rows = [(".".join(path[skip:]) or path[-1], write(leaf)) for path, leaf in _leaves(value, ()) if path]
    return rows if len(rows) <= _ROWS else [*rows[:_ROWS], ("…", f"{len(rows) - _ROWS} more")]


def corpus_parts(about: dict[str, Any]) -> dict[str, Any]:
    """The corpus statistics by where they go on the page: splits, length histograms, everything else as rows."""
    splits = about.get("splits")
    counts = [
        (name, *(_counted(part, key) for key in ("documents", "sentences", "tokens"))) for name, part in _items(splits)
    ]
    report = table(about.get("report"))
    bars = {name: histogram(part) for name, part in report.items() if name in _LENGTHS}
    pictures = {name: drawn for name, drawn in bars.items() if drawn}
    rest = {name: part for name, part in report.items() if name not in pictures}
    others = {k: v for k, v in about.items() if k not in ("splits", "report", "sources", "shards")}
    sources = about.get("sources")
    return {
        "splits": counts,
        "lengths": [(_LENGTHS[name], drawn) for name, drawn in pictures.items()],
        "findings": settings_groups(rest),
        "about": settings_groups(others),
        "sources": [_written(source) for source in sources[:50]] if isinstance(sources, list) else [],
        "more_sources": max(len(sources) - 50, 0) if isinstance(sources, list) else 0,
    }


def histogram(counts: object) -> list[tuple[str, float, float]]:
    """Bars (label, count, height 0 to 1) from {"4-7": count}; [] for anything else."""
    if not isinstance(counts, dict) or len(counts) > _BARS:
        return []
    bars = [(str(name), size) for name, raw in counts.items() if (size := text.number(raw)) is not None and size >= 0]
    highest = max((size for _, size in bars), default=0.0)
    if not highest or len(bars) != len(counts):
        return []
    return [(name, size, size / highest) for name, size in bars]


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves(part, (*path, str(name)))
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        for place, part in enumerate(value):
            kind = part.get("kind", place) if isinstance(part, dict) else place
            yield from _leaves(part, (*path, str(kind)))
    else:
        yield path, value


def _written(value: object) -> str:
    """A value as a person reads it: text without quotes, whole numbers with separators, the rest as JSON."""
    if isinstance(value, str):
        return text.visible(value, _LONGEST_VALUE)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15:
        return text.count(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return text.visible(json.dumps(value, ensure_ascii=False), _LONGEST_VALUE)


def _exact(value: object) -> str:
    return text.visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _LONGEST_VALUE)


def _items(value: object) -> list[tuple[str, dict[str, Any]]]:
    return [(str(k), v) for k, v in value.items() if isinstance(v, dict)] if isinstance(value, dict) else []


def _counted(part: dict[str, Any], key: str) -> str:
    size = text.number(part.get(key))
    return "–" if size is None else text.count(size)


def _total_steps(run: dict[str, Any], history: History) -> int:
    sizes = [text.number(plan.get("total_steps")) for plan in plans(run, history)]
    return int(history.last_step.get("total_steps") or next((size for size in reversed(sizes) if size), 0))


def _mean(history: History, name: str) -> float | None:
    values = [m for m in history.steps.curve(name).mean.tolist() if math.isfinite(m)]
    return sum(values) / len(values) if values else None


def _term_name(term: str) -> str:
    return "loss" if term == "loss" else f"{label(term)} loss"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 100 else text.count(value) if value < 1e6 else text.compact(value)
