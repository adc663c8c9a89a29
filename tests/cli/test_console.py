"""What a person sees in a terminal, a log file and a pipe."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from unmask.cli.console import Console
from unmask.cli.training_view import Trail
from unmask.errors import UnmaskError
from unmask.progress import Progress

STEP: dict[str, Any] = {
    "kind": "step",
    "step": 30,
    "tokens": 122_880,
    "seconds": 60.0,
    "loss": 6.9,
    "losses": {"mlm": 6.2, "nsp": 0.7},
    "learning_rate": 1e-4,
    "grad_norm": 1.25,
    "tokens_per_second": 16_384.0,
    "padding": 0.021,
    "loader_wait": 0.0031,
    "peak_share": 0.61,
}
EVALUATION: dict[str, Any] = {
    "kind": "evaluation",
    "step": 30,
    "loss": 6.5,
    "losses": {"mlm": 5.9, "nsp": 0.6},
    "perplexity": 365.04,
    "accuracy": {"mlm": 0.125, "nsp": 0.75},
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Seen:
    """A console and what it printed."""

    def __init__(self, *, terminal: bool = False) -> None:
        kind = Terminal if terminal else io.StringIO
        self.out, self.err, self.clock = kind(), kind(), Clock()
        self.console = Console(out=self.out, err=self.err, clock=self.clock)

    @property
    def lines(self) -> list[str]:
        return self.err.getvalue().splitlines()

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.err.getvalue())


@pytest.fixture(autouse=True)
def ordinary_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    yield


def test_the_console_is_a_progress() -> None:
    progress: Progress = Seen().console
    progress("reading, documents", 1, None)


def test_a_pipe_gets_a_line_every_ten_seconds_and_one_at_the_end() -> None:
    seen = Seen()
    for second in range(26):
        seen.clock.now = 100 + second
        seen.console("reading, documents", second * 1000, 25_000)
    assert seen.lines == [
        "reading: 10,000 of 25,000 documents (40.0 %), 1,000/s, about 15 s left",
        "reading: 20,000 of 25,000 documents (80.0 %), 1,000/s, about 5.0 s left",
        "reading: 25,000 documents in 25 s",
    ]
    assert seen.out.getvalue() == ""


def test_a_job_of_unknown_length_says_how_much_is_done() -> None:
    seen = Seen()
    seen.console("reading, bytes", 0, None)
    seen.clock.now += 12
    seen.console("reading, bytes", 36e6, None)
    assert seen.lines == ["reading: 36.0 MB, 3.00 MB/s"]


def test_an_end_told_twice_is_one_line_and_a_second_job_of_the_name_another() -> None:
    seen = Seen()
    for done in (0, 5, 5, 5):
        seen.console("hashing, files", done, 5)
    for done in (0, 7):
        seen.console("hashing, files", done, 7)
    seen.console("nothing, files", 0, 0)
    assert seen.lines == ["hashing: 5 files in 0.0 s", "hashing: 7 files in 0.0 s", "nothing: 0 files in 0.0 s"]


def test_work_that_breaks_off_says_how_far_it_came() -> None:
    seen = Seen()
    with pytest.raises(KeyboardInterrupt), seen.console as console:
        console("packing, shards", 3, 8)
        raise KeyboardInterrupt
    assert seen.lines == ["packing: stopped at 3 of 8 shards (37.5 %) after 0.0 s"]


def test_nothing_but_text_reaches_a_pipe() -> None:
    seen = Seen()
    with seen.console as console, console.training("run") as view:
        for number in range(50):
            seen.clock.now += 1
            console("reading, documents", number, None)
            view.record(STEP | {"step": number})
        console.table("t", [("a", 1)])
    assert "\x1b" not in seen.err.getvalue() + seen.out.getvalue()
    assert "\r" not in seen.err.getvalue() + seen.out.getvalue()


def test_a_terminal_gets_a_bar_that_leaves_one_line_behind() -> None:
    seen = Seen(terminal=True)
    with seen.console as console:
        for done in range(0, 11):
            seen.clock.now += 0.5
            console("reading, documents", done, 10)
    assert "━" in seen.plain and "reading: 10 documents in 5.0 s" in seen.plain
    assert (
        seen.err.getvalue().count("\x1b[?25h") == seen.err.getvalue().count("\x1b[?25l") >= 1
    )  # the cursor comes back
    assert seen.out.getvalue() == ""


def test_results_go_to_standard_output_between_the_bars() -> None:
    seen = Seen(terminal=True)
    with seen.console as console:
        console("reading, documents", 1, 10)
        hidden = seen.err.getvalue().count("\x1b[?25h")
        console.say("a result")
        assert seen.err.getvalue().count("\x1b[?25h") == hidden + 1
    assert seen.out.getvalue() == "a result\n"


def test_no_color_means_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    seen = Seen(terminal=True)
    with seen.console as console, console.training("run") as view:
        view.record(STEP)
        console("reading, documents", 1, 10)
        console.print_error(UnmaskError("x"))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", seen.err.getvalue())


def test_a_dumb_terminal_is_treated_as_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    seen = Seen(terminal=True)
    with seen.console as console:
        for done in (5, 10):
            console("reading, documents", done, 20)
            seen.clock.now += 10
        console("reading, documents", 20, 20)
    lines = ["reading: 10 of 20 documents (50.0 %), 1/s, about 10 s left", "reading: 20 documents in 20 s"]
    assert seen.lines == lines


def test_an_error_is_at_most_three_lines_that_cannot_act() -> None:
    seen = Seen()
    seen.console.print_error(UnmaskError("line 3\nis \x1b[31mbad " + "x" * 300, where="a\nb.txt", do="mend\u202e it"))
    assert len(seen.lines) == 3
    assert seen.lines[0].startswith("error: line 3 is ⟨U+001B⟩[31mbad xxx")
    assert seen.lines[1:] == ["  where: a b.txt", "  do: mend⟨U+202E⟩ it"]
    assert seen.out.getvalue() == ""


def test_an_error_without_a_place_is_one_line() -> None:
    seen = Seen()
    seen.console.print_error(UnmaskError("[bold]no[/bold] such preset: :smile:"))
    assert seen.lines == ["error: [bold]no[/bold] such preset: :smile:"]


def test_text_is_never_read_as_markup() -> None:
    seen = Seen()
    seen.console.say("[red]x[/red] :cat: 北京 [MASK]")
    assert seen.out.getvalue() == "[red]x[/red] :cat: 北京 [MASK]\n"


def test_a_table_in_a_pipe_is_markdown_aligned_for_the_eye() -> None:
    seen = Seen()
    seen.console.table("guesses", [("首都", 0.73125), ("a|b", 0.5)], ("word", "chance"))
    assert seen.out.getvalue().splitlines() == [
        "guesses",
        "",
        "| word | chance |",
        "| ---- | -----: |",
        "| 首都 | 0.7312 |",
        "| a\\|b |    0.5 |",
        "",
    ]


def test_a_table_in_a_terminal_shows_every_cell_in_full() -> None:
    seen = Seen(terminal=True)
    seen.console.table("sizes", [("parameters", 5_432_832), ("path", "x" * 150), ("tied", True)])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", seen.out.getvalue())
    assert "5,432,832" in shown and "yes" in shown and shown.count("x") == 150


def test_an_empty_table_is_its_title() -> None:
    seen = Seen()
    seen.console.table("nothing", [])
    assert seen.out.getvalue().split() == ["nothing"]


def test_a_log_of_a_training_run_has_its_plan_its_pace_and_its_evaluations() -> None:
    seen = Seen()
    with seen.console as console, console.training("run") as view:
        view.record({"kind": "plan", "step": 0, "total_steps": 1200, "reason": "5 minutes"})
        for number in range(1, 31):
            seen.clock.now += 0.5
            view.record(STEP | {"step": number, "seconds": number * 0.5})
        view.record(EVALUATION)
        view.record({"kind": "evaluation", "step": 30, "losses": {"tag": 0.5}, "metrics": {"f1": 0.75, "recall": 1.0}})
        said = {"losses": {"classify": 0.696}, "accuracy": {"classify": 0.47}, "metrics": {"accuracy": 0.47}}
        view.record({"kind": "evaluation", "step": 30, **said})
        view.record({"kind": "resume", "step": 30})
        view.record({"kind": "sample", "step": 30})
        view.record({"kind": "message", "message": "2 threads"})
    state = (
        "loss 6.900, MLM 6.200, NSP 0.700, tokens/s 16,384, of peak 61.0 %, learning rate 1e-4, gradient norm 1.250, "
    )
    state += "padding 2.1 %, loader wait 0.31 %"
    assert seen.lines == [
        "plan: 1,200 steps (5 minutes)",
        f"step 20 of 1,200, {state}, about 9 min 50 s left",
        "held-out at step 30: MLM 5.900 (12.5 % right), NSP 0.600 (75.0 % right), perplexity 365.0",
        "held-out at step 30: TAG 0.500, f1 0.7500",
        "held-out at step 30: classify 0.696, accuracy 0.4700",
        "resumed at step 30",
        "2 threads",
        f"step 30 of 1,200, {state}, about 9 min 45 s left",
    ]


@pytest.mark.parametrize(("wait", "words"), [(0.02, "2.0 %"), (0.021, "2.1 % (too slow: more machine.workers)")])
def test_waiting_for_batches_beyond_a_fiftieth_of_the_time_is_called_too_slow(wait: float, words: str) -> None:
    seen = Seen()
    with seen.console as console, console.training("run") as view:
        view.record(STEP | {"loader_wait": wait})
        view.record(STEP | {"step": 1, "loader_wait": wait})
        assert view.sentence().endswith(f"loader wait {words[:5]}"), "the first batch is always waited for"
        view.record(STEP | {"loader_wait": wait})
    assert seen.lines[0].endswith(f"loader wait {words}")


@pytest.mark.parametrize("columns", [30, 50, 80, 200])
def test_the_panel_fits_the_terminal_and_stays_when_the_run_ends(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    seen = Seen(terminal=True)
    with seen.console as console, console.training("run") as view:
        view.record({"kind": "plan", "step": 0, "total_steps": 1200})
        for number in range(1, 31):
            view.record(STEP | {"step": number, "loss": 9 - number / 10})
    last = seen.plain.rindex("╭")
    panel = seen.plain[last:].splitlines()
    assert max(map(len, panel)) <= columns and panel[-1].startswith("╰")
    shown = " ".join(panel)
    assert "step 30 of 1" in shown and "16,384" in shown and "█" in shown and "▁" in shown


def test_a_terminal_gets_the_panel_instead_of_lines() -> None:
    seen = Seen(terminal=True)
    with seen.console as console, console.training("run") as view:
        for number in range(1, 4):
            seen.clock.now += 11
            view.record(STEP | {"step": number})
        view.record(EVALUATION)
    assert "step 2, loss" not in seen.plain and "held-out at step 30: MLM 5.900" in seen.plain


def test_a_progress_inside_training_shows_below_the_panel() -> None:
    seen = Seen(terminal=True)
    with seen.console as console, console.training("run") as view:
        view.record(STEP)
        console("evaluating, batches", 1, 4)
        time.sleep(0.7)  # one refresh
        console("evaluating, batches", 4, 4)
    assert "evaluating" in seen.plain and "evaluating: " not in seen.plain


def test_a_plan_that_only_the_steps_tell_is_followed() -> None:
    seen = Seen()
    with seen.console as console, console.training("run") as view:
        view.record(STEP | {"total_steps": 500})
    assert seen.lines[0].startswith("step 30 of 500, ")


def test_what_was_not_recorded_is_not_shown() -> None:
    seen = Seen()
    with seen.console as console, console.training("run") as view:
        view.record({"kind": "step", "step": 1, "loss": None, "losses": {"mlm": float("nan")}, "peak_share": None})
    assert seen.lines == ["step 1"]


def test_a_record_costs_training_almost_nothing() -> None:
    seen = Seen(terminal=True)
    with seen.console as console, console.training("run") as view:
        best = float("inf")
        for _ in range(20):
            began = time.perf_counter()
            for number in range(200):
                view.record(STEP | {"step": number})
            best = min(best, (time.perf_counter() - began) / 200)
    assert best < 50e-6


def test_a_trail_keeps_the_shape_of_any_number_of_values() -> None:
    trail = Trail()
    for number in range(10_000):
        trail.add(10_000 - number)
    drawn = trail.drawn(20)
    assert len(drawn) == 20 and drawn[0] == "█" and drawn[-1] == "▁" and list(drawn) == sorted(drawn, reverse=True)
    assert trail.drawn(20, ascii_only=True).isascii()
    assert Trail().drawn(20) == ""


def test_output_that_knows_no_chinese_does_not_end_the_work() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(out=out, err=io.StringIO()).say("北京")
    out.flush()
    assert out.buffer.getvalue() == b"\\u5317\\u4eac\n"  # type: ignore[attr-defined]
