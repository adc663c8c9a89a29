"""Texts to token ids as a model takes them: with its special tokens, cut to its length, in flat arrays.

Legend: T tokens, N texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from unmask.text.frame import Slices
from unmask.text.pieces import AT_ONCE, PieceEncoder
from unmask.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class TokenisedTexts:
    """Texts as ids end to end, in the order given."""

    ids_T: NDArray[np.int32]
    lengths_N: NDArray[np.int64]
    truncated: int  # texts that were longer than the model takes

    def gather(self, texts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids [T] of some texts, in the order asked for, and their lengths."""
        lengths = self.lengths_N[texts]
        begins = (self.lengths_N.cumsum() - self.lengths_N)[texts]
        shift = begins - (lengths.cumsum() - lengths)
        return self.ids_T[np.repeat(shift, lengths) + np.arange(lengths.sum())].astype(np.int64), lengths


class TextEncoder:
    """A tokenizer with the frame its own folder gives a text ([CLS] … [SEP], <s> … </s>, … </s>), cut to `max_length`.

    It has an instance of the tokenizers library to itself, set up once: nothing that a call does changes it, so threads
    may share it. The spelling of a special token inside a text is ordinary text.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int, *, lowercase: bool = False):
        self.max_length = max_length
        self._pieces = PieceEncoder(tokenizer, lowercase=lowercase)
        self._room = self._pieces.alone.room(max_length)
        self.before, self.after = (list(ids) for ids in self._pieces.alone.ids)

    def encode(self, texts: Sequence[str], prompt: str = "") -> TokenisedTexts:
        """Token ids of all texts, `prompt` put before each. A text without any token is an error: it has no vector."""
        parts = [self._encode(texts[at : at + AT_ONCE], prompt, at) for at in range(0, len(texts), AT_ONCE)]
        if not parts:
            return TokenisedTexts(np.zeros(0, np.int32), np.zeros(0, np.int64), 0)
        ids, lengths = (np.concatenate(column) for column in zip(*((p.ids_T, p.lengths_N) for p in parts), strict=True))
        return TokenisedTexts(ids, lengths, sum(part.truncated for part in parts))

    def prompt_length(self, prompt: str) -> int:
        """How many tokens stand before the text itself where a prompt does, special ones included; 0 without one."""
        return len(self.before) + len(self._pieces.ids([prompt])[0]) if prompt else 0

    def _encode(self, texts: Sequence[str], prompt: str, first: int) -> TokenisedTexts:
        pieces = self._pieces.ids([prompt + text for text in texts] if prompt else texts)
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        kept = np.minimum(sizes, self._room)
        ids = np.fromiter(chain.from_iterable(piece[: self._room] for piece in pieces), np.int32, int(kept.sum()))
        slices = Slices(self._pieces.without_forged(ids), kept.cumsum() - kept, kept)
        framed, starts, _ = self._pieces.alone.put(slices, first=first)
        return TokenisedTexts(framed, np.diff(starts), int((kept < sizes).sum()))
