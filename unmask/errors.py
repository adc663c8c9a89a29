"""Errors a person can act on: what is wrong, where, and what to do. The command line prints them without a traceback."""

from __future__ import annotations


class UnmaskError(Exception):
    """Something the user can put right. `exit_code` is what the command line leaves with (2: bad input)."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", do: str = ""):
        super().__init__(what)
        self.what, self.where, self.do = what, where, do

    def __str__(self) -> str:
        return "\n".join(
            part
            for part in (self.what, self.where and f"  where: {self.where}", self.do and f"  do: {self.do}")
            if part
        )


class DamagedError(UnmaskError):
    """A file of ours that is not what was written: truncated, altered or incomplete."""


class CannotWriteError(UnmaskError):
    """The output place refuses us before any work is done (read-only, taken by another run); exit code 73, EX_CANTCREAT."""

    exit_code = 73


class DiskError(UnmaskError):
    """Writing failed midway (disk full, I/O error); what was saved before is intact; exit code 74, EX_IOERR."""

    exit_code = 74
