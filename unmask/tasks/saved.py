"""A fine-tuned model folder, ours or Hugging Face's, ready to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask import settings
from unmask.config import Answering, Classification, Recurrent, Regression, Tagging, Task
from unmask.config.tasks import Repair
from unmask.errors import UnmaskError
from unmask.hub.files import ORIGIN, LoadedModel, load_model
from unmask.hub.restore import restore_head
from unmask.hub.sentence_layout import read_sentence_layout
from unmask.inference.loaded import fitting_tokenizer
from unmask.labelled.schemes import scheme_of
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Objective
from unmask.progress import Progress, quiet
from unmask.tasks.job import Evaluation, Features, Job
from unmask.tasks.jobs import TagJob, job_of
from unmask.text.aligned import AlignedEncoder
from unmask.text.running_text import Parting

KINDS = ("classify", "tag", "answer")  # heads of transformers' classes
UNNAMED = "LABEL_0"  # what transformers calls an output without a name


@dataclass(frozen=True)
class TaskModel:
    """A model and the task it was trained for. Nothing that a call does changes it."""

    job: Job
    encoder: Encoder
    objective: Objective
    texts: AlignedEncoder

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        columns: dict[str, str] | None = None,
        max_length: int = 0,
        repair: Repair | None = None,
    ) -> TaskModel:
        """From a folder of `unmask finetune`, or one of transformers' ...ForSequenceClassification, ...ForTokenClassification
        or ...ForQuestionAnswering. `repair`: of broken tags, None as in training. UnmaskError for a folder without such a
        head, and for a `repair` of what is no tag."""
        loaded = load_model(folder)
        kind = next((kind for kind in KINDS if kind in loaded.heads), None)
        if kind is None and "job" not in loaded.about:
            raise UnmaskError(
                "this model was not fine-tuned for a task: it has no such head",
                where=str(folder),
                do="train one with `unmask finetune`",
            )
        job = _job(loaded, kind, columns or {}, folder)
        job = job if repair is None else _repairing(job, repair, folder)
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
        names = _names(saved.task)
        if names and loaded.labels and names != loaded.labels:
            raise UnmaskError(
                f"config.json names the labels {list(loaded.labels)[:9]}, but {ORIGIN} {list(names)[:9]}",
                where=str(folder),
                do="make both say the same, in the order of the outputs",
            )
        return job_of(saved.task, columns).with_learned(settings.plain(saved))
    match kind:
        case "tag":
            return job_of(Tagging(labels=loaded.labels, scheme=scheme_of(loaded.labels)), columns)
        case "answer":
            return job_of(Answering(), columns)
        case _ if loaded.problem_type == "regression" or (len(loaded.labels) == 1 and loaded.problem_type is None):
            target = "" if loaded.labels == (UNNAMED,) else loaded.labels[0]
            return job_of(Regression(target=target), columns)
        case _:
            multi = loaded.problem_type == "multi_label_classification"
            return job_of(Classification(labels=loaded.labels, multi_label=multi), columns)


def _repairing(job: Job, repair: Repair, folder: Path) -> Job:
    """The job of a tagger that reads broken tags this way."""
    if not isinstance(job, TagJob):
        raise UnmaskError(
            "only tags can be broken, and this model gives none", where=str(folder), do="leave repair away"
        )
    return replace(job, task=replace(job.task, repair=repair))


def _names(task: Task) -> tuple[str, ...]:
    """Of the outputs, in order; () where they have none."""
    match task:
        case Classification() | Tagging():
            return task.labels
        case Regression(target=target) if target:
            return (target,)
        case _:
            return ()


@dataclass(frozen=True, kw_only=True)
class _Saved:
    """What `unmask.json` keeps of the task."""

    task: Task
    thresholds: tuple[float, ...] = ()
    threshold: float = 0.0
    parting: Parting = "runs"
    texts: int = 0


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
    whole_words = isinstance(loaded.config.layer, Recurrent)
    return AlignedEncoder(tokenizer, min(asked, limit), lowercase=lowercase, whole_words=whole_words)
