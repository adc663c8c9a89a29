"""The job of each task: see `job.Job` for what each of its methods is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from unmask.config import Answering, Classification, Contrast, EncoderConfig, Ranking, Regression, Tagging, Task
from unmask.config.tasks import HeadShape
from unmask.errors import UnmaskError
from unmask.hub.task_heads import ProblemType, TaskSettings
from unmask.labelled.labels import in_order_of, label_set, require_known, tag_set
from unmask.labelled.questions import read_questions
from unmask.labelled.ranked import read_asked, read_ranked
from unmask.labelled.records import QuestionExample, RankedExample, Read, TaggedExample, TextExample, counted
from unmask.labelled.tagged import read_tagged
from unmask.labelled.texts import Kind, read_texts
from unmask.measure.squad import Language
from unmask.objectives.answer import AnswerObjective
from unmask.objectives.base import Objective
from unmask.objectives.classify import ClassifyObjective
from unmask.objectives.contrast import ContrastObjective
from unmask.objectives.rank import RankObjective
from unmask.objectives.tag import TagObjective
from unmask.tasks import answer, classify, contrast, rank, tag
from unmask.tasks.job import Evaluation, Features, Job
from unmask.tasks.outputs import Outputs, Per
from unmask.text.aligned import AlignedEncoder
from unmask.text.running_text import Parting, parting_of

HAN = 0.2  # of the characters of a set's contexts: from there on its answers are scored as Chinese ones


def job_of(task: Task, columns: Mapping[str, str] | None = None) -> Job:
    """The job of a task's settings; `columns` name the file's columns where they are not the usual ones."""
    named = dict(columns or {})
    match task:
        case Classification() | Regression():
            return ClassifyJob(task, named)
        case Tagging():
            return TagJob(task, named)
        case Answering():
            return AnswerJob(task, named)
        case Contrast():
            return ContrastJob(task, named)
        case Ranking():
            return RankJob(task, named)


def _cut(count: int, total: int, encoder: AlignedEncoder) -> tuple[str, ...]:
    return (f"{count:,} of {total:,} are longer than {encoder.max_length} tokens and were cut",) if count else ()


@dataclass(frozen=True)
class ClassifyJob(Job):
    """Texts and pairs to labels or numbers."""

    task: Classification | Regression
    columns: dict[str, str] = field(default_factory=dict)
    weights: tuple[float, ...] | None = None
    thresholds: tuple[float, ...] | None = None
    texts: int = 0  # of a record in training: 1, or 2, a pair; 0: nobody knows

    def read(self, source: str, *, asked: bool = False) -> Read[TextExample]:
        many = isinstance(self.task, Classification) and self.task.multi_label
        kind: Kind = "number" if isinstance(self.task, Regression) else "labels" if many else "label"
        read = read_texts(source, columns=self.columns, kind=kind, asked=asked)
        if self.texts and self.texts != classify.texts_of(read.examples[0]):
            raise _other_texts(self.texts, source)
        return read

    def begin(self, training: Read[TextExample], there: Sequence[str] = ()) -> ClassifyJob:
        return replace(self._begin(training, there), texts=classify.texts_of(training.examples[0]))

    def _begin(self, training: Read[TextExample], there: Sequence[str]) -> ClassifyJob:
        if isinstance(self.task, Regression):
            return replace(self, task=replace(self.task, target=self.task.target or training.target))
        examples = training.examples
        if self.task.labels:
            self.require(examples, examples[0].place.file)
        task = self.task if self.task.labels else replace(self.task, labels=in_order_of(there, label_set(examples)))
        weights = tuple(classify.class_weights(examples, task)) if task.class_weights == "balanced" else None
        return replace(self, task=task, weights=weights)

    def require(self, examples: Sequence[TextExample], source: str) -> None:
        if isinstance(self.task, Classification):
            require_known(examples, self.task.labels, source)

    def objective(self, config: EncoderConfig, shape: HeadShape) -> Objective:
        return ClassifyObjective(config, self.task, shape, self.weights)

    def features(self, examples: Sequence[TextExample], encoder: AlignedEncoder) -> Features:
        sequences, cut = classify.sequences(examples, encoder, self.task)
        return Features(examples, sequences, notes=_cut(cut, len(examples), encoder))

    def decide(self, outputs: Outputs, objective: Objective, features: Features) -> Evaluation:
        predictions = classify.decode(outputs["logits"], self.task, self.thresholds)
        if not features.sequences.labels:
            return Evaluation(predictions)
        metrics = classify.score(predictions, features.examples, self.task)
        return Evaluation(predictions, metrics, classify.detail(predictions, features.examples, self.task))

    def tune(self, evaluation: Evaluation, features: Features) -> ClassifyJob:
        if not (isinstance(self.task, Classification) and self.task.multi_label and features.sequences.labels):
            return self
        found = classify.tune_thresholds(evaluation.predictions, features.examples, self.task)
        return replace(self, thresholds=tuple(found))

    def settings(self) -> TaskSettings:
        if isinstance(self.task, Regression):
            names = (self.task.target,) if self.task.target else ()
            return TaskSettings(labels=names, problem_type="regression", activation="identity")
        many = self.task.multi_label
        kind: ProblemType = "multi_label_classification" if many else "single_label_classification"
        return TaskSettings(labels=self.task.labels, problem_type=kind)

    def learned(self) -> dict[str, Any]:
        return {"texts": self.texts} | ({} if self.thresholds is None else {"thresholds": list(self.thresholds)})

    def with_learned(self, kept: Mapping[str, Any]) -> ClassifyJob:
        found = tuple(kept.get("thresholds", ()))
        if found and (isinstance(self.task, Regression) or len(found) != len(self.task.labels)):
            raise UnmaskError(f"{len(found)} thresholds are not one for each label", do="use a copy that is whole")
        return replace(self, thresholds=found or None, texts=kept.get("texts", 0))


def _other_texts(texts: int, source: str) -> UnmaskError:
    if texts == 1:
        do = "name the text, --map text=COLUMN, or train a model on pairs"
        return UnmaskError("these records are pairs, but the model learned from single texts", where=source, do=do)
    do = "name both texts, --map text=COLUMN --map pair=COLUMN, or train a model on single texts"
    return UnmaskError("these records have one text each, but the model learned from pairs", where=source, do=do)


@dataclass(frozen=True)
class TagJob(Job):
    """Words to tags."""

    task: Tagging
    columns: dict[str, str] = field(default_factory=dict)
    parting: Parting = "runs"
    per: ClassVar[Per] = "place"
    places: ClassVar[str] = "tag"

    def read(self, source: str, *, asked: bool = False) -> Read[TaggedExample]:
        task = self.task
        return read_tagged(
            source, columns=self.columns, names=task.labels, scheme=task.scheme, repair=task.repair,
            parting=self.parting, asked=asked,
        )  # fmt: skip

    def begin(self, training: Read[TaggedExample], there: Sequence[str] = ()) -> TagJob:
        examples = training.examples
        learned = replace(self, parting=parting_of(e.words for e in examples if e.text is None))
        if self.task.labels:
            self.require(examples, examples[0].place.file)
            return learned
        labels = in_order_of(there, tag_set(examples, self.task.scheme))
        return replace(learned, task=replace(self.task, labels=labels))

    def require(self, examples: Sequence[TaggedExample], source: str) -> None:
        require_known(examples, self.task.labels, source)

    def objective(self, config: EncoderConfig, shape: HeadShape) -> Objective:
        return TagObjective(config, self.task, shape)

    def features(self, examples: Sequence[TaggedExample], encoder: AlignedEncoder) -> Features:
        sequences, cut = tag.sequences(examples, encoder, self.task)
        notes = (f"{counted(cut, 'word')} longer than a whole window lost the end",) if cut else ()
        return Features(examples, sequences, notes=notes)

    def decide(self, outputs: Outputs, objective: Objective, features: Features) -> Evaluation:
        assert isinstance(objective, TagObjective)
        said = tag.decode(outputs, features.sequences, features.examples, self.task, objective.crf)
        if any(example.tags is None for example in features.examples):
            return Evaluation(said)
        detail = {"labels": tag.label_rows(said, features.examples, self.task)}
        return Evaluation(said, tag.score(said, features.examples, self.task), detail)

    def settings(self) -> TaskSettings:
        return TaskSettings(labels=self.task.labels)

    def learned(self) -> dict[str, Any]:
        return {} if self.parting == "runs" else {"parting": self.parting}

    def with_learned(self, kept: Mapping[str, Any]) -> TagJob:
        return replace(self, parting=kept.get("parting", "runs"))


@dataclass(frozen=True)
class AnswerJob(Job):
    """Questions to pieces of their contexts."""

    task: Answering
    columns: dict[str, str] = field(default_factory=dict)
    threshold: float = 0.0
    per: ClassVar[Per] = "token"

    def read(self, source: str, *, asked: bool = False) -> Read[QuestionExample]:
        return read_questions(source, columns=self.columns, drop_wrong=self.task.drop_wrong, asked=asked)

    def begin(self, training: Read[QuestionExample], there: Sequence[str] = ()) -> AnswerJob:
        """Where a question of the training data has no answer, "none" is an answer."""
        unanswered = any(example.answers is not None and not example.answers for example in training.examples)
        return replace(self, task=replace(self.task, impossible=self.task.impossible or unanswered))

    def objective(self, config: EncoderConfig, shape: HeadShape) -> Objective:
        return AnswerObjective(config, self.task, shape)

    def features(self, examples: Sequence[QuestionExample], encoder: AlignedEncoder) -> Features:
        sequences, windows = answer.sequences(examples, encoder, self.task)
        counted = (
            (windows.questions_cut, "questions left too little room for their context and were cut"),
            (windows.strides_shortened, "questions left less room than the stride, which was shortened"),
        )
        return Features(examples, sequences, windows, tuple(f"{n:,} {what}" for n, what in counted if n))

    def decide(self, outputs: Outputs, objective: Objective, features: Features) -> Evaluation:
        said = answer.decode(outputs, features.extra, features.examples, self.task, threshold=self.threshold)
        if any(example.answers is None for example in features.examples):
            return Evaluation(said)
        scores = answer.score(said, features.examples, language_of(features.examples))
        return Evaluation(said, {name: value for name, value in scores.items() if not name.endswith("total")})

    def tune(self, evaluation: Evaluation, features: Features) -> AnswerJob:
        if not self.task.impossible:
            return self
        language = language_of(features.examples)
        return replace(self, threshold=answer.best_threshold(evaluation.predictions, features.examples, language))

    def learned(self) -> dict[str, Any]:
        return {"threshold": self.threshold} if self.task.impossible else {}

    def with_learned(self, kept: Mapping[str, Any]) -> AnswerJob:
        return replace(self, threshold=float(kept.get("threshold", 0.0)))


def language_of(examples: Sequence[QuestionExample]) -> Language:
    """Whose definition of the scores fits: Chinese has no spaces to cut words at."""
    text = "".join(example.context for example in examples[:200])
    return "zh" if sum("\u4e00" <= character <= "\u9fff" for character in text) > HAN * len(text) else "en"


@dataclass(frozen=True)
class ContrastJob(Job):
    """Texts to vectors."""

    task: Contrast
    columns: dict[str, str] = field(default_factory=dict)

    def read(self, source: str, *, asked: bool = False) -> Read[RankedExample]:
        return read_ranked(source, columns=self.columns)

    def begin(self, training: Read[RankedExample], there: Sequence[str] = ()) -> ContrastJob:
        contrast.require_others(training.examples)
        return self

    def objective(self, config: EncoderConfig, shape: HeadShape) -> Objective:
        return ContrastObjective(config, self.task)

    def features(self, examples: Sequence[RankedExample], encoder: AlignedEncoder) -> Features:
        sequences, cut_N = contrast.sequences(examples, encoder, self.task)
        return Features(examples, sequences, notes=_cut(int(np.sum(cut_N)), len(sequences), encoder))

    def decide(self, outputs: Outputs, objective: Objective, features: Features) -> Evaluation:
        if not all(example.positives for example in features.examples):
            return Evaluation([])
        return Evaluation([], contrast.score(outputs["vectors"], features.sequences, features.examples))


@dataclass(frozen=True)
class RankJob(Job):
    """A query and a text to how well the text answers."""

    task: Ranking
    columns: dict[str, str] = field(default_factory=dict)

    def read(self, source: str, *, asked: bool = False) -> Read[RankedExample]:
        return (read_asked if asked else read_ranked)(source, columns=self.columns)

    def begin(self, training: Read[RankedExample], there: Sequence[str] = ()) -> RankJob:
        self.require(training.examples, training.examples[0].place.file)
        return self

    def require(self, examples: Sequence[RankedExample], source: str) -> None:
        rank.require_differences(examples, source)

    def objective(self, config: EncoderConfig, shape: HeadShape) -> Objective:
        return RankObjective(config, self.task, shape)

    def features(self, examples: Sequence[RankedExample], encoder: AlignedEncoder) -> Features:
        labelled = any(example.positives for example in examples)
        sequences, cut_N = rank.sequences(examples, encoder, self.task, labelled=labelled)
        return Features(examples, sequences, notes=_cut(int(np.sum(cut_N)), len(sequences), encoder))

    def decide(self, outputs: Outputs, objective: Objective, features: Features) -> Evaluation:
        said = rank.decode(outputs["score"], features.examples)
        return Evaluation(said, rank.score(said, features.examples) if features.sequences.labels else {})

    def settings(self) -> TaskSettings:
        pointwise = self.task.loss == "pointwise"
        return TaskSettings(problem_type="regression", activation="sigmoid" if pointwise else "identity")
