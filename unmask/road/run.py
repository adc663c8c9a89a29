"""A run from its settings to a model folder, phase after phase, begun or resumed."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from unmask import settings
from unmask.batch import PackedBatch
from unmask.config import MaskedTokens, NextTokens, ReplacedTokens, RunConfig
from unmask.errors import CannotWriteError, UnmaskError
from unmask.files import remove_leftovers
from unmask.loader import Batches
from unmask.measure.fill import samples
from unmask.measure.heldout import evaluate, held_out_batches, unigram_entropy
from unmask.nn.cost import count_parameters
from unmask.progress import Progress, quiet
from unmask.road.finish import end, evaluation_at, write_model
from unmask.road.folder import read_settings, require_same_corpus
from unmask.road.model import Model, build, fit_to_corpus
from unmask.road.phases import batches_of, phases_of
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.train.checkpoint import Checkpoints
from unmask.train.journal import Journal, View, update_run
from unmask.train.lock import lock_run
from unmask.train.loop import Outcome, Part, fit
from unmask.train.machine import choose_device, describe, keep_freed_memory, set_threads
from unmask.train.plan import known_steps
from unmask.train.signals import StopRequest

HELD_OUT_SEED = 7_919  # held-out masks do not depend on the run's seed: runs that differ in it can be compared


def pretrain(run: RunConfig, folder: Path, *, view: View, progress: Progress = quiet) -> Outcome:
    """Runs `run` in a new `folder`; leaves checkpoints, metrics, report.html and model/ there."""
    run = fit_to_corpus(run)
    if (folder / "run.json").exists():
        raise CannotWriteError(
            "this folder already holds a run",
            where=str(folder),
            do="go on with it by --resume, or choose another folder",
        )
    taken = (
        [path.name for path in folder.iterdir() if not path.name.startswith((".", "run.lock"))]
        if folder.is_dir()
        else []
    )
    if taken:
        raise CannotWriteError(
            f"this folder is not empty ({min(taken)})",
            where=str(folder),
            do="choose a new or an empty folder for the run",
        )
    with lock_run(folder):
        return _go(run, folder, view, progress)


def resume(folder: Path, *, view: View, progress: Progress = quiet) -> Outcome:
    """Goes on with the run in `folder` from its newest whole checkpoint (from the beginning when it has none yet)."""
    run = read_settings(folder)  # before anything is made in a folder that holds no run
    with lock_run(folder):
        require_same_corpus(folder, Corpus.open(run.corpus, "train", verify=False), everything=True)
        return _go(run, folder, view, progress)


@dataclass(frozen=True)
class _Job:
    """What all phases of a run share."""

    parts: tuple[RunConfig, ...]
    folder: Path
    train: Corpus
    heldout: Corpus

    def checkpoints(self, part: RunConfig) -> Checkpoints:
        return Checkpoints(self.folder / "steps", keep_last=part.keeping.keep_last, keep_best=part.keeping.keep_best)

    def phase_reached(self) -> int:
        """The phase of the newest whole checkpoint."""
        if len(self.parts) == 1:
            return 0
        newest, _ = self.checkpoints(self.parts[0]).newest()
        if newest is None:
            return 0
        state = json.loads((newest.folder / "state.json").read_text(encoding="utf-8"))
        return int(state["began"]["phase"])

    def part(self, number: int) -> Part:
        later = self.parts[number + 1 :]
        steps = sum(known_steps(p.until, p.batch.tokens * p.batch.accumulate) for p in later)
        return Part(number, len(self.parts), steps)


def _go(run: RunConfig, folder: Path, view: View, progress: Progress) -> Outcome:
    for place in (folder, folder / "steps"):
        remove_leftovers(place, alone=True)  # of a run that was killed; the lock says that nobody else writes here
    set_threads(run.machine)
    keep_freed_memory()
    train = Corpus.open(run.corpus, "train", progress=progress)
    heldout = Corpus.open(run.corpus, "heldout", progress=progress)
    job = _Job(phases_of(run), folder, train, heldout)
    first = job.phase_reached()
    new = not job.checkpoints(job.parts[first]).list()
    model = build(job.parts[first], train.vocabulary, start=new)
    model.know_words(train)
    if not run.start_from:
        model.know_frequencies(train)
    _begin(run, job, model)
    journal = Journal(folder, view=view, origin=train.origin)
    for note in (*model.notes, *_doubts(run, train)):
        journal.say(note)
    with StopRequest() as stop:
        try:
            outcome, model = _through_phases(job, first, model, journal, stop)
        except BaseException as error:
            with suppress(UnmaskError, OSError):  # the disk may be what failed; the first error is the one to tell
                end(folder, status="failed", why=str(error).splitlines()[0] if str(error) else type(error).__name__)
            raise
        finally:
            journal.close()
        if not outcome.finished:
            why = f"{stop.signal.name if stop.signal else 'asked'} after step {outcome.step:,}"
            end(folder, status="stopped", why=why)
            return outcome
        write_model(run, job.parts[-1], folder / "model", model, train, evaluation_at(folder, outcome.step))
        end(folder, status="finished")
    return outcome


def _through_phases(job: _Job, first: int, model: Model, journal: Journal, stop: StopRequest) -> tuple[Outcome, Model]:
    """Phase after phase from number `first` on; each takes over from the checkpoint that the one before it leaves."""
    tokenizer = Tokenizer.load(job.train.tokenizer_folder)
    for number, part in enumerate(job.parts[first:], first):
        if number > first:
            model = build(part, job.train.vocabulary, start=False)
            model.know_words(job.train)
        batches = _batches(part, job.train, model, part.seed, total=batches_of(part))
        held_out = held_out_batches(_batches(part, job.heldout, model, HELD_OUT_SEED), part.keeping.evaluation_tokens)
        outcome = fit(
            part, model.encoder, model.objective, batches, journal, job.checkpoints(part),
            evaluate=partial(_measure, model, held_out, tokenizer), flops=model.training_flops, stop=stop,
            part=job.part(number),
        )  # fmt: skip
        asked = stop.signal is not None and number < len(job.parts) - 1
        if asked or not outcome.finished:
            return replace(outcome, finished=False), model
    return outcome, model


def _batches(run: RunConfig, corpus: Corpus, model: Model, seed: int, total: int = 0) -> Batches:
    """Without a `total` the mask rate is what it is at the beginning: held-out losses stay comparable over a run."""
    return Batches(corpus, run.examples, model.vocabulary, model.objective.prepare, seed, run.batch.tokens, total=total)


def _measure(model: Model, held_out: list[PackedBatch], tokenizer: Tokenizer, step: int) -> Sequence[dict[str, Any]]:
    """The records of one evaluation."""
    found = evaluate(model.encoder, model.objective, held_out)
    shown = samples(model.encoder, model.objective, tokenizer, held_out[0])
    return [{"kind": "evaluation", "step": step, **found}, *({**record, "step": step} for record in shown)]


def _doubts(run: RunConfig, corpus: Corpus) -> list[str]:
    """What the run asks for and its corpus can't give."""
    goals = [goal.masking if isinstance(goal, ReplacedTokens) else goal for goal in run.objectives]
    in_words = any(isinstance(goal, MaskedTokens) and goal.unit != "token" for goal in goals)
    chinese = corpus.about["report"]["text"]["hanzi_share"] > 0.2
    if in_words and chinese and corpus.about["options"]["words"]["segmenter"] == "none":
        return [
            "The corpus knows no Chinese words: masking whole words takes each hanzi for one. Build it with --segmenter jieba."
        ]
    return []


def _begin(run: RunConfig, job: _Job, model: Model) -> None:
    """Writes what the run is; a resumed run keeps its plan and notes where it goes on."""
    update_run(
        job.folder,
        run=settings.plain(run),
        versions={name: importlib.metadata.version(name) for name in ("unmask", "torch", "tokenizers", "numpy")}
        | {"python": platform.python_version()},
        machine=describe(choose_device(run.machine)),
        model={"parameters": count_parameters(model.encoder, model.objective)},
        corpus={name: value for name, value in job.train.about.items() if name != "shards"}
        | {"shards_sha256": job.train.fingerprint},
        result={"status": "running", "unigram_entropy": _frequency_level(run, job.heldout)},
    )


def _frequency_level(run: RunConfig, heldout: Corpus) -> float | None:
    """What guessing by word frequency reaches, for runs with a loss to compare it with: one over the text's own tokens."""
    if not any(isinstance(goal, MaskedTokens | ReplacedTokens | NextTokens) for goal in run.objectives):
        return None
    return unigram_entropy(heldout.token_counts(), frozenset(heldout.vocabulary.special_ids))
