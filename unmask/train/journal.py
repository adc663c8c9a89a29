"""What a run writes down besides its checkpoints: metrics.jsonl, the plan in run.json, and what a watching person sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unmask.batch import PackedBatch
from unmask.files import write_file
from unmask.train.metrics import Metrics
from unmask.train.plan import Leg

View = Callable[[dict[str, Any]], None]
Origin = Callable[[int], tuple[str, int]]


class Journal:
    """The record of one run in `folder`. `view` gets every record as it is written; `origin` names a document's source."""

    def __init__(self, folder: Path, *, view: View, origin: Origin):
        self.folder, self.view, self.origin = folder, view, origin
        self.metrics = Metrics(folder / "metrics.jsonl")

    def begin(self, step: int, phase: int, *, resumed: bool) -> None:
        """Forgets what a run that went further than its last checkpoint, in this phase, had written."""
        self.metrics.rewind(step if resumed else -1, phase)
        if resumed:
            self.view({"kind": "resume", "step": step})

    def write(self, record: dict[str, Any]) -> None:
        """One record, to the file and to whoever watches."""
        self.metrics.write(record)
        self.view(record)

    def close(self) -> None:
        """Closes the files; every record is in them already."""
        self.metrics.close()

    def say(self, message: str) -> None:
        """A sentence for whoever watches."""
        self.view({"kind": "message", "message": message})

    def legs(self) -> tuple[Leg, ...]:
        """The decisions about the run's length that run.json holds."""
        return tuple(Leg(**leg) for leg in read_run(self.folder).get("plan", []))

    def decide(self, legs: Sequence[Leg]) -> None:
        """Writes a phase's plan into run.json before any step is taken by it; those of earlier phases stay, and decisions
        that are no longer part of it are dropped."""
        earlier = [leg for leg in self.legs() if leg.phase < legs[-1].phase]
        update_run(self.folder, plan=[asdict(leg) for leg in (*earlier, *legs)])
        self.write({"kind": "plan", **asdict(legs[-1])})

    def name_documents(self, *batches: PackedBatch, rows: Container[int] = (), limit: int = 10) -> str:
        """The sources of the examples of these batches, in words; only of the sequences `rows` where there are any."""
        numbers = sorted(
            {
                int(document)
                for batch in batches
                if batch.documents is not None
                for row, document in enumerate(batch.documents)
                if not rows or row in rows
            }
        )
        places = [
            f"{source} record {record} (document {n})" for n in numbers[:limit] for source, record in [self.origin(n)]
        ]
        return "; ".join(places) + (f"; and {len(numbers) - limit} more" if len(numbers) > limit else "")


def read_run(folder: Path) -> dict[str, Any]:
    """run.json as plain data; empty when there is none yet."""
    path = folder / "run.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def update_run(folder: Path, **changes: Any) -> None:
    """Sets top-level fields of run.json, atomically."""
    write_file(folder / "run.json", json.dumps(read_run(folder) | changes, indent=1, ensure_ascii=False) + "\n")
