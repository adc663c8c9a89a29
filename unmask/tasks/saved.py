"""A fine-tuned model folder, ours or Hugging Face's, ready to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unmask import settings
from unmask.config import Answering, Classification, Regression, Tagging, Task
from unmask.errors import UnmaskError
from unmask.hub.files import ORIGIN, LoadedModel, load_model
from unmask.hub.restore import restore_head
from unmask.hub.sentence_layout import read_sentence_layout
from unmask.inference.loaded import fitting_tokenizer
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Objective
from unmask.progress import Progress, quiet
from unmask.tasks.job import Evaluation, Features, Job
from unmask.tasks.jobs import job_of
from unmask.text.aligned import AlignedEncoder

KINDS = ("classify", "tag", "answer")  # heads of transformers' classes


@dataclass(frozen=True)
class TaskModel:
    """A model and the task it was trained for. Nothing that a call does changes it."""

    job: Job
    encoder: Encoder
    objective: Objective
    texts: AlignedEncoder

    @classmethod
    def load(cls, folder: Path, *, columns: dict[str, str] | None = None, max_length: int = 0) -> TaskModel:
        """From a folder of `unmask finetune`, or one of transformers' ...ForSequenceClassification, ...ForTokenClassification
        or ...ForQuestionAnswering. UnmaskError for a folder without such a head."""
        loaded = load_model(folder)
        kind = next((kind for kind in KINDS if kind in loaded.heads), None)
        if kind is None and "job" not in loaded.about:
            raise UnmaskError(
                "this model was not fine-tuned for a task: it has no such head",
                where=str(folder),
                do="train one with `unmask finetune`",
            )
        job = _job(loaded, kind, columns or {}, folder)
        encoder = Encoder(loaded.config)
        encoder.load_state_dict(loaded.encoder)
        objective = job.objective(loaded.config, loaded.head_shape(job.task.kind))
        if missing := restore_head(objective, loaded, job.task.kind):
            raise UnmaskError(
                f"the folder's head for {job.task.kind} lacks {', '.join(missing[:3])}",
                where=str(folder),
                do="use a copy that is whole, or train the head with `unmask finetune`",
            )
        return cls(job, encoder.eval(), objective.eval(), _texts(loaded, max_length))

    def features(self, examples: Sequence[Any]) -> Features:
        """Records as the network takes them."""
        return self.job.features(examples, self.texts)

    def answer(self, features: Features, *, progress: Progress = quiet) -> Evaluation:
        """Answers in the order of the records, with metrics where the records know the truth."""
        return self.job.answer(self.encoder, self.objective, features, progress=progress)


def _job(loaded: LoadedModel, kind: str | None, columns: dict[str, str], folder: Path) -> Job:
    if "job" in loaded.about:
        saved = settings.parse(_Saved, loaded.about["job"], where=str(folder / ORIGIN))
        names = getattr(saved.task, "labels", ())
        if names and loaded.labels and names != loaded.labels:
            raise UnmaskError(
                f"config.json names the labels {list(loaded.labels)[:9]}, but {ORIGIN} {list(names)[:9]}",
                where=str(folder),
                do="make both say the same, in the order of the outputs",
            )
        return job_of(saved.task, columns).with_learned({"thresholds": saved.thresholds, "threshold": saved.threshold})
    match kind:
        case "tag":
            return job_of(Tagging(labels=loaded.labels, scheme=_scheme(loaded.labels)), columns)
        case "answer":
            return job_of(Answering(), columns)
        case _ if loaded.problem_type == "regression" or (len(loaded.labels) == 1 and loaded.problem_type is None):
            return job_of(Regression(), columns)
        case _:
            multi = loaded.problem_type == "multi_label_classification"
            return job_of(Classification(labels=loaded.labels, multi_label=multi), columns)


def _scheme(labels: tuple[str, ...]) -> Literal["bio", "bioes", "plain"]:
    """What the labels of a folder of others look like."""
    marks = {label[:2] for label in labels if label != "O"}
    if marks <= {"B-", "I-"}:
        return "bio"
    return "bioes" if marks <= {"B-", "I-", "E-", "S-"} else "plain"


@dataclass(frozen=True, kw_only=True)
class _Saved:
    """What `unmask.json` keeps of the task."""

    task: Task
    thresholds: tuple[float, ...] = ()
    threshold: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """How the run read texts."""

    max_length: int = 0
    lowercase: bool = False


def _texts(loaded: LoadedModel, max_length: int) -> AlignedEncoder:
    """Texts as they were read in training; where the folder does not say, as it reads them for vectors."""
    layout, limit = read_sentence_layout(loaded.folder), loaded.config.max_position_embeddings
    kept = settings.parse(_Texts, loaded.about.get("texts", {}), where=str(loaded.folder / ORIGIN))
    asked = max_length or kept.max_length or layout.max_length or limit
    lowercase = kept.lowercase if "texts" in loaded.about else layout.lowercase
    tokenizer = fitting_tokenizer(loaded.folder, loaded.config)
    return AlignedEncoder(tokenizer, min(asked, limit), lowercase=lowercase)
