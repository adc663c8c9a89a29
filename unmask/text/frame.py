"""The special tokens around a text, or around and between two, as a tokenizer's own post-processor puts them.

Legend: T tokens end to end, N sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Encode = Callable[..., Any]  # texts with their frame, as the tokenizers library gives it: encode("a"), encode("a", "b")


@dataclass(frozen=True, eq=False)
class Slices:
    """Sequence n is `ids_T[begin_N[n]:][:size_N[n]]`; they may overlap."""

    ids_T: NDArray[np.int32]
    begin_N: Ints
    size_N: Ints


@dataclass(frozen=True)
class Frame:
    """Special tokens before, between and after one text or two; each comes with its token type."""

    ids: tuple[tuple[int, ...], ...]
    types: tuple[tuple[int, ...], ...]
    text_types: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return sum(map(len, self.ids))

    def room(self, max_length: int) -> int:
        """Tokens left for the texts; UnmaskError where there is none for each."""
        room = max_length - self.size
        if room < len(self.text_types):
            kind = "texts" if len(self.text_types) == 1 else "pairs of texts"
            raise UnmaskError(
                f"{kind} of {max_length} tokens have no room beside the special ones", do="raise the maximum length"
            )
        return room

    def put(self, *texts: Slices, first: int = 0) -> tuple[NDArray[np.int32], Ints, NDArray[np.int8] | None]:
        """[T] tokens, [N+1] where each sequence begins, and [T] types, None where all are 0.

        UnmaskError where a sequence has no token at all; it counts them from `first`.
        """
        assert len(texts) == len(self.text_types)
        sizes = np.zeros((len(texts[0].size_N), 2 * len(texts) + 1), np.int64)
        sizes[:, 0::2] = [len(part) for part in self.ids]
        sizes[:, 1::2] = np.stack([text.size_N for text in texts], 1)
        starts = np.r_[0, sizes.sum(1).cumsum()]
        if not np.diff(starts).all():
            raise UnmaskError(
                "a text without any token has no vector, and this tokenizer puts none around it",
                where=f"text {first + int(np.diff(starts).argmin())}, counted from 0",
                do="leave empty texts out",
            )
        begins = sizes.cumsum(1) - sizes + starts[:-1, None]
        ids_T, types_T = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int8)
        for part, (ids, types) in enumerate(zip(self.ids, self.types, strict=True)):
            where = begins[:, 2 * part, None] + np.arange(len(ids))
            ids_T[where], types_T[where] = ids, types
        for part, (text, kind) in enumerate(zip(texts, self.text_types, strict=True)):
            where = spread(begins[:, 2 * part + 1], text.size_N)
            ids_T[where], types_T[where] = text.ids_T[spread(text.begin_N, text.size_N)], kind
        return ids_T, starts, types_T if any(self.text_types) or any(map(any, self.types)) else None


def spread(begin_N: Ints, size_N: Ints) -> Ints:
    """[T] begin, begin + 1 … of each, as many as `size` says."""
    ends = size_N.cumsum()
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begin_N - (ends - size_N), size_N)


def text_frame(encode: Encode, tokenizer: Tokenizer) -> Frame:
    """What stands around a text; UnmaskError where no text of ordinary tokens stays one in its frame."""
    if (found := _learned(encode, tokenizer, 1)) is None:
        raise UnmaskError(
            "the tokenizer gives no text an ordinary token that stays between its special ones",
            do="check the vocabulary and the post_processor of tokenizer.json",
        )
    return found


def pair_frame(encode: Encode, tokenizer: Tokenizer, alone: Frame) -> Frame | None:
    """What stands around two texts. Where nothing would part them, what ends a text that stands alone does, else the
    separator; None where there is neither."""
    found = _learned(encode, tokenizer, 2)
    if found is not None and found.ids[1]:
        return found
    before, after = alone.ids
    between = after or (() if tokenizer.sep_token_id is None else (tokenizer.sep_token_id,))
    ids = (before, between, after)
    return Frame(ids, tuple((0,) * len(part) for part in ids), (0, 0)) if between else None


def _learned(encode: Encode, tokenizer: Tokenizer, texts: int) -> Frame | None:
    """From the first probe with ordinary tokens; the library says which of the tokens it gives come from which text."""
    special = set(tokenizer.special_ids)
    for probe in _probes(tokenizer):
        framed = encode(*[probe] * texts)
        tokens = list(zip(framed.sequence_ids, framed.ids, framed.type_ids, strict=True))
        own = {id for owner, id, _ in tokens if owner is not None}
        if own and not special & own:
            runs = [(owner, list(run)) for owner, run in groupby(tokens, key=lambda token: token[0])]
            in_order = [owner for owner, _ in runs if owner is not None] == list(range(texts))
            once = sum(owner is None for owner, _, _ in tokens) == sum(framed.special_tokens_mask)
            return _frame(runs) if in_order and once else None
    return None


def _frame(runs: list[tuple[int | None, list[tuple[int | None, int, int]]]]) -> Frame:
    """From runs of tokens (text, id, type), each of one text or of special tokens."""
    parts: list[list[tuple[int, int]]] = [[]]
    text_types = []
    for owner, run in runs:
        if owner is None:
            parts[-1] = [(id, kind) for _, id, kind in run]
        else:
            text_types.append(run[0][2])
            parts.append([])
    ids = tuple(tuple(id for id, _ in part) for part in parts)
    return Frame(ids, tuple(tuple(kind for _, kind in part) for part in parts), tuple(text_types))


def _probes(tokenizer: Tokenizer) -> Iterator[str]:
    """Short texts, until one has a token: a vocabulary without Latin letters gives "a" none."""
    yield "a"
    ordinary = (id for id in range(tokenizer.vocab_size) if id not in tokenizer.special_ids)
    yield from (tokenizer.decode([id]) for id in ordinary)
