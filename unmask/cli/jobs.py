"""One piece of long work as a person sees it: a moving bar, or a sentence."""

from __future__ import annotations

from collections import deque

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from unmask.train.report.text import compact, count, duration, one_line, percent

_RECENT = 30  # seconds that the shown rate looks back


class Job:
    """A job called "reading, documents": its name, the unit it counts in, how far it is and how fast it goes."""

    def __init__(self, what: str, now: float) -> None:
        name, comma, unit = what.rpartition(", ")
        self.name, self.unit = (one_line(name), one_line(unit)) if comma else (one_line(what), "")
        self.began = self.said_at = now
        self.done: float = 0
        self.total: float | None = None
        self._marks: deque[tuple[float, float]] = deque([(now, 0.0)])
        self._spinner: Spinner | None = None

    def update(self, done: float, total: float | None, now: float) -> None:
        """Takes the totals so far."""
        self.done, self.total = done, total
        if now - self._marks[-1][0] >= 1:
            self._marks.append((now, done))
            while len(self._marks) > 2 and now - self._marks[0][0] > _RECENT:
                self._marks.popleft()

    @property
    def over(self) -> bool:
        return self.total is not None and self.done >= self.total

    def sentence(self, now: float, *, stopped: bool = False) -> str:
        """How far the job is, in words; `stopped`: it will go no further."""
        took = duration(now - self.began)
        if self.over:
            return f"{self.name}: {self._amount(self.done)} in {took}"
        reached = self._reached()
        if stopped:
            return f"{self.name}: stopped at {reached} after {took}"
        return f"{self.name}: " + ", ".join([reached, *self._pace(now)])

    def bar(self, now: float, width: int, *, ascii_only: bool = False) -> RenderableType:
        """One line of a terminal `width` columns wide."""
        line = Table.grid(padding=(0, 1))
        line.add_column(no_wrap=True, overflow="ellipsis", max_width=max(width // 4, 10))
        line.add_column()
        line.add_column(no_wrap=True, overflow="ellipsis")
        words = [self._reached()] + (self._pace(now) if width >= 60 else [])
        if self.total is None:
            self._spinner = self._spinner or Spinner("line" if ascii_only else "dots", style="cyan")
            moving: RenderableType = self._spinner
        else:
            moving = ProgressBar(total=self.total, completed=self.done, width=min(max(width // 5, 8), 30))
        line.add_row(Text(self.name), moving, Text("  ".join(words), "dim"))
        return line

    def _reached(self) -> str:
        if self.total is None:
            return self._amount(self.done)
        share = percent(self.done / self.total)
        return f"{self._number(self.done)} of {self._amount(self.total)} ({share})"

    def _pace(self, now: float) -> list[str]:
        """The recent rate and the time left, as far as they can be known yet."""
        then, before = self._marks[0]
        if now - then < 1 or self.done <= before:
            return []
        rate = (self.done - before) / (now - then)
        pace = [f"{self._number(rate) if rate >= 10 else f'{rate:.2g}'}/s"]
        return pace if self.total is None else [*pace, f"about {duration((self.total - self.done) / rate)} left"]

    def _amount(self, number: float) -> str:
        return f"{self._number(number)} {self.unit}".strip() if self.unit != "bytes" else self._number(number)

    def _number(self, number: float) -> str:
        if self.unit == "bytes":
            return f"{compact(number)}B" if number >= 1000 else f"{count(number)} B"
        return count(number) if number >= 100 or number == int(number) else f"{number:.1f}"
