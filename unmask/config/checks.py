"""Limits that several settings share."""

from __future__ import annotations


def positive(owner: object, *names: str) -> None:
    """ValueError for the first of these fields that is not above 0."""
    for name in names:
        if getattr(owner, name) <= 0:
            raise ValueError(f"{name} must be above 0, not {getattr(owner, name)}")


def share(owner: object, *names: str) -> None:
    """ValueError for the first of these fields that does not lie between 0 and 1."""
    for name in names:
        if not 0 <= getattr(owner, name) <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, not {getattr(owner, name)}")
