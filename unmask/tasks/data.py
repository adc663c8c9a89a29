"""What a fine-tuning run learns and chooses from: its records, the job that knows their labels, the model it begins with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import Contrast, FineTuning
from unmask.errors import UnmaskError
from unmask.hub.files import LoadedModel
from unmask.hub.task_heads import head_kind
from unmask.labelled.records import Read
from unmask.tasks.few import few
from unmask.tasks.job import Features, Job
from unmask.tasks.jobs import job_of
from unmask.tasks.network import aligned, load_start
from unmask.train.journal import read_run


@dataclass(frozen=True)
class Data:
    """The records of a run. `loaded` is the model, with its tensors."""

    train: Read[Any]
    dev: Read[Any] | None
    job: Job
    loaded: LoadedModel


def read_data(run: FineTuning, columns: Mapping[str, str], say: Callable[[str], None] = lambda sentence: None) -> Data:
    """Reads the files and the model; `say` is told what was understood of a file, and doubted, as soon as it is read."""

    def told(name: str, read: Read[Any]) -> Read[Any]:
        for line in (*read.understood, *read.warnings):
            say(f"{name}: {line}")
        return read

    job = job_of(run.task, columns)
    train = told("train", few(job.read(run.train), run.per_label, run.seed))
    loaded = load_start(run)
    job = job.begin(train, loaded.labels if head_kind(run.task.kind) in loaded.heads else ())
    _require_others(run, train)
    dev = told("dev", job.read(run.dev)) if run.dev else None
    if dev:
        job.require(dev.examples, run.dev)
    return Data(train, dev, job, loaded)


def _require_others(run: FineTuning, train: Read[Any]) -> None:
    """One pair alone in its batch has nothing to be told apart from."""
    if isinstance(run.task, Contrast) and run.examples == 1 and not any(e.negatives for e in train.examples):
        raise UnmaskError(
            "a batch of one record without negatives has no text to tell its answer from",
            where="examples",
            do="give --set examples=2 or more, or negatives",
        )


def fingerprint(features: Features, job: Job) -> str:
    """SHA-256 of what is learned or chosen from: tokens, labels and their names."""
    sequences = features.sequences
    found = hashlib.sha256(repr(getattr(job.task, "labels", ())).encode())
    labels = (array for part in sequences.labels.values() for array in (part.starts, part.place_M, part.value_M))
    for array in (sequences.ids_T, sequences.starts, *labels):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def recorded(run: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprints that a run.json holds, by split; {} where it holds none that can be compared."""
    found = run.get("records")
    return found if isinstance(found, dict) else {}


class Unchanged:
    """Whether files are still as finished runs read them. Reads them once for all runs that read them alike."""

    def __init__(self, columns: Mapping[str, str]):
        self.columns = dict(columns)
        self._known: dict[object, dict[str, str]] = {}

    def require(self, run: FineTuning, folder: Path) -> None:
        """UnmaskError where the finished run in `folder` read other columns, or other records."""
        data = read_run(folder)
        if data.get("columns", {}) != self.columns:
            do = "give --map as before, or another --out"
            raise UnmaskError("the run in this folder read other columns", where=str(folder), do=do)
        before = recorded(data)
        if before and before != self._now(run):
            raise UnmaskError(
                "the records, their labels or their tokens are not those that the run in this folder learned from",
                where=str(folder),
                do="put the files back as they were, or give another --out",
            )

    def _now(self, run: FineTuning) -> dict[str, str]:
        draw = (run.per_label, run.seed) if run.per_label else ()
        key = (run.model, run.train, run.dev, run.task, run.max_length, draw)
        if key not in self._known:
            data = read_data(run, self.columns)
            texts = aligned(run, data.loaded.config)
            parts = {"train": data.train, "dev": data.dev}
            self._known[key] = {
                name: fingerprint(data.job.features(read.examples, texts), data.job)
                for name, read in parts.items()
                if read is not None
            }
        return self._known[key]
