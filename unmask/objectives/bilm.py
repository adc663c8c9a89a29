"""Two language models over words: one guesses each word from those before it, one from those behind it (ELMo: Peters et al. 2018,
section 3.1).

Legend: T tokens, W words, M guesses, N words with a class of their own, P half of hidden_size, V vocab_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from unmask.batch import PackedBatch, Targets
from unmask.config import BidirectionalWords, EncoderConfig
from unmask.nn.characters import ALONE, BEGINS, Words
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Losses, Objective, Sum
from unmask.objectives.word_table import frequent_words
from unmask.text.shards import Corpus
from unmask.text.vocabulary import Vocabulary

RARE = 0  # the class of all words that have none of their own
CUTOFFS = (
    2_000,
    10_000,
    50_000,
)  # classes by frequency: the first are told apart at once, the others in groups (Grave et al. 2017)
NARROWER = 4.0  # each group has vectors so many times as short as the one before (Grave et al. 2017, section 3.4)
AT_ONCE = 256  # guesses whose likeliest word is looked for: all of their probabilities are made
LIMB = 21  # bits of a key in one number: a model folder holds floats, which are exact up to 24


class BidirectionalWordObjective(Objective):
    """Losses "forward" and "backward": each word of a sequence but the last tells the next one, each but the first the one before.

    The two share the matrix of words, as in the paper. Which tokens begin a word, `tell` says; until then each is a word.
    """

    def __init__(self, config: EncoderConfig, goal: BidirectionalWords, vocabulary: Vocabulary):
        super().__init__()
        self.width, self.vocabulary = config.hidden_size // 2, vocabulary
        self.head = WordHead(self.width, goal.max_words)
        self._kinds = np.where(vocabulary.is_special(), ALONE, BEGINS).astype(np.int8)

    def tell(self, kinds_V: NDArray[np.int8]) -> None:
        """What each token is to its word (`nn.characters.token_kinds`)."""
        self._kinds = kinds_V

    def know_words(self, corpus: Corpus) -> None:
        """Gives the most frequent words of the corpus classes of their own, unless a model's words are known already."""
        if not self.head.knows():
            frames = [i for i in (self.vocabulary.cls_token_id, self.vocabulary.sep_token_id) if i is not None]
            self.head.learn_words(*frequent_words(corpus, self._kinds, frames, len(self.head.words)))

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        """The guesses stand at the first token of the word that makes them; what is right is a word's key, not yet its class."""
        words = Words.of(batch, torch.from_numpy(self._kinds))
        keys_W, first_W = words.keys(batch.input_ids), words.first_W
        followed_W = torch.ones(len(keys_W), dtype=torch.bool)
        followed_W[words.layout.starts[1:].long() - 1] = False  # what stands behind a border is a stranger
        at = followed_W.nonzero().squeeze(1)
        made = {"forward": Targets(first_W[at], keys_W[at + 1]), "backward": Targets(first_W[at + 1], keys_W[at])}
        return batch.with_(labels={**batch.labels, **made})

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {name: len(batch.labels[name].where) for name in ("forward", "backward")}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        return 2.0 * sum(self.counts(batch).values()) * self.width * self.head.softmax.head.out_features

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        top_TD = layers[encoder.config.num_hidden_layers]  # a mix of layers may stand behind it
        halves = {"forward": slice(None, self.width), "backward": slice(self.width, None)}
        return {name: self._score(top_TD[:, half], batch.labels[name]) for name, half in halves.items()}

    def _score(self, read_TP: Tensor, targets: Targets) -> Sum:
        total, correct = self.head.score(read_TP.index_select(0, targets.where), targets.value, count=not self.training)
        return Sum(total, len(targets.where), correct)


class WordHead(nn.Module):
    """States to probabilities of words, frequent ones first. `words` [N, 3] are the keys of the words that classes 1 … N stand
    for, cut into three numbers; -1 where there is none."""

    words: Tensor

    def __init__(self, width: int, max_words: int):
        super().__init__()
        self.register_buffer("words", torch.full((max_words, 3), -1, dtype=torch.int32))
        first = min(CUTOFFS[0], (max_words + 1) // 2)
        groups = [c for n, c in enumerate(CUTOFFS[1:], 2) if first < c < max_words and width >= NARROWER**n]
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(
            width, max_words + 1, [first, *groups], div_value=NARROWER, head_bias=True
        )

    def knows(self) -> bool:
        """Whether there are words yet."""
        return bool((self.words >= 0).any())

    def learn_words(self, keys_N: Tensor, counts_C: Tensor) -> None:
        """The most frequent word first; counts [N + 1] are those of the classes, RARE's in front.

        The first guess is that of their frequencies: the first steps of a run need not learn them.
        """
        limbs_N3 = torch.stack([(keys_N >> shift) & ((1 << LIMB) - 1) for shift in (2 * LIMB, LIMB, 0)], 1)
        self.words[: len(keys_N)] = limbs_N3.to(self.words)
        shares_C = F.pad(counts_C.double() + 0.5, (0, len(self.words) - len(keys_N)), value=0.5)
        shares_C = shares_C / shares_C.sum()
        begin, *ends = self.softmax.cutoffs
        groups = [shares_C[a:b].sum() for a, b in pairwise([begin, *ends])]
        with torch.no_grad():
            self.softmax.head.bias.copy_(torch.cat([shares_C[:begin], torch.stack(groups)]).log())

    def classes(self, keys_M: Tensor) -> Tensor:
        """[M] of the words with these keys; RARE for those without one."""
        high, middle, low = self.words.long().unbind(1)
        sorted_N, rank_N = ((high << 2 * LIMB) + (middle << LIMB) + low).sort()
        at_M = torch.searchsorted(sorted_N, keys_M).clamp(max=len(sorted_N) - 1)
        return torch.where(sorted_N[at_M] == keys_M, rank_N[at_M] + 1, RARE)

    def score(self, x_MP: Tensor, keys_M: Tensor, *, count: bool) -> tuple[Tensor, Tensor | None]:
        """The sum of -log p of the right words, and how many of them are the likeliest if `count`; in fp32."""
        value_M = self.classes(keys_M)
        with torch.autocast(x_MP.device.type, enabled=False):
            x_MP = x_MP.float()
            total = -self.softmax(x_MP, value_M).output.sum()
            if not count:
                return total, None
            likeliest = torch.cat([self.softmax.predict(part) for part in x_MP.split(AT_ONCE)])
        return total, (likeliest == value_M).sum()
