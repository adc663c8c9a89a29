"""How examples are cut from documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unmask.config.checks import share


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """[CLS] A [SEP] B [SEP], where B follows A or not (BERT section 3.1; ALBERT section 3.1 for `swapped`)."""

    kind: Literal["pairs"] = "pairs"
    negatives: Literal["random", "swapped"] = "random"
    negative_rate: float = 0.5
    short_rate: float = 0.1  # BERT's short_seq_prob: this share of examples aims at a random shorter length
    max_length: int = 128

    def __post_init__(self) -> None:
        share(self, "negative_rate", "short_rate")
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
    """Equal blocks of the text stream, cut anywhere; documents are separated by [SEP].

    `frame` False leaves out [CLS] and [SEP] around the block: what a causal model is trained on (GPT-2 section 2.1).
    """

    kind: Literal["blocks"] = "blocks"
    max_length: int = 128
    frame: bool = True

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
