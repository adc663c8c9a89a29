"""How static word vectors are learned: Word2Vec and GloVe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unmask.config.checks import positive


@dataclass(frozen=True, kw_only=True)
class Words:
    """Which words get a vector: those that occur `min_count` times at least, the `max_words` most frequent (0: all)."""

    min_count: int = 5
    max_words: int = 0

    def __post_init__(self) -> None:
        positive(self, "min_count")
        if self.max_words < 0:
            raise ValueError(f"max_words must not be below 0, not {self.max_words}")


@dataclass(frozen=True, kw_only=True)
class CharacterNgrams:
    """Parts of words that have vectors too (Bojanowski et al. 2017, section 3.2), so that unknown words get one.

    A word, written <word>, has all its n-grams of `shortest` to `longest` characters; they share `buckets` vectors by hash
    (0: there are none; the authors' program has 2,000,000).
    """

    shortest: int = 3
    longest: int = 6
    buckets: int = 0

    def __post_init__(self) -> None:
        positive(self, "shortest")
        if self.buckets < 0:
            raise ValueError(f"buckets must not be below 0, not {self.buckets}")
        if self.longest < self.shortest:
            raise ValueError(f"longest must not be below shortest, {self.shortest}, not {self.longest}")


@dataclass(frozen=True, kw_only=True)
class Word2Vec:
    """Word2Vec (Mikolov et al. 2013, "Efficient Estimation" and "Distributed Representations").

    `model` skipgram predicts each word of a window from its centre; cbow the centre from the window's mean. `loss`
    negative tells the right word from `negatives` others drawn by count^0.75; hierarchical walks a Huffman tree.
    A window reaches `window` words at most, drawn evenly from 1 to that for each centre. Words more frequent than
    `subsample` are left out at random, the more so the more frequent (0: none). `learning_rate` falls linearly to
    `final_learning_rate` (0: 0.025 for skipgram, 0.05 for cbow). `average_gradient` divides the gradient of a cbow window
    by its words, as the mean's derivative has it; without it each word gets all of it, as in the authors' program.
    """

    kind: Literal["word2vec"] = "word2vec"
    model: Literal["skipgram", "cbow"] = "skipgram"
    loss: Literal["negative", "hierarchical"] = "negative"
    dimension: int = 100
    window: int = 5
    negatives: int = 5
    subsample: float = 1e-3
    epochs: int = 5
    learning_rate: float = 0.0
    final_learning_rate: float = 1e-4
    average_gradient: bool = False
    ngrams: CharacterNgrams = field(default_factory=CharacterNgrams)
    words: Words = field(default_factory=Words)
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self, "dimension", "window", "negatives", "epochs")
        if self.negatives > 30:
            raise ValueError(f"negatives must not be above 30, not {self.negatives}")
        for name in ("subsample", "learning_rate", "final_learning_rate"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be below 0, not {getattr(self, name)}")

    @property
    def first_learning_rate(self) -> float:
        """What training begins with."""
        return self.learning_rate or (0.025 if self.model == "skipgram" else 0.05)


@dataclass(frozen=True, kw_only=True)
class Glove:
    """GloVe (Pennington et al. 2014): weighted least squares on the logarithms of how often words occur together.

    Words up to `window` apart count 1 / distance. A pair that occurs x times weighs min(1, x / x_max)^`power` (equation 9).
    AdaGrad begins with `learning_rate`. A word's vector is the sum of its two. Counting takes `memory` bytes, and puts aside
    on the disk what is more.
    """

    kind: Literal["glove"] = "glove"
    dimension: int = 100
    window: int = 10
    x_max: float = 10.0
    power: float = 0.75
    epochs: int = 25
    learning_rate: float = 0.05
    memory: int = 2**30
    words: Words = field(default_factory=Words)
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self, "dimension", "window", "x_max", "power", "epochs", "learning_rate")
        if self.memory < 2**20 or self.window > 10_000:
            raise ValueError(
                f"memory must be {2**20} bytes at least, window 10000 at most, not {self.memory} and {self.window}"
            )
