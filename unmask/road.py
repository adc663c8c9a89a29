"""The pre-training job from its settings to a model folder: opens the corpus, builds the network, trains, exports, reports."""

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

import torch

from unmask import settings
from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, MaskedTokens, Minutes, RunConfig, Steps, Tokens
from unmask.errors import CannotWriteError, UnmaskError
from unmask.files import remove_leftovers
from unmask.hub.files import load_model, restore_into, save_weights
from unmask.loader import Batches
from unmask.measure.fill import samples
from unmask.measure.heldout import evaluate, held_out_batches, unigram_entropy
from unmask.model_card import model_card
from unmask.nn.cost import count_parameters, estimated_flops, training_bytes, training_flops
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.base import Joint
from unmask.objectives.build import build_objective
from unmask.objectives.masked import MaskedTokenObjective
from unmask.progress import Progress, quiet
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import Vocabulary
from unmask.train.checkpoint import Checkpoint, Checkpoints
from unmask.train.journal import Journal, View, read_run, update_run
from unmask.train.lock import lock_run
from unmask.train.loop import Outcome, fit
from unmask.train.machine import choose_device, choose_precision, describe, matmul_peak, set_threads
from unmask.train.report.page import write_report
from unmask.train.signals import StopRequest

HELD_OUT_SEED = 7_919  # held-out masks do not depend on the run's seed: runs that differ in it can be compared


@dataclass(frozen=True)
class Model:
    """What a run trains, and the vocabulary its numbers stand for."""

    encoder: Encoder
    objective: Joint
    vocabulary: Vocabulary
    notes: tuple[str, ...] = ()  # what of the model it starts from was not there, or not used


def fit_to_corpus(run: RunConfig, *, progress: Progress = quiet) -> RunConfig:
    """The run with the encoder that its corpus, or the model it starts from, asks for. Raises UnmaskError where they disagree."""
    if not run.corpus:
        raise UnmaskError("the run names no corpus", do="give --corpus FOLDER (made by `unmask corpus build`)")
    corpus = Corpus.open(run.corpus, "train", verify=False)
    vocabulary = corpus.vocabulary
    if run.start_from:
        return replace(run, encoder=_model_for(corpus, Path(run.start_from)))
    return replace(run, encoder=replace(run.encoder, vocab_size=vocabulary.size, pad_token_id=vocabulary.pad_token_id))


def _model_for(corpus: Corpus, folder: Path) -> EncoderConfig:
    """The encoder of the model to start from; refuses a model whose ids mean other tokens than the corpus'."""
    loaded = load_model(folder)
    if loaded.tokenizer_folder is not None:
        same = Tokenizer.load(loaded.tokenizer_folder).pieces() == Tokenizer.load(corpus.tokenizer_folder).pieces()
    else:
        same = loaded.config.vocab_size >= corpus.vocabulary.size
    if not same:
        raise UnmaskError(
            f"the corpus was made with another tokenizer ({corpus.vocabulary.size:,} tokens) than the model to start from",
            where=str(folder),
            do=f"build the corpus with the model's: --tokenizer {folder}; to add tokens, use `unmask tokenizer extend --model`",
        )
    return loaded.config


