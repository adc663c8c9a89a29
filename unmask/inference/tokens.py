"""Texts to token ids as a model takes them: with its special tokens, cut to its length, in flat arrays.

Legend: T tokens, N texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.text.tokenizer import Tokenizer
from unmask.text.tokenizer_json import CHECK_TEXT, build, without_panic

AT_ONCE = 1024  # texts per call of the tokenizer: what it returns takes some ten times the memory of the ids


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
        self.max_length, self.lowercase = max_length, lowercase
        content, _ = tokenizer.documents()
        self._plain = build(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
        self._plain.encode_special_tokens = True
        self._vocabulary = tokenizer.vocabulary()
        self._is_special = self._vocabulary.is_special()
        if self._vocabulary.unk_token_id is not None:
            self._is_special[self._vocabulary.unk_token_id] = False
        self.before, self.after = self._frame(tokenizer)
        if max_length <= len(self.before) + len(self.after):
            raise UnmaskError(
                f"texts of {max_length} tokens have no room beside the special ones", do="raise the maximum length"
            )

    def encode(self, texts: Sequence[str], prompt: str = "") -> TokenisedTexts:
        """Token ids of all texts, `prompt` put before each. A text without any token is an error: it has no vector."""
        parts = [self._encode(texts[at : at + AT_ONCE], prompt, at) for at in range(0, len(texts), AT_ONCE)]
        if not parts:
            return TokenisedTexts(np.zeros(0, np.int32), np.zeros(0, np.int64), 0)
        ids, lengths = (np.concatenate(column) for column in zip(*((p.ids_T, p.lengths_N) for p in parts), strict=True))
        return TokenisedTexts(ids, lengths, sum(part.truncated for part in parts))

    def prompt_length(self, prompt: str) -> int:
        """How many tokens stand before the text itself where a prompt does, special ones included; 0 without one."""
        return len(self.before) + len(self._ids([prompt])[0]) if prompt else 0

    def _frame(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text, told by a text of ordinary tokens; UnmaskError if there is none."""
        for probe in _probes(tokenizer):
            bare = self._ids([probe])[0]
            if bare and not set(bare) & set(tokenizer.special_ids):
                framed = self._plain.encode(probe.lower() if self.lowercase else probe, add_special_tokens=True).ids
                for at in range(len(framed) - len(bare) + 1):
                    if framed[at : at + len(bare)] == bare:
                        return framed[:at], framed[at + len(bare) :]
        raise UnmaskError(
            "the tokenizer gives no text an ordinary token that stays between its special ones",
            do="check the vocabulary and the post_processor of tokenizer.json",
        )

    def _encode(self, texts: Sequence[str], prompt: str, first: int) -> TokenisedTexts:
        pieces = self._ids([prompt + text for text in texts] if prompt else list(texts))
        room = self.max_length - len(self.before) - len(self.after)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        truncated = int((lengths > room).sum())
        lengths = np.minimum(lengths, room)
        ids = np.fromiter(chain.from_iterable(piece[:room] for piece in pieces), np.int32, int(lengths.sum()))
        forged = self._is_special[ids]
        if forged.any():  # a vocabulary that can spell such a text with the special token only
            ids[forged] = self._vocabulary.require("unk")
        return self._framed(ids, lengths, truncated, first)

    def _framed(self, ids_T: NDArray[np.int32], sizes: NDArray[np.int64], truncated: int, first: int) -> TokenisedTexts:
        """With the special tokens around each text."""
        lengths = sizes + len(self.before) + len(self.after)
        if not lengths.all():
            raise UnmaskError(
                "a text without any token has no vector, and this tokenizer puts none around it",
                where=f"text {first + int(lengths.argmin())}, counted from 0",
                do="leave empty texts out",
            )
        ends = lengths.cumsum()
        begins = ends - lengths
        framed = np.empty(int(lengths.sum()), np.int32)
        framed[begins[:, None] + np.arange(len(self.before))] = self.before
        framed[(ends - len(self.after))[:, None] + np.arange(len(self.after))] = self.after
        shift = begins + len(self.before) - (sizes.cumsum() - sizes)
        framed[np.repeat(shift, sizes) + np.arange(len(ids_T))] = ids_T
        return TokenisedTexts(framed, lengths, truncated)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        with without_panic("This text can't be tokenised", CHECK_TEXT):
            given = [text.lower() for text in texts] if self.lowercase else texts
            return [encoding.ids for encoding in self._plain.encode_batch_fast(given, add_special_tokens=False)]


def _probes(tokenizer: Tokenizer) -> Iterator[str]:
    """Short texts, until one has a token: a vocabulary without Latin letters gives "a" none."""
    yield "a"
    ordinary = (id for id in range(tokenizer.vocab_size) if id not in tokenizer.special_ids)
    yield from (tokenizer.decode([id]) for id in ordinary)
