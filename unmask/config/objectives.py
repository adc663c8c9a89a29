"""What is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unmask.config.checks import positive, share


@dataclass(frozen=True, kw_only=True)
class MaskedTokens:
    """MLM (BERT section 3.1): `mask_rate` of the tokens are targets; 80 % of these become [MASK], 10 % a random token.

    `unit` is what is chosen as one: tokens, whole words, n-grams of 1 to 3 words with p(n) ~ 1/n (ALBERT section 4.1), or
    spans of 1 to 10 words, geometric with p = 0.2 (SpanBERT section 3.1), whose tokens all meet the same fate.
    """

    kind: Literal["mlm"] = "mlm"
    mask_rate: float = 0.15
    final_mask_rate: float = 0.0  # the rate moves to this one in a straight line over the run; 0: it stays
    replace_mask: float = 0.8
    replace_random: float = 0.1
    unit: Literal["token", "word", "ngram", "span"] = "token"
    enhanced_decoder: bool = False  # absolute places come in just before the guess (DeBERTa section 3.2)
    frequency_bias: bool = (
        False  # new weights begin knowing how often each token occurs: saves the first steps of a short run
    )

    def __post_init__(self) -> None:
        share(self, "mask_rate", "final_mask_rate", "replace_mask", "replace_random")
        positive(self, "mask_rate")
        if self.replace_mask + self.replace_random > 1:
            raise ValueError("replace_mask + replace_random must not exceed 1")

    def rate_at(self, progress: float) -> float:
        """The rate at this share of the run."""
        return (
            self.mask_rate + (self.final_mask_rate - self.mask_rate) * progress
            if self.final_mask_rate
            else self.mask_rate
        )


@dataclass(frozen=True, kw_only=True)
class SpanBoundary:
    """SBO (SpanBERT section 3.2): a masked token from the two tokens outside its span and its place in it.

    `max_targets` rows of `position_size` numbers say the place; 20 and 200 are the released code's.
    """

    kind: Literal["sbo"] = "sbo"
    position_size: int = 200
    max_targets: int = 20

    def __post_init__(self) -> None:
        positive(self, "position_size", "max_targets")


@dataclass(frozen=True, kw_only=True)
class SentencePair:
    """NSP (BERT section 3.1): does B follow A? Two classes, 0 = it does, 1 = it is another document's."""

    kind: Literal["nsp"] = "nsp"


@dataclass(frozen=True, kw_only=True)
class SentenceOrder:
    """SOP (ALBERT section 3.1): two neighbours, 0 = in their order, 1 = swapped."""

    kind: Literal["sop"] = "sop"


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens:
    """RTD (ELECTRA section 2): a small generator fills blanks; the encoder says of every token whether it is the original.

    The generator is the encoder with its width and depth times these shares. `sharing` of the embeddings: none, tied, or
    gradient-disentangled (DeBERTa-v3 section 3.3: E_D = stop_gradient(E_G) + E_delta). `add_first` lets the head see each
    token together with the first one, as the released DeBERTa-v3 does.
    """

    kind: Literal["rtd"] = "rtd"
    masking: MaskedTokens = field(default_factory=lambda: MaskedTokens(replace_mask=0.85, replace_random=0.0))
    weight: float = 50.0
    generator_width: float = 0.25
    generator_depth: float = 1.0
    sharing: Literal["none", "tied", "gradient_disentangled"] = "tied"
    add_first: bool = False

    def __post_init__(self) -> None:
        positive(self, "weight", "generator_width", "generator_depth")


@dataclass(frozen=True, kw_only=True)
class NextTokens:
    """Causal language modelling: every token from those before it (GPT: Radford et al. 2018, section 3.1)."""

    kind: Literal["causal"] = "causal"


@dataclass(frozen=True, kw_only=True)
class Infill:
    """Span corruption (T5 section 3.1.4): spans become sentinels, and a decoder writes each sentinel with its span.

    `num_decoder_layers` 0 makes the decoder as deep as the encoder.
    """

    kind: Literal["infill"] = "infill"
    mask_rate: float = 0.15
    mean_span: float = 3.0
    num_decoder_layers: int = 0

    def __post_init__(self) -> None:
        share(self, "mask_rate")
        positive(self, "mask_rate")
        if self.mean_span < 1 or self.num_decoder_layers < 0:
            raise ValueError("mean_span must be at least 1, num_decoder_layers at least 0")


@dataclass(frozen=True, kw_only=True)
class BidirectionalWords:
    """Two language models over words (ELMo: Peters et al. 2018, section 3.1): each word from those before it, and from those
    behind it. Only a recurrent network keeps the two apart.

    The `max_words` most frequent words of the corpus can be told; all others are one class.
    """

    kind: Literal["bilm"] = "bilm"
    max_words: int = 50_000

    def __post_init__(self) -> None:
        if self.max_words < 16:
            raise ValueError(f"max_words must be at least 16, not {self.max_words}")


Objectives = (
    MaskedTokens
    | SpanBoundary
    | SentencePair
    | SentenceOrder
    | ReplacedTokens
    | NextTokens
    | Infill
    | BidirectionalWords
)
