"""What an encoder is fine-tuned for, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unmask.config.checks import positive, share
from unmask.config.encoder import Activation
from unmask.config.run import AdamW, Keeping, Linear, Machine, Muon, Optimizer, Schedule


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """What lies between an encoder's states and the outputs of a task; each family's published classes have their own.

    `pooling` makes one vector of a sequence: the state of its first or last token, or the mean of all; a token task takes
    each state as it is. Then come dropout at `input_dropout`, a dense layer with `act` (None: no such layer), a norm where
    it is `normed`, dropout at `dropout` and the linear layer that gives the outputs. A dropout below 0 is the encoder's
    hidden_dropout_prob. `bias` is the dense layer's, `out_bias` the last one's.
    """

    pooling: Literal["first", "mean", "last"] = "first"
    act: Activation | None = "tanh"
    normed: bool = False
    bias: bool = True
    out_bias: bool = True
    dropout: float = -1.0
    input_dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("dropout", "input_dropout"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} must not be above 1, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Classification:
    """A text, or a pair of texts, to one of `labels`; with `multi_label` to any number of them.

    `class_weights` balanced weighs a label by 1 / (how often it occurs), so that rare ones count as much as frequent ones.
    """

    kind: Literal["classify"] = "classify"
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    class_weights: Literal["none", "balanced"] = "none"

    def __post_init__(self) -> None:
        _different(self.labels)
        if len(self.labels) == 1 and not self.multi_label:
            raise ValueError("labels must be two at least: one leaves nothing to tell apart")
        if self.multi_label and self.class_weights == "balanced":
            raise ValueError("class_weights balanced is for one label a record: several have thresholds of their own")


def _different(labels: tuple[str, ...]) -> None:
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must all be different, not {list(labels)}")


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A text, or a pair of texts, to a number, which is called `target`; "": as its column in the training data."""

    kind: Literal["regress"] = "regress"
    target: str = ""


SpanScheme = Literal["bio", "bios", "bioes", "bilou", "bmes", "bmewo"]
Scheme = Literal[SpanScheme, "plain"]
Repair = Literal["begin", "drop", "error"]


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """Each word to one of `labels`.

    `scheme` says how tags make spans by the letters they begin with, or plain (each word on its own, as parts of speech).
    An entity whose tags break it begins and ends where it is, is dropped, or is an error (`repair`). `decoder` linear takes
    each word's best tag; crf the best allowed sequence of tags (Lafferty et al. 2001); bilstm_crf puts a bidirectional LSTM
    between encoder and CRF (Huang et al. 2015).
    """

    kind: Literal["tag"] = "tag"
    labels: tuple[str, ...] = ()
    scheme: Scheme = "bio"
    repair: Repair = "begin"
    decoder: Literal["linear", "crf", "bilstm_crf"] = "linear"

    def __post_init__(self) -> None:
        _different(self.labels)


@dataclass(frozen=True, kw_only=True)
class Answering:
    """A question to a piece of its context (SQuAD). `stride` tokens are shared by neighbouring windows of a long context.
    With `drop_wrong`, answers that their context does not hold are left out, counted, instead of an error."""

    kind: Literal["answer"] = "answer"
    stride: int = 128
    max_answer_tokens: int = 30
    impossible: bool = False  # some questions have no answer (SQuAD 2.0)
    drop_wrong: bool = False

    def __post_init__(self) -> None:
        positive(self, "stride", "max_answer_tokens")


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Texts to vectors that are near where texts belong together (bi-encoder): InfoNCE with in-batch negatives.

    `temperature` divides the cosines (0.05 is a scale of 20). `dimensions` besides the full width are trained to serve on
    their own (Matryoshka, Kusupati et al. 2022). A batch of more than `chunk_tokens` is computed in chunks, which takes a
    third longer and less memory (gradient caching, Gao et al. 2021); 0: the whole batch at once. More negatives come of
    larger batches only: the parts of an accumulated step have none in common.
    """

    kind: Literal["contrast"] = "contrast"
    pooling: Literal["mean", "cls", "weighted"] = "mean"
    temperature: float = 0.05
    dimensions: tuple[int, ...] = ()
    chunk_tokens: int = 8192
    query_prompt: str = ""
    document_prompt: str = ""

    def __post_init__(self) -> None:
        positive(self, "temperature", *(() if self.chunk_tokens == 0 else ("chunk_tokens",)))


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """A query and a text to how well the text answers it (cross-encoder). `loss` pointwise: each pair on its own (binary
    cross entropy); listwise: softmax over the texts of a query."""

    kind: Literal["rank"] = "rank"
    loss: Literal["pointwise", "listwise"] = "pointwise"


Task = Classification | Regression | Tagging | Answering | Contrast | Ranking


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """A whole fine-tuning run: which model, which data, which task.

    A step is of `examples` records, `accumulate` times over. `layer_decay` multiplies the learning rate by itself for each
    layer below the top (1: none); `frozen_layers` from below, the embeddings with the first, do not move. With a `lora_rank`
    the encoder does not move at all: the head learns, and beside each matrix of the layers that are not frozen a product of
    this rank, which counts `lora_alpha` / `lora_rank` times (LoRA, Hu et al. 2021; 0: none). `dropout` below 0 is the model's
    own. `layer_mix`: the task looks at a mix of all layers that it learns, instead of the last (ELMo: Peters et al. 2018, section
    3.2), as it always does with an ELMo. `patience` evaluations without a better score end the run (0: never). `per_label` records
    of each label are drawn by the seed to learn from (0: all records).
    """

    model: str = ""
    train: str = ""
    dev: str = ""
    task: Task = field(default_factory=Classification)
    max_length: int = 256
    examples: int = 32
    accumulate: int = 1
    epochs: float = 3.0
    optimizer: Optimizer = field(default_factory=lambda: AdamW(learning_rate=5e-5))
    schedule: Schedule = field(default_factory=lambda: Linear(warmup=0.1))
    layer_decay: float = 1.0
    frozen_layers: int = 0
    lora_rank: int = 0
    lora_alpha: float = 16.0
    layer_mix: bool = False
    dropout: float = -1.0
    patience: int = 0
    per_label: int = 0
    seed: int = 0
    keeping: Keeping = field(default_factory=lambda: Keeping(evaluations=3, keep_last=1))
    machine: Machine = field(default_factory=lambda: Machine(workers=0))

    def __post_init__(self) -> None:
        positive(self, "max_length", "examples", "accumulate", "epochs", "layer_decay", "lora_alpha")
        share(self, "layer_decay")
        if self.epochs > 100_000:
            raise ValueError(f"epochs must not be above 100,000, not {self.epochs:g}")
        if self.layer_decay < 1 and isinstance(self.optimizer, Muon):
            raise ValueError("layer_decay needs AdamW or StableAdamW: Muon has one learning rate for its matrices")
        if self.lora_rank and isinstance(self.optimizer, Muon):
            raise ValueError("lora_rank needs AdamW or StableAdamW: Muon is made for whole matrices")
        if self.dropout >= 1:
            raise ValueError("dropout must be below 1, which leaves nothing to learn from")
        if self.patience and not self.dev:
            raise ValueError("patience needs a dev file: without one nothing is evaluated")
        if self.per_label and not isinstance(self.task, Classification):
            raise ValueError(f"per_label needs records with a label or several: {self.task.kind} has none to draw by")
        for name in ("frozen_layers", "lora_rank", "patience", "per_label"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be below 0")
