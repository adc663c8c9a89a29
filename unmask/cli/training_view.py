"""What a training run looks like while it runs: a panel in a terminal, a line every ten seconds elsewhere.

`record` only remembers; drawing happens a few times a second in the terminal's own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from rich.box import ASCII, ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unmask.train.interval import ENOUGH, SLOW_LOADER
from unmask.train.report.text import compact, count, duration, figure, loss_name, number, one_line, percent

EVERY = 10.0  # seconds between plain lines where nothing can be redrawn
_KEEP = 0.95  # the share of the old value in the smoothed losses
_TRAIL = 128  # points kept of the loss's history


@dataclass(frozen=True)
class ViewPort:
    """Where a view shows itself: `moves` says whether it is drawn (else only `line` is used); `leave` ends it."""

    clock: Callable[[], float]
    moves: bool
    line: Callable[[str], None]
    leave: Callable[[], None]
    ascii_only: bool = False


class TrainingView:
    """The display of one run, fed with the records of metrics.jsonl in the order they are written."""

    def __init__(self, title: str, port: ViewPort) -> None:
        self._title, self._port = one_line(title), port
        self._last: Mapping[str, Any] = {}
        self._first: tuple[float, float] | None = None
        self._smoothed: dict[str, float] = {}
        self._seen = 0
        self._total = 0
        self._evaluation = ""
        self._trail = Trail()
        self._heard_at = self._said_at = port.clock()

    def __enter__(self) -> TrainingView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the display; what it showed last stays to be read."""
        if self.started and not self._port.moves:
            self._port.line(self.sentence())
        self._port.leave()

    @property
    def started(self) -> bool:
        return bool(self._last)

    def record(self, record: Mapping[str, Any]) -> None:
        """Takes one record; kinds that have nothing to show are passed over."""
        kind = record["kind"]
        if kind == "step":
            self._step(record)
        elif kind == "evaluation":
            self._evaluation = _evaluated(record)
            self._port.line(self._evaluation)
        elif kind == "plan":
            self._total = int(record["total_steps"])
            reason = record.get("reason")
            self._port.line(f"plan: {count(self._total)} steps" + (f" ({one_line(reason)})" if reason else ""))
        elif kind == "phase":
            self._port.line(f"phase {record['phase'] + 1} begins after step {count(record['step'])}")
        elif kind == "message":
            self._port.line(one_line(record["message"]))
        elif kind == "resume":
            self._port.line(f"resumed at step {count(record['step'])}")

    def sentence(self) -> str:
        """The state in one line."""
        of = f" of {count(self._total)}" if self._total else ""
        words = [f"step {count(self._last['step'])}{of}"] + [f"{name} {value}" for name, value in self._figures()]
        return ", ".join([*words, *filter(None, [self._left()])])

    def panel(self, width: int) -> RenderableType:
        """The state as a panel for a terminal `width` columns wide."""
        wide = min(width, 110)
        box = ASCII if self._port.ascii_only else ROUNDED
        title = Text(self._title, "bold", overflow="ellipsis")
        if not self._last:
            return Panel(Text("getting ready", "dim"), title=title, title_align="left", box=box, width=wide)
        parts: list[RenderableType] = [self._bar(wide - 4), self._grid(3 if wide >= 84 else 2 if wide >= 46 else 1)]
        if line := self._trail.drawn(wide - 13, ascii_only=self._port.ascii_only):
            parts.append(Text.assemble(("loss    ", "dim"), (line, "cyan"), overflow="crop", no_wrap=True))
        if self._evaluation:
            parts.append(Text(self._evaluation, "green", overflow="ellipsis", no_wrap=True))
        return Panel(Group(*parts), title=title, title_align="left", box=box, width=wide)

    def _step(self, record: Mapping[str, Any]) -> None:
        self._last = record
        self._total = int(record.get("total_steps") or self._total)
        self._heard_at = now = self._port.clock()
        if self._first is None and number(record.get("seconds")) is not None:
            self._first = float(record["step"]), float(record["seconds"])
        keep = min(_KEEP, self._seen / (self._seen + 1))
        self._seen += 1
        for name, value in (("loss", record.get("loss")), *(record.get("losses") or {}).items()):
            if (there := number(value)) is not None:
                self._smoothed[name] = self._smoothed.get(name, there) * keep + there * (1 - keep)
        if "loss" in self._smoothed:
            self._trail.add(self._smoothed["loss"])
        if not self._port.moves and now - self._said_at >= EVERY:
            self._said_at = now
            self._port.line(self.sentence())

    def _figures(self) -> list[tuple[str, str]]:
        """Names and values to show; what was not recorded is left out."""
        shown = [(loss_name(name), f"{v:.3f}") for name, v in self._smoothed.items()]
        writers: list[tuple[str, str, Callable[[float], str]]] = [
            ("tokens_per_second", "tokens/s", lambda x: count(x) if x < 1e6 else compact(x)),
            ("peak_share", "of peak", percent),
            ("learning_rate", "learning rate", figure),
            ("grad_norm", "gradient norm", figure),
            ("padding", "padding", percent),
            ("loader_wait", "loader wait", self._waiting),
        ]
        for key, name, write in writers:
            if (value := number(self._last.get(key))) is not None:
                shown.append((name, write(value)))
        return shown

    def _bar(self, width: int) -> RenderableType:
        step, spent = self._last["step"], number(self._last.get("seconds"))
        words = [f"step {count(step)}" + (f" of {count(self._total)}" if self._total else "")]
        if spent is not None:
            words.append(duration(spent + max(self._port.clock() - self._heard_at, 0)))
        words += filter(None, [self._left()])
        line = Table.grid(padding=(0, 2, 0, 0))
        if self._total:
            room = max(width - len("  ".join(words)) - 4, 8)
            bar = ProgressBar(total=self._total, completed=step, width=min(room, 40))
            line.add_row(bar, Text("  ".join(words), no_wrap=True, overflow="ellipsis"))
        else:
            line.add_row(Text("  ".join(words), no_wrap=True, overflow="ellipsis"))
        return line

    def _left(self) -> str:
        """How long the rest takes at the mean pace since this display began."""
        now, step = number(self._last.get("seconds")), self._last["step"]
        if self._first is None or now is None or not self._total or step <= self._first[0] or step >= self._total:
            return ""
        pace = (now - self._first[1]) / (step - self._first[0])
        return f"about {duration(pace * (self._total - step))} left"

    def _waiting(self, share: float) -> str:
        slow = share > SLOW_LOADER and self._last["step"] >= ENOUGH
        return percent(share) + (" (too slow: more machine.workers)" if slow else "")

    def _grid(self, columns: int) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        for _ in range(columns):
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(justify="right", min_width=8, no_wrap=True)
            grid.add_column(min_width=2)
        figures = self._figures()
        for start in range(0, len(figures), columns):
            grid.add_row(*(cell for name, value in figures[start : start + columns] for cell in (name, value, "")))
        return grid


