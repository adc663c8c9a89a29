"""Reads what a run wrote down, for the report: metrics.jsonl record by record in bounded memory, and run.json."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.errors import DamagedError, UnmaskError
from unmask.train.report.curves import Thinned
from unmask.train.report.samples import Samples
from unmask.train.report.text import number

_KEPT = 100  # plans, checkpoints and resumes listed on the page; the newest ones
_LARGEST_STEP, _LARGEST, _LONGEST_NAME = 2**53, 1e100, 60


@dataclass
class Listed:
    """The newest records of one kind, and how many there were."""

    newest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    number: int = 0

    def add(self, record: dict[str, Any]) -> None:
        self.newest.append(record)
        self.number += 1


@dataclass
class History:
    """Everything the page shows of metrics.jsonl. Figures of nested tables have dotted names: `losses.mlm`."""

    steps: Thinned = field(default_factory=lambda: Thinned(1200))
    evaluations: Thinned = field(default_factory=lambda: Thinned(600))
    samples: Samples = field(default_factory=Samples)
    last_step: dict[str, float] = field(default_factory=dict)
    first_evaluation: dict[str, float] = field(default_factory=dict)
    last_evaluation: dict[str, float] = field(default_factory=dict)
    plans: Listed = field(default_factory=Listed)
    checkpoints: Listed = field(default_factory=Listed)
    resumes: Listed = field(default_factory=Listed)
    phases: dict[int, int] = field(default_factory=dict)  # phase, counted from 0, to the step it began at
    unreadable: int = 0

    def add(self, record: dict[str, Any]) -> bool:
        """Takes one record; False when it has no valid step or kind."""
        step, kind = record.get("step"), record.get("kind")
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < _LARGEST_STEP:
            return False
        if kind == "step":
            self._step(step, numbers(record))
        elif kind == "evaluation":
            self._evaluation(step, numbers(record))
        elif kind == "sample":
            return self.samples.add(record, step)
        elif kind == "phase":
            return self._phase(step, record.get("phase"))
        elif kind in ("plan", "checkpoint", "resume"):
            {"plan": self.plans, "checkpoint": self.checkpoints, "resume": self.resumes}[kind].add(record)
        return True

    @property
    def borders(self) -> list[int]:
        """The steps at which a phase followed another."""
        return [step for phase, step in self.phases.items() if phase > 0]

    def _phase(self, step: int, phase: object) -> bool:
        if isinstance(phase, bool) or not isinstance(phase, int) or not 0 <= phase < _KEPT:
            return False
        self.phases = {before: at for before, at in self.phases.items() if before < phase} | {phase: step}
        self.first_evaluation = {}  # what came before measured something else
        return True

    def _step(self, step: int, figures: dict[str, float]) -> None:
        if self.steps.add(step, figures):
            self.evaluations.cut(step)
            self.samples.cut(step)
        self.last_step = figures

    def _evaluation(self, step: int, figures: dict[str, float]) -> None:
        self.evaluations.add(step, figures, beside=step in self.borders)
        if not self.first_evaluation or step <= self.first_evaluation["step"]:
            self.first_evaluation = figures
        self.last_evaluation = figures


def read_history(path: Path) -> History:
    """Reads metrics.jsonl as a stream. Lines that are no records (a torn last one, say) are counted and passed over."""
    history = History()
    if not path.exists():
        return history
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.strip():
                    history.unreadable += not _take(history, line)
    except OSError as error:
        raise UnmaskError(
            f"cannot read the metrics: {error.strerror}", where=str(path), do="check the disk and the permissions"
        ) from None
    return history


def read_run(path: Path) -> dict[str, Any]:
    """run.json as plain data; UnmaskError when the folder holds no run, DamagedError when it is not JSON."""
    try:
        run = json.loads(path.read_bytes())
    except FileNotFoundError:
        do = "give the folder that `unmask pretrain` writes into, e.g. runs/first"
        raise UnmaskError("this is not a run: it has no run.json", where=str(path.parent), do=do) from None
    except OSError as error:
        raise UnmaskError(
            f"cannot read the run: {error.strerror}", where=str(path), do="check the path and the permissions"
        ) from None
    except (ValueError, RecursionError) as error:
        do = "restore run.json from a copy; the metrics beside it are untouched"
        raise DamagedError(f"run.json is not JSON: {error}", where=str(path), do=do) from None
    if not isinstance(run, dict):
        raise DamagedError("run.json does not hold a table", where=str(path), do="restore it from a copy")
    return run


def numbers(record: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of a record, those of nested tables under dotted names; what no chart can hold is left out."""
    figures: dict[str, float] = {}
    for name, value in record.items():
        if type(value) is float or type(value) is int:
            if (there := number(value)) is not None and abs(there) < _LARGEST:
                figures[name] = there
        elif isinstance(value, dict):
            for inner, part in value.items():
                if len(inner) <= _LONGEST_NAME and (there := number(part)) is not None and abs(there) < _LARGEST:
                    figures[f"{name}.{inner}"] = there
    return figures


def _take(history: History, line: bytes) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # ValueError covers broken JSON and broken UTF-8
        return False
    return isinstance(record, dict) and history.add(record)
