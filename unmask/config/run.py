"""A whole run: how long, how fast, where, and on what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from unmask.config.checks import positive, share
from unmask.config.encoder import EncoderConfig, Recurrent
from unmask.config.examples import Examples, Pairs
from unmask.config.objectives import MaskedTokens, Objectives, ReplacedTokens, SentencePair


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A number of optimizer steps."""

    steps: int
    kind: Literal["steps"] = "steps"

    def __post_init__(self) -> None:
        positive(self, "steps")


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A number of real (never padding) tokens."""

    tokens: int
    kind: Literal["tokens"] = "tokens"

    def __post_init__(self) -> None:
        positive(self, "tokens")


@dataclass(frozen=True, kw_only=True)
class Minutes:
    """Wall-clock minutes. For a run: this machine is measured first, and the minutes become a recorded number of steps."""

    minutes: float
    kind: Literal["minutes"] = "minutes"

    def __post_init__(self) -> None:
        positive(self, "minutes")


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Warm-up, then a straight line down to `final` of the peak. All shares are of the whole run."""

    kind: Literal["linear"] = "linear"
    warmup: float = 0.1
    final: float = 0.0

    def __post_init__(self) -> None:
        share(self, "warmup", "final")


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Warm-up, then half a cosine down to `final` of the peak."""

    kind: Literal["cosine"] = "cosine"
    warmup: float = 0.1
    final: float = 0.0

    def __post_init__(self) -> None:
        share(self, "warmup", "final")


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay:
    """Warm-up, a plateau, then the last `decay` share falls by 1 − √x (ModernBERT section 2.2; Hägele et al. 2024)."""

    kind: Literal["wsd"] = "wsd"
    warmup: float = 0.05
    decay: float = 0.2
    final: float = 0.0

    def __post_init__(self) -> None:
        share(self, "warmup", "decay", "final")
        if self.warmup + self.decay > 1:
            raise ValueError("warmup + decay must not exceed 1")


Schedule = Linear | Cosine | WarmupStableDecay


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Decoupled weight decay on matrices and embeddings only, never on norms and biases (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        _check_adam(self)


@dataclass(frozen=True, kw_only=True)
class StableAdamW:
    """AdamW that takes a smaller step in a tensor whose gradient outgrew its past (Wortsman et al. 2023, algorithm 2).

    What ModernBERT was trained with. It bears a larger rate and a smaller `beta2`, and makes clipping unnecessary.
    """

    kind: Literal["stable_adamw"] = "stable_adamw"
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        _check_adam(self)


@dataclass(frozen=True, kw_only=True)
class Muon:
    """Orthogonal updates for the matrices inside the blocks, AdamW for all else (Jordan et al. 2024).

    A matrix' update is scaled to the size AdamW's would have, 0.2 on the average (Liu et al. 2025, section 2.2), so that one
    `learning_rate` and one `weight_decay` serve both. `momentum` is of the matrices, `beta1`, `beta2`, `epsilon` of the rest.
    """

    kind: Literal["muon"] = "muon"
    learning_rate: float = 1e-4
    momentum: float = 0.95
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        _check_adam(self)
        share(self, "momentum")


Optimizer = AdamW | StableAdamW | Muon


def _check_adam(optimizer: Optimizer) -> None:
    positive(optimizer, "learning_rate", "epsilon", "max_grad_norm")
    share(optimizer, "beta1", "beta2", "weight_decay")


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """One optimizer step sees about `tokens` × `accumulate` tokens, padding never counted."""

    tokens: int = 4096
    accumulate: int = 1

    def __post_init__(self) -> None:
        positive(self, "tokens", "accumulate")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the run happens. `threads` 0 and `device`, `precision` auto take what this machine has.

    `compile` lets torch.compile fuse what stands between two attentions: for a GPU; on a CPU it takes time and gains nothing.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    threads: int = 0
    workers: int = 1
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("threads", "workers"):
            if not 0 <= getattr(self, name) <= 1024:
                raise ValueError(f"{name} must lie between 0 and 1024, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """When to measure and save: `evaluations` times in a run at equal distances, and every `save_minutes` besides."""

    evaluations: int = 20
    evaluation_tokens: int = 65536
    save_minutes: float = 10.0
    keep_last: int = 2
    keep_best: bool = True

    def __post_init__(self) -> None:
        positive(self, "evaluations", "evaluation_tokens", "save_minutes", "keep_last")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A later part of a run: what changes when the part before it ends, as `name=value` settings, and how long it lasts.

    Example: Phase(until=Tokens(tokens=50_000_000), changes=("examples.max_length=8192", "encoder.positions.theta=160000")).
    The schedule begins anew with each phase; weights and optimizer go on.
    """

    until: Steps | Tokens | Minutes
    changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [change.partition("=")[0].strip() for change in self.changes]
        if {"optimizer", "optimizer.kind"} & set(names):
            raise ValueError(
                "changes can't name another optimizer: a phase goes on with the state of the one before it"
            )


