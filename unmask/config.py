"""What a run is, as frozen values: the network, how text is cut, what is learned, and how long. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Activation = Literal["gelu", "gelu_tanh", "relu"]


def _positive(owner: object, *names: str) -> None:
    for name in names:
        if getattr(owner, name) <= 0:
            raise ValueError(f"{name} must be above 0, not {getattr(owner, name)}")


def _share(owner: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(owner, name) <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, not {getattr(owner, name)}")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """A BERT-family encoder (Devlin et al. 2019, section 3): post-norm blocks, learned absolute positions, segment embeddings.

    The defaults are BERT-base's. The dropout here is what the model is published with and fine-tuned with; a pre-training
    run has its own, `RunConfig.dropout`.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: Activation = "gelu"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        _positive(self, "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        _positive(self, "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "initializer_range")
        _share(self, "hidden_dropout_prob", "attention_probs_dropout_prob")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of num_attention_heads {self.num_attention_heads}"
            )


# --- how examples are cut from documents -----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Pairs:
    """[CLS] A [SEP] B [SEP], where B follows A or not (BERT section 3.1; ALBERT section 3.1 for `swapped`)."""

    kind: Literal["pairs"] = "pairs"
    negatives: Literal["random", "swapped"] = "random"
    negative_rate: float = 0.5
    short_rate: float = 0.1  # BERT's short_seq_prob: this share of examples aims at a random shorter length
    max_length: int = 128

    def __post_init__(self) -> None:
        _share(self, "negative_rate", "short_rate")
        _at_least(self.max_length, 8)


@dataclass(frozen=True, kw_only=True)
class FullSentences:
    """Sentences until the length is full, going on into the next document (RoBERTa section 4.2, FULL-SENTENCES)."""

    kind: Literal["full_sentences"] = "full_sentences"
    max_length: int = 128

    def __post_init__(self) -> None:
        _at_least(self.max_length, 8)


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Equal blocks of the text stream, cut anywhere; documents are separated by [SEP]."""

    kind: Literal["blocks"] = "blocks"
    max_length: int = 128

    def __post_init__(self) -> None:
        _at_least(self.max_length, 8)


@dataclass(frozen=True, kw_only=True)
class Documents:
    """One document an example; a longer one becomes consecutive pieces."""

    kind: Literal["documents"] = "documents"
    max_length: int = 512

    def __post_init__(self) -> None:
        _at_least(self.max_length, 8)


def _at_least(max_length: int, limit: int) -> None:
    if max_length < limit:
        raise ValueError(f"max_length must be at least {limit}, not {max_length}")


Examples = Pairs | FullSentences | Blocks | Documents


# --- what is learned -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class MaskedTokens:
    """MLM (BERT section 3.1): `mask_rate` of the tokens are targets; 80 % of these become [MASK], 10 % a random token."""

    kind: Literal["mlm"] = "mlm"
    mask_rate: float = 0.15
    replace_mask: float = 0.8
    replace_random: float = 0.1
    whole_word: bool = False
    frequency_bias: bool = (
        False  # new weights begin knowing how often each token occurs: saves the first steps of a short run
    )

    def __post_init__(self) -> None:
        _share(self, "mask_rate", "replace_mask", "replace_random")
        _positive(self, "mask_rate")
        if self.replace_mask + self.replace_random > 1:
            raise ValueError("replace_mask + replace_random must not exceed 1")


@dataclass(frozen=True, kw_only=True)
class SentencePair:
    """NSP or SOP, whichever `examples.negatives` made: two classes, 0 = B follows A, 1 = it does not (BERT section 3.1)."""

    kind: Literal["nsp"] = "nsp"


Objectives = MaskedTokens | SentencePair


# --- how long, how fast ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Steps:
    """A number of optimizer steps."""

    steps: int
    kind: Literal["steps"] = "steps"

    def __post_init__(self) -> None:
        _positive(self, "steps")


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A number of real (never padding) tokens."""

    tokens: int
    kind: Literal["tokens"] = "tokens"

    def __post_init__(self) -> None:
        _positive(self, "tokens")