def estimate(run: RunConfig) -> dict[str, Any]:
    """What a run will cost, before anything is built: parameters, arithmetic, memory and time on this machine."""
    set_threads(run.machine)
    device = choose_device(run.machine)
    peak = matmul_peak(device, choose_precision(run.machine, device))
    rate = next((goal.mask_rate for goal in run.objectives if isinstance(goal, MaskedTokens)), 0.0)
    tokens = run.batch.tokens * run.batch.accumulate
    scored = round(tokens * rate)
    flops = estimated_flops(run.encoder, tokens, run.examples.max_length, scored)
    seconds = flops / (0.5 * peak)  # half of the peak is what small and middle-sized models reach
    match run.until:
        case Steps(steps=steps):
            pass
        case Tokens(tokens=wanted):
            steps = max(1, wanted // tokens)
        case Minutes(minutes=minutes):
            steps = max(1, round(60 * minutes / seconds))
    return {
        "parameters": count_parameters(run.encoder, **{goal.kind: True for goal in run.objectives}),
        "tokens_per_step": tokens,
        "flops_per_step": flops,
        "bytes": training_bytes(run.encoder, run.batch.tokens, run.examples.max_length, round(run.batch.tokens * rate)),
        "steps": steps,
        "tokens": steps * tokens,
        "seconds": steps * seconds,
        "peak_flops": peak,
        "device": device.type,
    }


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
        _require_same_corpus(folder, Corpus.open(run.corpus, "train", verify=False), everything=True)
        return _go(run, folder, view, progress)


def _require_same_corpus(folder: Path, corpus: Corpus, *, everything: bool = False) -> None:
    """Refuses a corpus that was rebuilt since the run began, with another tokenizer or, for `everything`, in any way."""
    then = read_run(folder).get("corpus", {})
    if not then:
        return
    changed = "its tokenizer changed" if then["tokenizer"] != corpus.about["tokenizer"] else ""
    if everything and not changed and then["shards_sha256"] != corpus.fingerprint:
        changed = "its shards changed"
    if changed:
        raise UnmaskError(
            f"the corpus is not the one this run began with: {changed}",
            where=str(corpus.folder),
            do="put the old corpus back, or begin a new run with --start-from",
        )


def read_settings(folder: Path) -> RunConfig:
    """The settings of the run in `folder`."""
    try:
        data = read_run(folder)
    except (OSError, ValueError) as error:
        raise UnmaskError(
            f"run.json can't be read: {error}", where=str(folder), do="restore it, or begin a new run"
        ) from None
    if "run" not in data:
        raise UnmaskError(
            "there is no run in this folder", where=str(folder), do="check the path; a run's folder holds run.json"
        )
    return settings.parse(RunConfig, data["run"], where=str(folder / "run.json"))


def build(run: RunConfig, vocabulary: Vocabulary, *, start: bool = True) -> Model:
    """The network of a run with its first weights: drawn from the seed, or taken from the model it starts from.

    Without `start` that model is not looked at: the weights of a checkpoint will replace these.
    """
    trained = replace(run.encoder, hidden_dropout_prob=run.dropout, attention_probs_dropout_prob=run.dropout)
    encoder, objective = Encoder(trained), build_objective(run.encoder, run.objectives, vocabulary)
    draw = torch.Generator().manual_seed(run.seed)
    for module in (encoder, objective):
        initialise(module, run.encoder.initializer_range, draw)
    notes = _start_from(run, encoder, objective) if run.start_from and start else ()
    return Model(encoder, objective, vocabulary, notes)


def _doubts(run: RunConfig, corpus: Corpus) -> list[str]:
    """What the run asks for and its corpus can't give."""
    whole_word = any(isinstance(goal, MaskedTokens) and goal.whole_word for goal in run.objectives)
    chinese = corpus.about["report"]["text"]["hanzi_share"] > 0.2
    if whole_word and chinese and corpus.about["options"]["words"]["segmenter"] == "none":
        return [
            "The corpus knows no Chinese words: whole-word masking takes each hanzi for one. Build it with --segmenter jieba."
        ]
    return []


def _know_frequencies(objective: Joint, corpus: Corpus) -> None:
    """Tells new MLM heads that want it how often each token occurs in the corpus."""
    for part in objective.parts.values():
        if isinstance(part, MaskedTokenObjective) and part.goal.frequency_bias:
            part.know_frequencies(corpus.token_counts())


def _start_from(run: RunConfig, encoder: Encoder, objective: Joint) -> tuple[str, ...]:
    """Takes over a folder's weights; names the tensors it lacks and those that a pre-training model has no use for."""
    loaded = load_model(Path(run.start_from))
    new = restore_into(encoder, objective, loaded)
    found = (("begins anew", new), ("is not used", loaded.unexpected))
    return tuple(f"{run.start_from}: {', '.join(names)} {what}" for what, names in found if names)


def _go(run: RunConfig, folder: Path, view: View, progress: Progress) -> Outcome:
    for place in (folder, folder / "steps"):
        remove_leftovers(place, alone=True)  # of a run that was killed; the lock says that nobody else writes here
    set_threads(run.machine)
    train = Corpus.open(run.corpus, "train", progress=progress)
    heldout = Corpus.open(run.corpus, "heldout", progress=progress)
    checkpoints = Checkpoints(folder / "steps", keep_last=run.keeping.keep_last, keep_best=run.keeping.keep_best)
    model = build(run, train.vocabulary, start=not checkpoints.list())
    if not run.start_from:
        _know_frequencies(model.objective, train)
    batches = _batches(run, train, model, run.seed)
    held_out = held_out_batches(_batches(run, heldout, model, HELD_OUT_SEED), run.keeping.evaluation_tokens)
    _begin(run, folder, train, heldout)
    journal = Journal(folder, view=view, origin=train.origin)
    watch = partial(_measure, model, held_out, Tokenizer.load(train.tokenizer_folder))
    for note in (*model.notes, *_doubts(run, train)):
        journal.say(note)
    with StopRequest() as stop:
        try:
            outcome = fit(
                run, model.encoder, model.objective, batches, journal, checkpoints,
                evaluate=watch, flops=partial(_flops, model), stop=stop,
            )  # fmt: skip
        except BaseException as error:
            with suppress(UnmaskError, OSError):  # the disk may be what failed; the first error is the one to tell
                _end(folder, status="failed", why=str(error).splitlines()[0] if str(error) else type(error).__name__)
            raise
        finally:
            journal.close()
        if not outcome.finished:
            _end(
                folder,
                status="stopped",
                why=f"{stop.signal.name if stop.signal else 'asked'} after step {outcome.step:,}",
            )
            return outcome
        _export(run, folder / "model", model, train, _evaluation_at(folder, outcome.step))
        _end(folder, status="finished")
    return outcome


def _batches(run: RunConfig, corpus: Corpus, model: Model, seed: int) -> Batches:
    return Batches(corpus, run.examples, model.vocabulary, model.objective.prepare, seed, run.batch.tokens)


def _measure(model: Model, held_out: list[PackedBatch], tokenizer: Tokenizer, step: int) -> Sequence[dict[str, Any]]:
    """The records of one evaluation."""
    found = evaluate(model.encoder, model.objective, held_out)
    shown = samples(model.encoder, model.objective, tokenizer, held_out[0])
    return [{"kind": "evaluation", "step": step, **found}, *({**record, "step": step} for record in shown)]


def _flops(model: Model, batch: PackedBatch) -> float:
    return training_flops(model.encoder.config, batch, model.objective.vocabulary_rows(batch))


def _begin(run: RunConfig, folder: Path, train: Corpus, heldout: Corpus) -> None:
    """Writes what the run is; a resumed run keeps its plan and notes where it goes on."""
    entropy = unigram_entropy(heldout.token_counts(), frozenset(train.vocabulary.special_ids))
    update_run(
        folder,
        run=settings.plain(run),
        versions={name: importlib.metadata.version(name) for name in ("unmask", "torch", "tokenizers", "numpy")}
        | {"python": platform.python_version()},
        machine=describe(choose_device(run.machine)),
        model={"parameters": count_parameters(run.encoder, **{goal.kind: True for goal in run.objectives})},
        corpus={name: value for name, value in train.about.items() if name != "shards"}
        | {"shards_sha256": train.fingerprint},
        result={"status": "running", "unigram_entropy": entropy},
    )


def _end(folder: Path, *, status: str, why: str = "") -> None:
    """Writes how the run ended, with the first and the last evaluation, and the report."""
    evaluations = [r for r in _records(folder) if r.get("kind") == "evaluation"]
    found = {"first": evaluations[0], "last": evaluations[-1]} if evaluations else {}
    kept = read_run(folder).get("result", {})
    update_run(folder, result={"unigram_entropy": kept.get("unigram_entropy"), "status": status, "why": why, **found})
    write_report(folder)


def _records(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [record for line in lines if (record := _record(line))]


def _record(line: bytes) -> dict[str, Any]:
    """One record; empty for a line that a full disk cut short."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return found


def export(folder: Path, out: Path, which: str = "last") -> int:
    """Writes the model folder `out` from a checkpoint of the run in `folder`: "last", "best" (held-out loss) or a step.

    Returns the checkpoint's step. An existing model folder is replaced.
    """
    run = read_settings(folder)
    corpus = Corpus.open(run.corpus, "train", verify=False)
    _require_same_corpus(folder, corpus)
    checkpoints = Checkpoints(folder / "steps")
    rows = {row["step"]: str(row["kind"]) for row in checkpoints.list()}
    fitting = [step for step, kind in rows.items() if which in kind.split(", ") or which == str(step)]
    if not fitting:
        there = ", ".join(f"{step} ({kind})" for step, kind in rows.items()) or "none"
        raise UnmaskError(
            f"the run has no checkpoint {which!r}",
            where=str(folder),
            do=f"choose last, best or a step; there are: {there}",
        )
    model = build(run, corpus.vocabulary, start=False)
    tensors, _ = checkpoints.load(Checkpoint(fitting[0], checkpoints.folder / f"{fitting[0]:010d}"))
    model.encoder.load_state_dict(tensors["encoder"])
    model.objective.load_state_dict(tensors["objective"])
    _export(run, out, model, corpus, _evaluation_at(folder, fitting[0]))
    return fitting[0]


def _evaluation_at(folder: Path, step: int) -> dict[str, Any] | None:
    """The newest evaluation up to a step."""
    return next((r for r in reversed(_records(folder)) if r.get("kind") == "evaluation" and r["step"] <= step), None)


def _export(run: RunConfig, out: Path, model: Model, corpus: Corpus, evaluation: dict[str, Any] | None) -> None:
    """The model as it will be used: with the published dropout, which a pre-training run does without."""
    heads = {kind: dict(part.get_submodule("head").state_dict()) for kind, part in model.objective.parts.items()}
    about = {"run": settings.plain(run), "corpus": corpus.about.get("splits"), "heldout": evaluation}
    save_weights(
        out,
        run.encoder,
        dict(model.encoder.state_dict()),
        heads,
        tokenizer_folder=corpus.tokenizer_folder,
        about=about,
        card=model_card(run, corpus.about, evaluation),
    )
