"""What `explain` finds, as frozen values that go into JSON as they are: names here are the names there.

Places count from 0 inside their own sequence. Legend: B sequences, S the longest of them, T tokens of all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Fate = Literal["", "mask", "random", "kept", "sentinel"]

IGNORED = -100  # the label of a token that is no target, as in Hugging Face's data


@dataclass(frozen=True)
class Pieces:
    """The tokenizer: `learned` says that it was made from this text alone, for want of another."""

    kind: str
    vocab_size: int
    learned: bool
    where: str
    special_tokens: dict[str, int]


@dataclass(frozen=True)
class Span:
    """Neighbouring targets, [start, end) among the tokens before anything was hidden.

    `left` and `right` are the tokens outside, from which SBO guesses; None where there is no such goal or no such token.
    `sentinel` stands in its place in the encoder's input, where spans become sentinels.
    """

    start: int
    end: int
    tokens: tuple[str, ...]
    words: int
    fates: tuple[Fate, ...]
    left: int | None = None
    right: int | None = None
    sentinel: str = ""


@dataclass(frozen=True)
class PairOf:
    """Two segments and whether the second follows the first: label 0 = it does, 1 = it does not."""

    first: str
    second: str
    label: int
    what: str  # in words


@dataclass(frozen=True)
class Writing:
    """The decoder's side: it reads `input_ids` and answers `labels`, the same one place earlier."""

    input_tokens: tuple[str, ...]
    input_ids: tuple[int, ...]
    target_tokens: tuple[str, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Replacing:
    """What the generator put into the blanks, and what the encoder is to say of each token: 0 original, 1 replaced."""

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Sequence:
    """One sequence. `tokens` and `words` are the text with its frame; all from `input_ids` on are what the encoder reads.

    `text` is the number of the text it begins in. `words` numbers the word of each token from 0, None at special tokens.
    `attention_mask` is padded to the longest sequence; all other lists are not. `labels` has -100 where nothing is asked.
    """

    text: int
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    words: tuple[int | None, ...]
    word_texts: tuple[str, ...]
    input_tokens: tuple[str, ...]
    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    position_ids: tuple[int, ...]
    attention_mask: tuple[int, ...]
    labels: tuple[int, ...]
    fates: tuple[Fate, ...]
    spans: tuple[Span, ...]
    pair: PairOf | None
    decoder: Writing | None
    replaced: Replacing | None


@dataclass(frozen=True)
class Stage:
    """A tensor on its way through the network: `letters` say what its dimensions are, `shape` how large they are here.

    `padded` has the letters of the same tensor in a world that pads. `part` is the layer or head, `name` the step in it.
    """

    part: str
    name: str
    letters: tuple[str, ...]
    padded: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """Parameters of one kind: `share` is of the total, `note` what is shared and so counted once."""

    part: str
    name: str
    parameters: int
    share: float
    note: str = ""


@dataclass(frozen=True)
class Candidate:
    """One answer of a head and its probability."""

    id: int
    token: str
    logit: float
    probability: float


@dataclass(frozen=True)
class Worked:
    """The loss at one place: every logit, their log of the sum of exponentials, and -log p of the true answer.

    A yes-or-no head has the two logits 0 and z: their softmax is the sigmoid of z.
    """

    sequence: int
    place: int
    side: Literal["encoder", "decoder", "sequence"]
    logits: tuple[float, ...]
    log_sum_exp: float
    likeliest: tuple[Candidate, ...]
    true: Candidate
    loss: float


@dataclass(frozen=True)
class Target:
    """One thing that is asked, and what it costs: `loss` is -log p of `label`."""

    sequence: int
    place: int
    label: int
    token: str
    loss: float


@dataclass(frozen=True)
class Loss:
    """A loss: `mean` over the targets, `chance` where every answer is as likely, `weight` in the loss of the step."""

    name: str
    targets: tuple[Target, ...]
    mean: float
    chance: float
    weight: float
    worked: Worked | None


@dataclass(frozen=True)
class Explanation:
    """One text from its tokens to the loss. `sizes` are the letters of the shapes, `notes` say what is not as in training."""

    texts: tuple[str, ...]
    objective: str
    network: str
    seed: int
    settings: dict[str, Any]
    tokenizer: Pieces
    sequences: tuple[Sequence, ...]
    sizes: dict[str, int]
    shapes: tuple[Stage, ...]
    parts: tuple[Part, ...]
    parameters: int
    trained: bool
    losses: tuple[Loss, ...]
    loss: float
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
