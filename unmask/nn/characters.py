"""Words from their characters: what ELMo reads instead of a table of tokens (Peters et al. 2018, section 3.4).

Characters become vectors, filters of several widths look along each word, and of each filter only its strongest answer counts
(Kim et al. 2016, section 2.2); highway layers (Srivastava et al. 2015) and a projection follow. What looks like another word
can't change the vector of this one, so each different word of a batch is worked out once.

Legend: T tokens, W words, U different words, S slots of all different words end to end, V vocab_size, E character_size,
F filters of all widths, P half of hidden_size, D hidden_size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from unmask.batch import Layout, PackedBatch
from unmask.config import EncoderConfig, Recurrent
from unmask.errors import UnmaskError
from unmask.nn.kernels.activation import activation
from unmask.nn.kernels.dropout import Dropout
from unmask.nn.kernels.linear import Linear
from unmask.text.tokenizer import Tokenizer

CONTINUES, BEGINS, ALONE = 0, 1, 2  # what a token is to its word; a special token is a word of its own
MARKS = 2  # before and behind a word, as in the released code


def token_kinds(tokenizer: Tokenizer) -> NDArray[np.int8]:
    """[V] CONTINUES, BEGINS or ALONE for each token; UnmaskError where pieces don't tell where words begin."""
    if tokenizer.kind != "wordpiece":
        raise UnmaskError(
            f"a recurrent network reads words from their characters, but this tokenizer ({tokenizer.kind}) does not mark "
            "which pieces go on with a word",
            do="train one with `unmask tokenizer train --kind characters`",
        )
    pieces = [tokenizer.token(id) for id in range(tokenizer.vocab_size)]
    kinds_V = np.array([CONTINUES if piece.startswith("##") else BEGINS for piece in pieces], np.int8)
    kinds_V[list(tokenizer.special_ids)] = ALONE
    return kinds_V


@dataclass(frozen=True, eq=False)
class Words:
    """Where the words of a batch are."""

    first_W: Tensor  # the first token of each word
    word_T: Tensor  # the word of each token
    layout: Layout  # of words instead of tokens: the same sequences

    @classmethod
    def of(cls, batch: PackedBatch, kinds_V: Tensor) -> Words:
        """A word begins where its token says so, behind a token that is a word of its own, and with a sequence."""
        kinds_T = kinds_V.index_select(0, batch.input_ids)
        begins_T = (kinds_T != CONTINUES) | (batch.layout.position_ids == 0)
        begins_T[1:] |= kinds_T[:-1] == ALONE
        word_T = begins_T.cumsum(0) - 1
        first_W = begins_T.nonzero().squeeze(1)
        starts = torch.cat([word_T.index_select(0, batch.starts[:-1].long()), word_T[-1:] + 1]).int()
        return cls(first_W, word_T, Layout.of(starts.cpu()).to(starts.device))

    def places(self) -> Tensor:
        """[T] the place of each token in its word, from 0."""
        return torch.arange(len(self.word_T), device=self.word_T.device) - self.first_W.index_select(0, self.word_T)

    def spread(self, x_WD: Tensor) -> Tensor:
        """[T, D]: each word's vector for all of its tokens."""
        return x_WD.index_select(0, self.word_T)

    def keys(self, ids_T: Tensor) -> Tensor:
        """[W] a whole number from 63 bits for each word, the same for the same tokens in the same order."""
        return word_keys(ids_T, self.places(), self.word_T, len(self.first_W))


