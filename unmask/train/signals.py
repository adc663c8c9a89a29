"""Signals that ask a run to stop: it finishes its step, saves and leaves; asked twice, it stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# What the shell expects after SIGINT and SIGTERM; SIGUSR1 is how batch systems announce that time is up, which is no failure.
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 0}


class StopRequest:
    """While entered, the first of SIGINT, SIGTERM, SIGUSR1 sets `signal`; a second one raises KeyboardInterrupt.

    The training loop looks at `signal` after each step and leaves with `exit_code`. Outside the main thread, where
    Python can't handle signals, it does nothing.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """0 while nobody asked."""
        return 0 if self.signal is None else EXIT_CODES[self.signal]

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: set by foreign C code
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
