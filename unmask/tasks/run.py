"""A fine-tuning run: from a model folder and labelled files to a model folder that knows the task.

runs/<name>/  run.json  metrics.jsonl  report.html  steps/  model/  eval.json
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from unmask import settings
from unmask.config import (
    BatchSize,
    Contrast,
    FineTuning,
    Keeping,
    Machine,
    Optimizer,
    Schedule,
    Steps,
    Task,
)
from unmask.epochs import Epochs
from unmask.errors import UnmaskError
from unmask.files import remove_leftovers, write_file
from unmask.hub.files import save_weights
from unmask.hub.weights import gather
from unmask.nn.lora import merge
from unmask.progress import Progress, quiet
from unmask.tasks.breakdown import by_length
from unmask.tasks.card import task_card
from unmask.tasks.data import fingerprint, read_data, recorded
from unmask.tasks.dropout import as_they_came
from unmask.tasks.job import Evaluation, Features, Job
from unmask.tasks.layers import layer_scales
from unmask.tasks.network import build_network, finish_folder
from unmask.train.checkpoint import Checkpoint, Checkpoints
from unmask.train.journal import Journal, View, read_run, update_run
from unmask.train.lock import lock_run
from unmask.train.loop import Outcome, fit
from unmask.train.machine import choose_device, describe, keep_freed_memory, set_threads
from unmask.train.report.page import write_report
from unmask.train.signals import StopRequest

SHOWN = 20  # labels that a run lists
FREE = ("train", "dev", "keeping", "machine", "patience")  # may differ when a run goes on; files are told by records
UNDEFINED = -2.0  # the score of a checkpoint that has none (a correlation of equal numbers): below every other


@dataclass(frozen=True)
class _Training:
    """A fine-tuning run as the loop takes it."""

    seed: int
    batch: BatchSize
    until: Steps
    optimizer: Optimizer
    schedule: Schedule
    keeping: Keeping
    machine: Machine
    max_length: int


@dataclass(frozen=True)
class Tuned:
    """How a run ended, and what its best checkpoint reaches on the dev set (empty without one)."""

    outcome: Outcome
    metrics: Mapping[str, float]


def finetune(
    run: FineTuning, folder: Path, *, columns: Mapping[str, str] | None = None, view: View, progress: Progress = quiet
) -> Tuned:
    """Trains until the epochs are over, or goes on with the run in `folder`; writes model, scores and report.

    Raises UnmaskError for files, models and settings that do not fit; nothing already saved is lost.
    """
    choose_device(run.machine)  # one that is not there is refused before anything is read
    with lock_run(folder):
        for place in (folder, folder / "steps"):
            remove_leftovers(place, alone=True)
        set_threads(run.machine)
        keep_freed_memory()
        return _Road(run, folder, dict(columns or {}), view, progress).go()


class _Road:
    """The parts of a run, in the order they are needed."""

    def __init__(self, run: FineTuning, folder: Path, columns: dict[str, str], view: View, progress: Progress):
        self.run, self.folder, self.columns, self.progress = run, folder, columns, progress
        data = read_data(run, columns, lambda sentence: view({"kind": "message", "message": sentence}))
        self.train, self.dev, self.job = data.train, data.dev, data.job
        self.net = build_network(run, self.job, data.loaded)
        self.journal = Journal(folder, view=view, origin=self._origin)
        self.checkpoints = Checkpoints(folder / "steps", keep_last=run.keeping.keep_last, keep_best=True)

    def _origin(self, document: int) -> tuple[str, int]:
        place = self.train.examples[document].place
        return place.file, place.record

    def go(self) -> Tuned:
        training = self.job.features(self.train.examples, self.net.texts)
        held_out = self.job.features(self.dev.examples, self.net.texts) if self.dev else None
        self._tell(training, held_out)
        epochs = Epochs(training.sequences, self.net.objective.prepare, self.run.seed, self.run.examples)
        records = {"train": fingerprint(training, self.job)}
        records |= {"dev": fingerprint(held_out, self.job)} if held_out else {}
        self._require_same(records)
        self._write_run(records)
        with StopRequest() as stop:
            try:
                outcome = fit(
                    self._training(epochs), self.net.encoder, self.net.objective, epochs, self.journal,
                    self.checkpoints, evaluate=partial(self._measure, held_out), flops=self.net.training_flops,
                    stop=stop, scales=layer_scales(self.net.config, self.net.encoder, self.run.layer_decay),
                    patience=self.run.patience,
                )  # fmt: skip
            except BaseException as error:
                with suppress(UnmaskError, OSError):
                    self._end("failed", str(error).splitlines()[0] if str(error) else type(error).__name__)
                raise
            finally:
                self.journal.close()
        if not outcome.finished:
            self._end("stopped", f"{stop.signal.name if stop.signal else 'asked'} after step {outcome.step:,}")
            return Tuned(outcome, {})
        metrics = self._finish(held_out)
        early = outcome.step < self._training(epochs).until.steps
        why = f"{self.run.patience} evaluations were no better than one before them" if early else ""
        self._end("finished", why, metrics)
        return Tuned(outcome, metrics)

    def _training(self, epochs: Epochs) -> _Training:
        run = self.run
        steps = max(1, round(run.epochs * epochs.per_epoch / run.accumulate))
        about = max(1, round(run.examples * len(epochs.sequences.ids_T) / epochs.sequences.num_units))
        return _Training(
            run.seed, BatchSize(tokens=about, accumulate=run.accumulate), Steps(steps=steps), run.optimizer,
            run.schedule, run.keeping, run.machine, run.max_length,
        )  # fmt: skip

    def _tell(self, training: Features, held_out: Features | None) -> None:
        """What was cut of the data, and which settings are not what they seem."""
        for name, features in (("train", training), ("dev", held_out)):
            for line in features.notes if features else ():
                self.journal.say(f"{name}: {line}")
        if (limit := self.net.texts.max_length) < self.run.max_length:
            self.journal.say(f"Texts are read up to {limit:,} tokens, the model's limit, not {self.run.max_length:,}.")
        if (trained := self.net.parameters(trained=True)) < (there := self.net.parameters()):
            self.journal.say(f"{trained:,} of {there:,} parameters are trained ({trained / there:.2%}).")
        names = getattr(self.job.task, "labels", ())
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            self.journal.say(f"{len(names)} labels: {', '.join(names[:SHOWN])}{more}")
        if self.run.dev and Path(self.run.dev).resolve() == Path(self.run.train).resolve():
            self.journal.say("The dev file is the training file: its scores say nothing about other texts.")
        if isinstance(self.job.task, Contrast) and self.run.accumulate > 1:
            self.journal.say("The parts of a step share no negatives: raise examples instead of accumulate.")

    def _measure(self, held_out: Features | None, step: int) -> Sequence[dict[str, Any]]:
        """One evaluation. Without a dev set there is nothing to measure."""
        if held_out is None:
            return []
        evaluation, figures = self.job.judge(self.net.encoder, self.net.objective, held_out)
        score, metrics = next(iter(evaluation.metrics.values())), _defined(evaluation.metrics)
        score = score if math.isfinite(score) else UNDEFINED
        return [{"kind": "evaluation", "step": step, **figures, "score": score, "metrics": metrics}]

    def _member(self) -> Any:
        return next(iter(self.net.objective.members().values()))

    def _finish(self, held_out: Features | None) -> Mapping[str, float]:
        """The best checkpoint as a model folder, with what it reaches."""
        self._load_best()
        evaluation = Evaluation([])
        if held_out is not None:
            outputs = self.job.outputs(self.net.encoder, self._member(), held_out, progress=self.progress)
            evaluation = self.job.decide(outputs, self._member(), held_out)
            tuned = self.job.tune(evaluation, held_out)
            if tuned is not self.job:  # with thresholds of its own it may say something else
                self.job = tuned
                evaluation = self.job.decide(outputs, self._member(), held_out)
        about = {
            "run": settings.plain(self.run),
            "job": _plain_job(self.job),
            "texts": {"max_length": self.net.texts.max_length, "lowercase": self.net.lowercase},
            "dev": _defined(evaluation.metrics),
        }
        card = task_card(
            replace(self.run, max_length=self.net.texts.max_length),
            self.job.task,
            self._sizes(),
            _defined(evaluation.metrics),
            self.best,
        )
        loaded = self.net.loaded
        weights = gather(self.net.encoder, self.net.objective, loaded.config)  # with the dropout it came with
        shapes = as_they_came(weights.shapes, loaded.head_shape(self.job.task.kind))
        weights = replace(weights, task=self.job.settings(), model_type=loaded.model_type, shapes=shapes)
        save_weights(
            self.folder / "model",
            weights,
            tokenizer_folder=loaded.tokenizer_folder,
            about=about,
            card=card,
            beside=partial(finish_folder, self.job.task, self.net),
        )
        update_run(self.folder, dev=_found(self.job.task, held_out, evaluation) if held_out else {})
        measured = {"dev": _defined(evaluation.metrics), "task": settings.plain(self.job.task)}
        write_file(self.folder / "eval.json", json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
        return evaluation.metrics

    def _load_best(self) -> None:
        rows = {row["step"]: str(row["kind"]) for row in self.checkpoints.list()}
        best = next((step for step, kind in rows.items() if "best" in kind.split(", ")), max(rows))
        self.best = best
        tensors, _ = self.checkpoints.load(Checkpoint(best, self.checkpoints.folder / f"{best:010d}"))
        self.net.encoder.load_state_dict(tensors["encoder"])
        self.net.objective.load_state_dict(tensors["objective"])
        merge(self.net.encoder)

    def _sizes(self) -> dict[str, int]:
        return {"train": len(self.train.examples), "dev": len(self.dev.examples) if self.dev else 0}

    def _require_same(self, records: Mapping[str, str]) -> None:
        """A resumed run goes on with the very settings, records, labels and tokens it began with."""
        if not self.checkpoints.list():
            return
        before = read_run(self.folder)
        began = settings.parse(FineTuning, before.get("run", {}), where=str(self.folder / "run.json"))
        now, then = settings.plain(self.run), settings.plain(began)
        changed = next((name for name in now if name not in FREE and now[name] != then[name]), None)
        if changed is not None:
            raise UnmaskError(
                f"{changed} is {now[changed]}, but the run in this folder began with {then[changed]}",
                where=str(self.folder),
                do="give the settings it began with, or begin a new run in another folder",
            )
        kept = recorded(before)
        for name in ("train", "dev"):
            if kept and kept.get(name) != records.get(name):
                raise UnmaskError(
                    f"the {name} records, their labels or their tokens are not those this run began with",
                    where=str(getattr(self.run, name)),
                    do="put the file (and --map) back as it was, or begin a new run in another folder",
                )

    def _write_run(self, records: Mapping[str, str]) -> None:
        packages = ("unmask", "torch", "tokenizers", "numpy")
        update_run(
            self.folder,
            run=settings.plain(self.run),
            versions={name: importlib.metadata.version(name) for name in packages}
            | {"python": platform.python_version()},
            machine=describe(choose_device(self.run.machine)),
            model={"parameters": self.net.parameters(), "trained": self.net.parameters(trained=True)},
            data=self._sizes(),
            columns=self.columns,
            records=records,
            result={"status": "running"},
        )

    def _end(self, status: str, why: str, metrics: Mapping[str, float] | None = None) -> None:
        found = {"best": self.best} if status == "finished" else {}
        update_run(self.folder, result={"status": status, "why": why, "metrics": _defined(metrics or {}), **found})
        write_report(self.folder)


def _found(task: Task, held_out: Features, evaluation: Evaluation) -> dict[str, Any]:
    """What the report shows of the dev set."""
    metrics, lengths = _defined(evaluation.metrics), by_length(task, held_out, evaluation)
    return {"records": len(evaluation.predictions), "metrics": metrics, "lengths": lengths, **evaluation.detail}


def _defined(metrics: Mapping[str, float]) -> dict[str, float]:
    """What JSON can hold: a metric that is undefined on these records is left out."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _plain_job(job: Job) -> dict[str, Any]:
    """What a reader of the folder needs besides the weights."""
    return {"task": settings.plain(job.task), **job.learned()}