@dataclass(frozen=True, kw_only=True)
class Minutes:
    """Wall-clock minutes. For a run: this machine is measured first, and the minutes become a recorded number of steps."""

    minutes: float
    kind: Literal["minutes"] = "minutes"

    def __post_init__(self) -> None:
        _positive(self, "minutes")


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Warm-up, then a straight line down to `final` of the peak. All shares are of the whole run."""

    kind: Literal["linear"] = "linear"
    warmup: float = 0.1
    final: float = 0.0

    def __post_init__(self) -> None:
        _share(self, "warmup", "final")


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Warm-up, then half a cosine down to `final` of the peak."""

    kind: Literal["cosine"] = "cosine"
    warmup: float = 0.1
    final: float = 0.0

    def __post_init__(self) -> None:
        _share(self, "warmup", "final")


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay:
    """Warm-up, a plateau, then the last `decay` share falls by 1 − √x (ModernBERT section 2.2; Hägele et al. 2024)."""

    kind: Literal["wsd"] = "wsd"
    warmup: float = 0.05
    decay: float = 0.2
    final: float = 0.0

    def __post_init__(self) -> None:
        _share(self, "warmup", "decay", "final")
        if self.warmup + self.decay > 1:
            raise ValueError("warmup + decay must not exceed 1")


Schedule = Linear | Cosine | WarmupStableDecay


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Decoupled weight decay on matrices and embeddings only, never on norms and biases (Loshchilov and Hutter 2019)."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "learning_rate", "epsilon", "max_grad_norm")
        _share(self, "beta1", "beta2", "weight_decay")


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """One optimizer step sees about `tokens` × `accumulate` tokens, padding never counted."""

    tokens: int = 4096
    accumulate: int = 1

    def __post_init__(self) -> None:
        _positive(self, "tokens", "accumulate")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the run happens. `threads` 0 and `device`, `precision` auto take what this machine has."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    threads: int = 0
    workers: int = 1

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
        _positive(self, "evaluations", "evaluation_tokens", "save_minutes", "keep_last")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole pre-training run. `start_from` names a model folder to go on from; empty starts with new weights.

    `dropout` is 0 while pre-training: a pass over much text does not overfit, and on a CPU a dropout costs more than a
    matrix product (as in cramming, Geiping and Goldstein 2022, section 4.3).
    """

    corpus: str = ""
    start_from: str = ""
    seed: int = 0
    dropout: float = 0.0
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    examples: Examples = field(default_factory=Pairs)
    objectives: tuple[Objectives, ...] = (MaskedTokens(), SentencePair())
    batch: BatchSize = field(default_factory=BatchSize)
    until: Steps | Tokens | Minutes = field(default_factory=lambda: Steps(steps=100_000))
    optimizer: AdamW = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Linear)
    keeping: Keeping = field(default_factory=Keeping)
    machine: Machine = field(default_factory=Machine)

    def __post_init__(self) -> None:
        _share(self, "dropout")
        kinds = [o.kind for o in self.objectives]
        if not kinds or len(set(kinds)) != len(kinds):
            raise ValueError(f"objectives must be one or more different kinds, not {kinds}")
        if "nsp" in kinds and not isinstance(self.examples, Pairs):
            raise ValueError(f'the nsp objective needs examples of kind "pairs", not "{self.examples.kind}"')
        length, positions = self.examples.max_length, self.encoder.max_position_embeddings
        if length > positions:
            raise ValueError(f"examples.max_length {length} exceeds encoder.max_position_embeddings {positions}")
        if length > self.batch.tokens:
            raise ValueError(f"batch.tokens {self.batch.tokens} holds not one example of max_length {length}")
        if isinstance(self.examples, Pairs) and self.encoder.type_vocab_size < 2:
            raise ValueError('examples of kind "pairs" need encoder.type_vocab_size 2')
