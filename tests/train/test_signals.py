"""A run that is asked to stop finishes its step; asked twice, it stops at once."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from unmask.train.signals import StopRequest

CODES = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 0)]


def handlers() -> list[object]:
    return [signal.getsignal(number) for number, _ in CODES]


@pytest.mark.parametrize(("number", "code"), CODES)
def test_the_first_signal_is_noted_and_gives_the_exit_code(number: signal.Signals, code: int) -> None:
    with StopRequest() as stop:
        assert stop.signal is None and stop.exit_code == 0
        os.kill(os.getpid(), number)
        steps = 0
        while stop.signal is None:
            steps += 1
        assert stop.signal is number and stop.exit_code == code


@pytest.mark.parametrize("second", [number for number, _ in CODES])
def test_the_second_signal_stops_at_once(second: signal.Signals) -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal is signal.SIGTERM
        os.kill(os.getpid(), second)
        pytest.fail("went on")
    assert stop.signal is signal.SIGTERM and stop.exit_code == 143 and handlers() == before


def test_the_handlers_of_before_come_back() -> None:
    before = handlers()
    with StopRequest():
        assert all(old != new for old, new in zip(before, handlers(), strict=True))
        with StopRequest() as inner:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert inner.signal is signal.SIGUSR1
    assert handlers() == before


def test_outside_the_main_thread_it_does_nothing() -> None:
    before, seen = handlers(), []

    def run() -> None:
        with StopRequest() as stop:
            seen.append((stop.signal, stop.exit_code, handlers() == before))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(None, 0, True)] and handlers() == before
