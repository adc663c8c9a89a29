"""The end of a run: its figures, its report, and the model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unmask import settings
from unmask.config import RunConfig
from unmask.errors import UnmaskError
from unmask.hub.configs import choose_family
from unmask.hub.families.neobert import NEOBERT
from unmask.hub.families.own import OWN
from unmask.hub.files import save_weights
from unmask.hub.weights import gather
from unmask.model_card import model_card
from unmask.nn.cost import count_parameters
from unmask.road.folder import read_settings, require_same_corpus
from unmask.road.model import Model, build
from unmask.road.phases import phases_of
from unmask.text.shards import Corpus
from unmask.train.checkpoint import Checkpoint, Checkpoints
from unmask.train.journal import read_run, update_run
from unmask.train.report.page import write_report
from unmask.train.state import State

OURS_ALONE = (OWN.model_type, NEOBERT.model_type)  # no class of transformers loads these


def end(folder: Path, *, status: str, why: str = "") -> None:
    """Writes how the run ended, with the first and the last evaluation of its last phase, and the report."""
    evaluations: list[dict[str, Any]] = []
    for record in _records(folder):
        if record.get("kind") == "phase":
            evaluations = []  # phases measure different things
        if record.get("kind") == "evaluation":
            evaluations.append(record)
    found = {"first": evaluations[0], "last": evaluations[-1]} if evaluations else {}
    kept = read_run(folder).get("result", {})
    update_run(folder, result={"unigram_entropy": kept.get("unigram_entropy"), "status": status, "why": why, **found})
    write_report(folder)


def export(folder: Path, out: Path, which: str = "last") -> int:
    """Writes the model folder `out` from a checkpoint of the run in `folder`: "last", "best" (held-out loss) or a step.

    Returns the checkpoint's step. An existing model folder is replaced.
    """
    run = read_settings(folder)
    corpus = Corpus.open(run.corpus, "train", verify=False)
    require_same_corpus(folder, corpus)
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
    tensors, state = checkpoints.load(Checkpoint(fitting[0], checkpoints.folder / f"{fitting[0]:010d}"))
    part = phases_of(run)[State.of(state).began.phase]
    model = build(part, corpus.vocabulary, start=False)
    model.encoder.load_state_dict(tensors["encoder"])
    model.objective.load_state_dict(tensors["objective"])
    write_model(run, part, out, model, corpus, evaluation_at(folder, fitting[0]))
    return fitting[0]


def evaluation_at(folder: Path, step: int) -> dict[str, Any] | None:
    """The newest evaluation when the checkpoint of this step was written."""
    newest = None
    for record in _records(folder):
        if record.get("kind") == "evaluation":
            newest = record
        if record.get("kind") == "checkpoint" and record.get("step") == step:
            break
    return newest


def write_model(
    run: RunConfig, part: RunConfig, out: Path, model: Model, corpus: Corpus, evaluation: dict[str, Any] | None
) -> None:
    """The model of `run` as it will be used: as the phase `part` left it, but with the published dropout."""
    weights = gather(model.encoder, model.objective, part.encoder)
    about = {"run": settings.plain(run), "corpus": corpus.about.get("splits"), "heldout": evaluation}
    sizes = count_parameters(model.encoder), count_parameters(model.encoder, model.objective)
    heads = {kind: list(state) for kind, state in weights.heads.items()}
    family = choose_family(weights.config, heads, weights.decoder_layers)
    held = family.kinds(heads, weights.config, weights.decoder_layers)
    architecture = "" if family.model_type in OURS_ALONE else family.classes[held]
    card = model_card(part, corpus.about, evaluation, *sizes, architecture=architecture, held=held)
    save_weights(out, weights, tokenizer_folder=corpus.tokenizer_folder, about=about, card=card)


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
