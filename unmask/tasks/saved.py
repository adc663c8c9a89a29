"""A fine-tuned model folder, ours or Hugging Face's, ready to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unmask import settings
from unmask.config import Answering, Classification, Regression, Tagging, Task
from unmask.errors import UnmaskError
from unmask.hub.files import LoadedModel, load_model
from unmask.hub.restore import restore_head
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Objective
from unmask.progress import Progress, quiet
from unmask.tasks.job import Evaluation, Features, Job
from unmask.tasks.jobs import job_of
from unmask.text.aligned import AlignedEncoder
from unmask.text.tokenizer import Tokenizer

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
        saved = loaded.about.get("job")
        kind = next((kind for kind in KINDS if kind in loaded.heads), None)
        if kind is None and saved is None:
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
        run = loaded.about.get("run", {})
        asked = max_length or int(run.get("max_length", 0)) or loaded.config.max_position_embeddings
        limit = min(asked, loaded.config.max_position_embeddings)
        return cls(job, encoder.eval(), objective.eval(), AlignedEncoder(Tokenizer.load(folder), limit))

    def features(self, examples: Sequence[Any]) -> Features:
        """Records as the network takes them."""
        return self.job.features(examples, self.texts)

    def answer(self, features: Features, *, progress: Progress = quiet) -> Evaluation:
        """Answers in the order of the records, with metrics where the records know the truth."""
        return self.job.answer(self.encoder, self.objective, features, progress=progress)


def _job(loaded: LoadedModel, kind: str | None, columns: dict[str, str], folder: Path) -> Job:
    saved = loaded.about.get("job")
    if saved is not None:
        task = settings.parse(_Saved, {"task": saved["task"]}, where=str(folder / "unmask.json")).task
        return job_of(task, columns).with_learned(saved)
    match kind:
        case "tag":
            return job_of(Tagging(labels=loaded.labels, scheme=_scheme(loaded.labels)), columns)
        case "answer":
            return job_of(Answering(), columns)
        case _ if loaded.problem_type == "regression" or len(loaded.labels) == 1:
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
