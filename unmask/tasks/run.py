"""A fine-tuning run: from a model folder and labelled files to a model folder that knows the task.

runs/<name>/  run.json  metrics.jsonl  report.html  steps/  model/  eval.json
"""

from __future__ import annotations

import hashlib
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

import numpy as np
import torch

from unmask import settings
from unmask.batch import PackedBatch
from unmask.config import (
    BatchSize,
    Contrast,
    EncoderConfig,
    FineTuning,
    Keeping,
    Machine,
    Optimizer,
    Schedule,
    Steps,
    Task,
)
from unmask.epochs import Epochs, token_budget
from unmask.errors import UnmaskError
from unmask.files import remove_leftovers, write_file
from unmask.hub.files import LoadedModel, load_model, save_weights
from unmask.hub.restore import restore_head
from unmask.hub.sentence_layout import MODULES, SentenceLayout, read_sentence_layout, write_sentence_layout
from unmask.hub.task_heads import head_kind
from unmask.hub.weights import gather
from unmask.inference.loaded import fitting_tokenizer
from unmask.measure.heldout import evaluate
from unmask.nn.cost import TRAINING, count_parameters, encoder_flops
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.nn.lora import merge
from unmask.objectives.base import Joint, Objective
from unmask.objectives.contrast import MODES
from unmask.progress import Progress, quiet
from unmask.tasks.breakdown import by_length
from unmask.tasks.card import task_card
from unmask.tasks.contrast import layout_of
from unmask.tasks.dropout import as_they_came, learning
from unmask.tasks.few import few
from unmask.tasks.job import Evaluation, Features, Job
from unmask.tasks.jobs import job_of
from unmask.tasks.layers import add_adapters, freeze, layer_scales
from unmask.tasks.outputs import TOKENS
from unmask.text.aligned import AlignedEncoder
from unmask.train.checkpoint import Checkpoint, Checkpoints
from unmask.train.journal import Journal, View, read_run, update_run
from unmask.train.lock import lock_run
from unmask.train.loop import Outcome, fit
from unmask.train.machine import choose_device, describe, keep_freed_memory, set_threads
from unmask.train.report.page import write_report
from unmask.train.signals import StopRequest

SHOWN = 20  # labels that a run lists
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


@dataclass(frozen=True)
class _Net:
    config: EncoderConfig
    encoder: Encoder
    objective: Joint
    texts: AlignedEncoder
    loaded: LoadedModel
    lowercase: bool
    frozen_layers: int
    adapted: bool

    def training_flops(self, batch: PackedBatch) -> float:
        reading = None if batch.read is None else len(batch.read)
        own = encoder_flops(self.config, batch.layout.lengths, reading=reading)
        moving = 1 - self.frozen_layers / self.config.num_blocks
        backward = 1 if self.adapted else TRAINING - 1  # matrices that don't move have no gradient of their own
        return own * (1 + backward * moving) + TRAINING * self.objective.flops(self.config, batch)

    def parameters(self, *, trained: bool = False) -> int:
        """Numbers in the network as it trains, adapters too; or those of them that move."""
        moving = {p for part in (self.encoder, self.objective) for p in part.parameters() if p.requires_grad}
        return sum(p.numel() for p in moving) if trained else count_parameters(self.encoder, self.objective)


def finetune(
    run: FineTuning, folder: Path, *, columns: Mapping[str, str] | None = None, view: View, progress: Progress = quiet
) -> Tuned:
    """Trains until the epochs are over, or goes on with the run in `folder`; writes model, scores and report.

    Raises UnmaskError for files, models and settings that do not fit; nothing already saved is lost.
    """
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
        job = job_of(run.task, columns)
        self.train = few(job.read(run.train), run.per_label, run.seed)
        self.dev = job.read(run.dev) if run.dev else None
        self.job = job.begin(self.train.examples)
        if self.dev:
            self.job.require(self.dev.examples, run.dev)
        self.net = _network(run, self.job)
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
        self._require_same_data(training)
        self._write_run(training)
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
        """What was understood of the data, what was doubted, what was cut."""
        for name, read, features in (("train", self.train, training), ("dev", self.dev, held_out)):
            if read is not None and features is not None:
                for line in (*read.understood, *read.warnings, *features.notes):
                    self.journal.say(f"{name}: {line}")
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
        prepared = (
            self.net.objective.prepare(b, 0) for b in token_budget(held_out.sequences, TOKENS, whole_units=True)
        )
        found = evaluate(self.net.encoder, self.net.objective, list(prepared))
        metrics = self.job.answer(self.net.encoder, self._member(), held_out).metrics
        score = next(iter(metrics.values()))
        score = score if math.isfinite(score) else UNDEFINED
        return [{"kind": "evaluation", "step": step, **found, "score": score, "metrics": _defined(metrics)}]

    def _member(self) -> Any:
        return next(iter(self.net.objective.members().values()))

    def _finish(self, held_out: Features | None) -> Mapping[str, float]:
        """The best checkpoint as a model folder, with what it reaches."""
        self._load_best()
        evaluation = Evaluation([])
        if held_out is not None:
            evaluation = self.job.answer(self.net.encoder, self._member(), held_out, progress=self.progress)
            tuned = self.job.tune(evaluation, held_out)
            if tuned is not self.job:  # with thresholds of its own it may say something else
                self.job = tuned
                evaluation = self.job.answer(self.net.encoder, self._member(), held_out)
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
        write_file(self.folder / "eval.json", json.dumps({"dev": _defined(evaluation.metrics)}, indent=1) + "\n")
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

    def _require_same_data(self, training: Features) -> None:
        """A resumed run goes on with the very records, labels and tokens it began with."""
        before = read_run(self.folder).get("records")
        if self.checkpoints.list() and before != _fingerprint(training, self.job):
            raise UnmaskError(
                "the training records, their labels or their tokens are not those this run began with",
                where=self.run.train,
                do="put the file (and --map) back as it was, or begin a new run in another folder",
            )

    def _write_run(self, training: Features) -> None:
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
            records=_fingerprint(training, self.job),
            result={"status": "running"},
        )

    def _end(self, status: str, why: str, metrics: Mapping[str, float] | None = None) -> None:
        update_run(self.folder, result={"status": status, "why": why, "metrics": _defined(metrics or {})})
        write_report(self.folder)