class Trail:
    """The history of one figure in a bounded number of points, for a line of little bars."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._every = 1
        self._waiting = 0

    def add(self, value: float) -> None:
        self._waiting += 1
        if self._waiting >= self._every:
            self._waiting = 0
            self._values.append(value)
            if len(self._values) >= _TRAIL:
                self._values, self._every = self._values[1::2], self._every * 2

    def drawn(self, width: int, *, ascii_only: bool = False) -> str:
        """At most `width` characters, the lowest value the lowest bar; empty for fewer than two values."""
        values, marks = self._values, "_.-=+*#" if ascii_only else "▁▂▃▄▅▆▇█"
        if len(values) < 2 or width < 2:
            return ""
        places = min(width, len(values), _TRAIL // 2)
        picked = [values[round(i * (len(values) - 1) / (places - 1))] for i in range(places)]
        low, span = min(picked), max(picked) - min(picked)
        return "".join(marks[round((value - low) / span * (len(marks) - 1)) if span else 0] for value in picked)


def _evaluated(record: Mapping[str, Any]) -> str:
    """One line on an evaluation: each loss with the share of right answers where there is one, the perplexity, and the metric
    that a fine-tuning run is judged by."""
    metrics = list((record.get("metrics") or {}).items())[:1]
    told = dict(metrics).keys() & {"accuracy"}  # the same share, with more digits
    accuracy, words = ({} if told else record.get("accuracy") or {}), []
    for name, value in (record.get("losses") or {"loss": record.get("loss")}).items():
        if (loss := number(value)) is not None:
            right = number(accuracy.get(name))
            words.append(f"{loss_name(name)} {loss:.3f}" + (f" ({percent(right)} right)" if right is not None else ""))
    if (perplexity := number(record.get("perplexity"))) is not None:
        words.append(f"perplexity {compact(perplexity) if perplexity >= 1e5 else figure(perplexity)}")
    for name, value in metrics:
        words.append(f"{name} {value:.4f}")
    return f"held-out at step {count(record['step'])}: " + ", ".join(words)
