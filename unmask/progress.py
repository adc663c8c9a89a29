"""How long work tells a person that it goes on: one function, called with totals so far."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What every long function of the library takes as `progress`."""

    def __call__(self, what: str, done: float, total: float | None) -> None:
        """`what` names the job and its unit ("reading, documents"); `total` is None while unknown; done == total ends it."""


def quiet(what: str, done: float, total: float | None) -> None:
    """Shows nothing: the default in library use."""
