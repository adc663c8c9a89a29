"""What the road of fine-tuning asks of a task: to read its data, to build its objective, to make features, to answer, to score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.hub.task_heads import TaskSettings
from unmask.labelled.records import Read
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint, Objective
from unmask.progress import Progress, quiet
from unmask.tasks.outputs import Outputs, Per, answers, judged
from unmask.text.aligned import AlignedEncoder
from unmask.text.sequences import Sequences


@dataclass(frozen=True)
class Features:
    """Records as a network takes them. `extra` is what the task needs to read its answers back."""

    examples: Sequence[Any]
    sequences: Sequences
    extra: Any = None
    notes: tuple[str, ...] = ()  # what was cut, in words


@dataclass(frozen=True)
class Evaluation:
    """Answers in the order of the records, and metrics, the primary one first; no metrics where no truth is known.

    `detail` is for the report, see train.report.answers.
    """

    predictions: list[Any]
    metrics: dict[str, float] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)


class Job:
    """One task of one run. What is learned from the data besides weights (labels, thresholds) is in it, as a value."""

    task: Any  # a config.Task, each job's own kind
    per: ClassVar[Per] = "sequence"  # what an output has a row for
    places: ClassVar[str] = ""  # the label whose places these are, of outputs for each place

    def read(self, source: str, *, asked: bool = False) -> Read[Any]:
        """The records of a file; with `asked` they need no truth."""
        raise AssertionError("every job reads its data")

    def begin(self, training: Read[Any], there: Sequence[str] = ()) -> Job:
        """Knows the labels of the training data, or what its numbers are called; where `there`, the labels that the model has
        a head for, are the same, in their order."""
        return self

    def require(self, examples: Sequence[Any], source: str) -> None:
        """UnmaskError for what the training data does not know."""

    def objective(self, config: EncoderConfig, shape: HeadShape) -> Objective:
        """What is trained, with new weights."""
        raise AssertionError("every job has an objective")

    def features(self, examples: Sequence[Any], encoder: AlignedEncoder) -> Features:
        """Records as the network takes them."""
        raise AssertionError("every job makes features")

    def decide(self, outputs: Outputs, objective: Objective, features: Features) -> Evaluation:
        """Answers by the network's outputs, and scores where the records know the truth."""
        raise AssertionError("every job answers")

    def outputs(
        self, encoder: Encoder, objective: Objective, features: Features, *, progress: Progress = quiet
    ) -> Outputs:
        """What `decide` decides by."""
        return answers(encoder, objective, features.sequences, self.per, places=self.places, progress=progress)

    def answer(
        self, encoder: Encoder, objective: Objective, features: Features, *, progress: Progress = quiet
    ) -> Evaluation:
        """`decide` by the outputs of a pass through the network."""
        return self.decide(self.outputs(encoder, objective, features, progress=progress), objective, features)

    def judge(self, encoder: Encoder, objective: Joint, features: Features) -> tuple[Evaluation, dict[str, Any]]:
        """The same with the figures of the loss (measure.heldout), of one pass; the records know the truth."""
        outputs, figures = judged(encoder, objective, features.sequences, self.per, places=self.places)
        (member,) = objective.members().values()
        return self.decide(outputs, member, features), figures

    def tune(self, evaluation: Evaluation, features: Features) -> Job:
        """Knows the thresholds that suit the dev set best."""
        return self

    def settings(self) -> TaskSettings:
        """What the folder's config.json says of the outputs."""
        return TaskSettings()

    def learned(self) -> dict[str, Any]:
        """What `unmask.json` keeps besides the task's settings, as plain data."""
        return {}

    def with_learned(self, kept: Mapping[str, Any]) -> Job:
        """The job as a folder's `unmask.json` knows it."""
        return self