class Training(Protocol):
    """What the training loop reads of a run's settings, whatever the run is for."""

    @property
    def seed(self) -> int: ...
    @property
    def batch(self) -> BatchSize: ...
    @property
    def until(self) -> Steps | Tokens | Minutes: ...
    @property
    def optimizer(self) -> Optimizer: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def keeping(self) -> Keeping: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def max_length(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole pre-training run. `start_from` names a model folder to go on from; empty starts with new weights.
    `embeddings_from` names static vectors, a file or a folder, that the token table of new weights begins with.

    `dropout` is 0 while pre-training: a pass over much text does not overfit, and on a CPU a dropout costs more than a
    matrix product (as in cramming, Geiping and Goldstein 2022, section 4.3).
    """

    corpus: str = ""
    start_from: str = ""
    embeddings_from: str = ""
    seed: int = 0
    dropout: float = 0.0
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    examples: Examples = field(default_factory=Pairs)
    objectives: tuple[Objectives, ...] = (MaskedTokens(), SentencePair())
    batch: BatchSize = field(default_factory=BatchSize)
    until: Steps | Tokens | Minutes = field(default_factory=lambda: Steps(steps=100_000))
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Linear)
    keeping: Keeping = field(default_factory=Keeping)
    machine: Machine = field(default_factory=Machine)
    phases: tuple[Phase, ...] = ()  # after `until`

    def __post_init__(self) -> None:
        share(self, "dropout")
        if self.dropout == 1:
            raise ValueError("dropout must be below 1, which leaves nothing to learn from")
        kinds = [o.kind for o in self.objectives]
        if not kinds or len(set(kinds)) != len(kinds):
            raise ValueError(f"objectives must be one or more different kinds, not {kinds}")
        _check_goals(self.objectives, self.examples, self.encoder)
        if self.embeddings_from:
            _check_table(self)
        length, positions = self.examples.max_length, self.encoder.max_position_embeddings
        if length > positions:
            raise ValueError(f"examples.max_length {length} exceeds encoder.max_position_embeddings {positions}")
        if length > self.batch.tokens:
            raise ValueError(f"batch.tokens {self.batch.tokens} holds not one example of max_length {length}")

    @property
    def max_length(self) -> int:
        """Tokens of the longest example."""
        return self.examples.max_length


def _check_table(run: RunConfig) -> None:
    """ValueError where there is no new token table for static vectors."""
    if run.start_from:
        raise ValueError("start_from and embeddings_from exclude each other: a model has a token table of its own")
    if isinstance(run.encoder.layer, Recurrent):
        raise ValueError("embeddings_from needs a token table; a recurrent encoder.layer makes words from characters")
    if any(isinstance(goal, ReplacedTokens) and goal.sharing == "gradient_disentangled" for goal in run.objectives):
        raise ValueError(
            "embeddings_from needs objectives.rtd.sharing tied or none: else the encoder's table begins at 0"
        )


def _check_goals(goals: tuple[Objectives, ...], examples: Examples, encoder: EncoderConfig) -> None:
    """ValueError for goals that contradict each other, the examples or the encoder."""
    by_kind = {goal.kind: goal for goal in goals}
    corrupting = [kind for kind in ("mlm", "rtd", "causal", "infill") if kind in by_kind]
    if len(corrupting) > 1:
        raise ValueError(f"objectives {corrupting[0]} and {corrupting[1]} each want the text in a form of their own")
    for kind, negatives in (("nsp", "random"), ("sop", "swapped")):
        if kind in by_kind and not (isinstance(examples, Pairs) and examples.negatives == negatives):
            raise ValueError(f'the {kind} objective needs examples of kind "pairs" with negatives "{negatives}"')
    masked = by_kind.get("mlm")
    if "sbo" in by_kind and not (isinstance(masked, MaskedTokens) and masked.unit == "span"):
        raise ValueError('the sbo objective needs an mlm objective with unit "span"')
    if ("causal" in by_kind) != encoder.causal:
        raise ValueError("the causal objective and encoder.causal go together: other objectives look at both sides")
    if ("bilm" in by_kind) != isinstance(encoder.layer, Recurrent):
        raise ValueError(
            "the bilm objective and a recurrent encoder.layer go together: only there the directions stay apart"
        )
    if "bilm" in by_kind and len(goals) > 1:
        raise ValueError("the bilm objective stands alone: others look at both sides at once")
    if "infill" in by_kind and len(goals) > 1:
        raise ValueError("the infill objective stands alone: it rewrites the text that others look at")
    if "infill" in by_kind and encoder.embedding_size:
        raise ValueError("the infill objective needs encoder.embedding_size 0: its decoder is as wide as the encoder")
    narrow = encoder.table_size != encoder.hidden_size and not encoder.head_transform
    if narrow and ("mlm" in by_kind or "causal" in by_kind):
        raise ValueError("encoder.embedding_size needs encoder.head_transform: the vocabulary is as wide as the tables")
    replaced = by_kind.get("rtd")
    masking = replaced.masking if isinstance(replaced, ReplacedTokens) else masked
    if isinstance(masking, MaskedTokens) and masking.enhanced_decoder and encoder.num_hidden_layers < 2:
        raise ValueError("enhanced_decoder needs two layers or more")