def word_keys(ids_T: Tensor, place_T: Tensor, word_T: Tensor, words: int) -> Tensor:
    """[W] the sum of a hash of each token and its place, without its sign."""
    mixed_T = _mix((place_T << 32) + ids_T)
    return mixed_T.new_zeros(words).index_add(0, word_T, mixed_T) & ((1 << 63) - 1)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser (see `randomness.mix`) on signed numbers, whose right shift must not bring in the sign."""
    x = x + -0x61C8864680B583EB
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & ((1 << 33) - 1))


class _Spelling(NamedTuple):
    """The different words of a batch as characters end to end, each in as many slots as the widest filter needs."""

    ids_S: Tensor  # rows of the table of characters, marks and nothing
    left_S: Tensor  # slots from here on that are the word's own, its marks too; below 1 behind them
    slots_U: Tensor
    word_W: Tensor  # which of the different words each word is


class CharacterWords(nn.Module):
    """Ids to a vector for each word. `kinds` [V] says of every token what it is to its word; until told, each is a word."""

    kinds: Tensor

    def __init__(self, config: EncoderConfig, layer: Recurrent):
        super().__init__()
        self.most, self.widths = layer.max_characters, [width for width, _ in layer.filters]
        size, width = layer.character_size, layer.num_filters
        self.register_buffer("kinds", torch.full((config.vocab_size,), BEGINS, dtype=torch.int8))
        self.characters = nn.Embedding(config.vocab_size, size)
        self.marks = nn.Embedding(MARKS, size)
        self.filters = nn.ModuleList(Linear(width * size, count) for width, count in layer.filters)
        self.activation = activation(config.hidden_act)
        self.highways = nn.ModuleList(Highway(width, config) for _ in range(layer.highway_layers))
        self.project = Linear(width, config.hidden_size // 2)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def tell(self, kinds_V: NDArray[np.int8]) -> None:
        """What each token is to its word, as `token_kinds` says."""
        self.kinds.copy_(torch.from_numpy(kinds_V))

    def words(self, batch: PackedBatch) -> Words:
        """Where the words of a batch are."""
        return Words.of(batch, self.kinds)

    def forward(self, batch: PackedBatch, words: Words) -> Tensor:
        """[W, D]: each word twice, since both directions begin with the same vector (section 3.2)."""
        spelling = self._spell(batch.input_ids, words)
        x_UF = self.activation(self._convolve(spelling))
        for highway in self.highways:
            x_UF = highway(x_UF)
        x_WP = self.dropout(self.project(x_UF).index_select(0, spelling.word_W))
        return torch.cat([x_WP, x_WP], -1)

    def _spell(self, ids_T: Tensor, words: Words) -> _Spelling:
        keys_U, word_W = words.keys(ids_T).unique(return_inverse=True)
        one_U = torch.zeros_like(keys_U).index_copy(0, word_W, torch.arange(len(word_W), device=ids_T.device))
        place_T, word_T = words.places(), words.word_T
        read = (one_U[word_W].index_select(0, word_T) == word_T) & (place_T < self.most)
        own_T, place_T, ids_T = word_W.index_select(0, word_T)[read], place_T[read], ids_T[read]
        length_U = torch.zeros_like(keys_U).index_add(0, own_T, torch.ones_like(own_T)) + MARKS
        slots_U = length_U.clamp(min=max(self.widths))
        begin_U = slots_U.cumsum(0) - slots_U
        begin_mark = self.characters.num_embeddings
        ids_S = ids_T.new_full((int(slots_U.sum()),), begin_mark + MARKS)
        ids_S[begin_U] = begin_mark
        ids_S[begin_U + length_U - 1] = begin_mark + 1
        ids_S[begin_U[own_T] + 1 + place_T] = ids_T
        left_S = torch.repeat_interleave(begin_U + length_U, slots_U) - torch.arange(len(ids_S), device=ids_S.device)
        return _Spelling(ids_S, left_S, slots_U, word_W)

    def _convolve(self, spelling: _Spelling) -> Tensor:
        """[U, F] the strongest answer of each filter, at places where all it sees is the word's; the first place of a word
        shorter than the filter counts too."""
        weight = self.characters.weight
        nothing = weight.new_zeros(max(self.widths), weight.shape[1])
        table = torch.cat([weight, self.marks.weight, nothing[:1]])
        x_SE = torch.cat([F.embedding(spelling.ids_S, table), nothing[1:]])
        return torch.cat(
            [self._strongest(x_SE, f, w, spelling) for f, w in zip(self.filters, self.widths, strict=True)], 1
        )

    def _strongest(self, x_SE: Tensor, filters: nn.Module, width: int, spelling: _Spelling) -> Tensor:
        slots = len(spelling.ids_S)
        seen = x_SE.unfold(0, width, 1)[:slots].transpose(1, 2).flatten(1)  # [S, width * E]
        first_S = spelling.ids_S == self.characters.num_embeddings
        outside = (spelling.left_S < width) & ~first_S
        answers = filters(seen).masked_fill(outside[:, None], -torch.inf)
        return torch.segment_reduce(answers, "max", lengths=spelling.slots_U, axis=0)


class Highway(nn.Module):
    """g · act(Wx + b) + (1 - g) · x with a gate g for each number (Srivastava et al. 2015, section 2)."""

    def __init__(self, width: int, config: EncoderConfig):
        super().__init__()
        self.both = Linear(width, 2 * width)  # what is new, and the gate
        self.activation = activation(config.hidden_act)

    def forward(self, x_UF: Tensor) -> Tensor:
        """[U, F]"""
        new, gate = self.both(x_UF).chunk(2, -1)
        gate = gate.sigmoid()
        out: Tensor = gate * self.activation(new) + (1 - gate) * x_UF
        return out
