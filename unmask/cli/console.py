"""Everything a person sees in the terminal goes through here: results, progress, errors.

Results go to standard output; progress, warnings and errors go to standard error, so that `unmask … > file` and pipes
carry results only. Bars move only where standard error is a terminal; elsewhere a plain line tells every ten seconds.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TextIO

import rich.console
from rich.box import ASCII, SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unmask.cli.jobs import Job
from unmask.cli.training_view import EVERY, TrainingView, ViewPort
from unmask.errors import UnmaskError
from unmask.train.report.text import one_line, visible

__all__ = ["Console", "TrainingView"]

_WIDEST = 60  # columns that short cells of a plain table are filled up to: one long cell must not push all others away
_REFRESHES, _REFRESHES_IN_TRAINING = 4, 2  # a second, in a terminal; drawing the panel costs about 6 ms of one core


class Console:
    """The one printer of the command line. Itself a `Progress`; use it as a context manager so that bars end cleanly.

    `out` and `err` default to the process's own streams; `clock` gives seconds. NO_COLOR is honoured.
    """

    def __init__(
        self,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for stream in (out or sys.stdout, err or sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no Chinese must not end the work
                stream.reconfigure(errors="backslashreplace")
        self._out = rich.console.Console(file=out, highlight=False, markup=False, emoji=False)
        self._err = rich.console.Console(file=err, stderr=err is None, highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._ended: dict[str, float] = {}
        self._view: TrainingView | None = None
        self._live: Live | None = None

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, what: str, done: float, total: float | None) -> None:
        """Progress of a job (see unmask.progress): its bar moves, or a plain line is printed now and then."""
        now = self._clock()
        job = self._jobs.get(what)
        if job is None:
            if total is not None and done >= total and self._ended.get(what) == done:
                return  # the end, told twice
            job = self._jobs[what] = Job(what, now)
        job.update(done, total, now)
        if job.over:
            self._end(what, job)
        elif self._moves:
            self._show()
        elif now - job.said_at >= EVERY:
            job.said_at = now
            self._line(job.sentence(now))

    def say(self, text: str = "") -> None:
        """One line (or several) of result on standard output, never wrapped or coloured."""
        lines = "\n".join(visible(line) for line in text.split("\n"))
        self._still(lambda: self._out.print(lines, soft_wrap=True))

    def note(self, text: str) -> None:
        """One line on standard error: not a result."""
        self._err.print(Text(one_line(text)), soft_wrap=True)

    def warn(self, text: str) -> None:
        """A remark on standard error that the work goes on in spite of."""
        self._err.print(Text.assemble(("warning: ", "yellow"), one_line(text)), soft_wrap=True)

    def table(self, title: str, rows: Sequence[Sequence[object]], columns: Sequence[str] = ()) -> None:
        """Rows under a title on standard output: drawn for a terminal, a Markdown table for files and pipes.

        Numbers are set to the right. `columns` are the headings; without them the first column is the name of the row.
        """
        cells = [[_cell(value) for value in row] for row in rows]
        right = [bool(rows) and all(_is_number(row[i]) for row in rows if i < len(row)) for i in range(_width(cells))]
        if self._out.is_terminal:
            drawn = _drawn_table(title, cells, columns, right, ascii_only=_ascii_only(self._out))
            self._still(lambda: self._out.print(drawn))
        else:
            self.say("\n".join([*_markdown_table(title, cells, columns, right), ""]))

    def print_error(self, error: UnmaskError) -> None:
        """What is wrong, where, and what to do: a line each, on standard error, without a traceback."""
        lines = [Text.assemble(("error: ", "bold red"), one_line(error.what))]
        lines += [Text(f"  where: {one_line(error.where)}")] * bool(error.where)
        lines += [Text.assemble(("  do: ", "bold"), one_line(error.do))] * bool(error.do)
        self._err.print(Text("\n").join(lines), soft_wrap=True)

    def training(self, title: str) -> TrainingView:
        """The display of a training run, fed with `.record(record)`; leaving it as a context manager ends it."""
        assert self._view is None, "one training run at a time"
        self._view = TrainingView(
            title, ViewPort(self._clock, self._moves, self._line, self._leave, _ascii_only(self._err))
        )
        if self._moves:
            self._show()
        return self._view

    def close(self) -> None:
        """Ends what still moves; jobs that had not ended leave a line that says how far they came."""
        if self._view:
            self._leave()
        now = self._clock()
        for job in self._jobs.values():
            self._line(job.sentence(now, stopped=True))
        self._jobs.clear()
        self._hide()

    @property
    def _moves(self) -> bool:
        return self._err.is_terminal and not self._err.is_dumb_terminal

    def _end(self, what: str, job: Job) -> None:
        del self._jobs[what]
        self._ended[what] = job.done
        now = self._clock()
        if self._view is None or now - job.began >= EVERY:  # a training run's evaluations tell their result themselves
            self._line(job.sentence(now))
        if not self._jobs and self._view is None:
            self._hide()

    def _leave(self) -> None:
        """The training run's end: its last state stays in the terminal as ordinary text."""
        view, self._view = self._view, None
        self._hide()
        if view and view.started and self._moves:
            self._err.print(view.panel(self._err.width))
        if self._jobs and self._moves:
            self._show()

    def _line(self, text: str) -> None:
        self._err.print(visible(text), soft_wrap=True)  # above the bars, where they move

    def _still(self, act: Callable[[], object]) -> None:
        """Prints results between two pictures: bars on the same terminal are taken away and come back below."""
        moving = self._live is not None and self._out.is_terminal
        if moving:
            self._hide()
        act()
        if moving:
            self._show()

    def _show(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._picture,
                console=self._err,
                refresh_per_second=_REFRESHES_IN_TRAINING if self._view else _REFRESHES,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def _hide(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _picture(self) -> RenderableType:
        now = self._clock()
        jobs = [job.bar(now, self._err.width, ascii_only=_ascii_only(self._err)) for job in list(self._jobs.values())]
        view = self._view
        return Group(*([view.panel(self._err.width)] if view else []), *jobs)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else one_line(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _width(cells: list[list[str]]) -> int:
    return max(map(len, cells), default=0)


def _ascii_only(console: rich.console.Console) -> bool:
    return not console.encoding.lower().startswith("utf")


def _drawn_table(
    title: str, cells: list[list[str]], columns: Sequence[str], right: list[bool], *, ascii_only: bool
) -> Table:
    table = Table(
        title=Text(one_line(title), "bold"),
        title_justify="left",
        box=ASCII if ascii_only else SIMPLE_HEAD,
        show_header=bool(columns),
        pad_edge=False,
    )
    for place in range(max(len(columns), _width(cells))):
        heading = one_line(columns[place]) if place < len(columns) else ""
        table.add_column(heading, justify="right" if place < len(right) and right[place] else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _markdown_table(title: str, cells: list[list[str]], columns: Sequence[str], right: list[bool]) -> list[str]:
    """Lines of a Markdown table whose columns are aligned for the eye as well."""
    number = max(len(columns), _width(cells))
    rows = [[*map(one_line, columns), *[""] * number][:number], *([*row, *[""] * number][:number] for row in cells)]
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    wide = [max([3, *(Text(row[i]).cell_len for row in rows)]) for i in range(number)]
    at_right = [i < len(right) and right[i] for i in range(number)]
    rule = "| " + " | ".join("-" * (w - 1) + (":" if r else "-") for w, r in zip(wide, at_right, strict=True)) + " |"
    lines = [_markdown_row(row, wide, at_right) for row in rows]
    return [one_line(title), "", lines[0], rule, *lines[1:]] if number else [one_line(title)]


def _markdown_row(row: list[str], wide: list[int], at_right: list[bool]) -> str:
    padded = []
    for cell, width, right in zip(row, wide, at_right, strict=True):
        blank = " " * (width - Text(cell).cell_len)
        padded.append(blank + cell if right else cell + blank)
    return "| " + " | ".join(padded) + " |"