def _found(task: Task, held_out: Features, evaluation: Evaluation) -> dict[str, Any]:
    """What the report shows of the dev set."""
    metrics, lengths = _defined(evaluation.metrics), by_length(task, held_out, evaluation)
    return {"records": len(evaluation.predictions), "metrics": metrics, "lengths": lengths, **evaluation.detail}


def _defined(metrics: Mapping[str, float]) -> dict[str, float]:
    """What JSON can hold: a metric that is undefined on these records is left out."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _fingerprint(training: Features, job: Job) -> str:
    """SHA-256 of what is learned from: tokens, labels and their names."""
    sequences = training.sequences
    found = hashlib.sha256(repr(getattr(job.task, "labels", ())).encode())
    labels = (array for part in sequences.labels.values() for array in (part.starts, part.place_M, part.value_M))
    for array in (sequences.ids_T, sequences.starts, *labels):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _plain_job(job: Job) -> dict[str, Any]:
    """What a reader of the folder needs besides the weights."""
    return {"task": settings.plain(job.task), **job.learned()}


def _network(run: FineTuning, job: Job) -> _Net:
    """The model's encoder with a new head, or the head that the model already has for these very labels."""
    layout = read_sentence_layout(Path(run.model))
    loaded = load_model(layout.model_folder)
    if isinstance(job.task, Contrast):
        _require_same_pooling(job.task, layout, run.model)
    kind = job.task.kind
    config, shape = learning(loaded.config, loaded.head_shape(kind), run.dropout, kind)
    encoder = Encoder(config)
    encoder.load_state_dict(loaded.encoder)
    member = job.objective(config, shape)
    objective = Joint({kind: member})
    generator = torch.Generator().manual_seed(run.seed)
    initialise(objective, config, generator)
    _begin_head(member, loaded, job)
    freeze(encoder, run.frozen_layers)
    add_adapters(encoder, run.lora_rank, run.lora_alpha, run.frozen_layers, generator)
    limit = min(run.max_length, layout.max_length or run.max_length, config.max_position_embeddings)
    texts = AlignedEncoder(fitting_tokenizer(layout.model_folder, config), limit, lowercase=layout.lowercase)
    return _Net(
        config,
        encoder,
        objective,
        texts,
        replace(loaded, tokenizer_folder=layout.model_folder),
        layout.lowercase,
        run.frozen_layers,
        run.lora_rank > 0,
    )


def _require_same_pooling(task: Contrast, layout: SentenceLayout, where: str) -> None:
    """A folder made for vectors goes on as it pools: the other way would begin it anew without a word."""
    own = MODES[task.pooling]
    if (Path(where) / MODULES).is_file() and layout.pooling != (own,):
        known: dict[str, str] = {mode: name for name, mode in MODES.items()}
        names = " and ".join(known.get(mode, mode) for mode in layout.pooling)
        raise UnmaskError(
            f"the model pools by {names}, but task.pooling is {task.pooling}",
            where=where,
            do=f"use --set task.pooling={names}, or a copy of the folder without {MODULES}",
        )


def _begin_head(objective: Objective, loaded: LoadedModel, job: Job) -> None:
    """A head that the folder has for these very labels goes on; otherwise what stands before a head's outputs begins it."""
    kind, labels = job.task.kind, getattr(job.task, "labels", None)
    there = loaded.heads.get(head_kind(kind), {})
    own = {name.removeprefix("head."): tensor.shape for name, tensor in objective.state_dict().items()}
    if {name: tensor.shape for name, tensor in there.items()} != own:
        labels = ()  # those of no folder: other outputs need a new head
    restore_head(objective, loaded, kind, labels)


def finish_folder(task: Task, net: _Net, folder: Path) -> None:
    """What other libraries need beside the model folder: sentence-transformers' files around an encoder for vectors."""
    if isinstance(task, Contrast):
        layout = layout_of(task, folder, net.texts.max_length, lowercase=net.lowercase)
        write_sentence_layout(layout, net.config.hidden_size)
