"""A batch of ragged sequences, stored end to end with no padding.

Legend: T tokens in the batch, B sequences, L longest sequence, M scored places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

WASTE = 0.1  # padding a group of near-equal lengths may hold on a CPU: fewer calls for a tenth more work


class Targets(NamedTuple):
    """What is scored: `where` [M] are tokens (or sequences), `value` [M] what they should be."""

    where: Tensor
    value: Tensor


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Sequences end to end. Neighbours in memory are strangers: index arithmetic stops at `starts`."""

    input_ids: Tensor  # [T] int64
    starts: Tensor  # [B+1] int32, cumulative lengths
    token_type_ids: Tensor | None = None  # [T] int64, sentence A or B; None is all A
    word_starts: Tensor | None = None  # [T] bool, True where a token begins a word
    examples: Tensor | None = None  # [B] int64, number of each example in the whole run: what its masks are drawn from
    documents: Tensor | None = None  # [B] int64, the document each example begins in
    labels: Mapping[str, Targets] = field(default_factory=dict)
    decoder: PackedBatch | None = None  # the target side of an encoder–decoder, one sequence for each of these
    progress: float = 0.0  # share of the run that lies behind: what a mask rate may depend on

    @classmethod
    def pack(
        cls, sequences: Sequence[Sequence[int]], token_type_ids: Sequence[Sequence[int]] | None = None
    ) -> PackedBatch:
        """From lists of ids, one a sequence; none may be empty."""
        lengths = torch.tensor([0, *map(len, sequences)])
        if len(sequences) == 0 or int(lengths[1:].min()) == 0:
            raise ValueError("a batch needs at least one sequence and every sequence at least one token")
        types = None if token_type_ids is None else torch.tensor([t for row in token_type_ids for t in row])
        return cls(torch.tensor([t for row in sequences for t in row]), lengths.cumsum(0).int(), types)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels between processes by value: torch would pass each tensor as an open file, and a step holds many batches."""
        fields = (self.input_ids, self.starts, self.token_type_ids, self.word_starts, self.examples, self.documents)
        labels = {name: tuple(map(_array, targets)) for name, targets in self.labels.items()}
        return _arrived, (tuple(map(_array, fields)), labels, self.decoder, self.progress)

    @property
    def num_tokens(self) -> int:
        """Real tokens, those of the decoder's side too."""
        return len(self.input_ids) + (0 if self.decoder is None else self.decoder.num_tokens)

    @property
    def num_sequences(self) -> int:
        return len(self.starts) - 1

    def with_(self, **changes: object) -> PackedBatch:
        """A copy with other fields; the layout is kept, since it depends on `starts` alone."""
        new = replace(self, **changes)  # type: ignore[arg-type]
        if "layout" in self.__dict__ and "starts" not in changes:
            new.__dict__["layout"] = self.layout
        return new

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.starts)

    def to(self, device: torch.device) -> PackedBatch:
        """On another device, its layout too."""
        if device == self.input_ids.device:
            return self
        types = None if self.token_type_ids is None else self.token_type_ids.to(device, non_blocking=True)
        moved = PackedBatch(
            self.input_ids.to(device, non_blocking=True),
            self.starts.to(device, non_blocking=True),
            types,
            None,  # only what prepares a batch needs where words start
            self.examples,  # names, looked at on the CPU when something goes wrong
            self.documents,
            {k: Targets(*(x.to(device, non_blocking=True) for x in t)) for k, t in self.labels.items()},
            None if self.decoder is None else self.decoder.to(device),
            self.progress,
        )
        moved.__dict__["layout"] = self.layout.to(device)
        return moved

    def pin_memory(self) -> PackedBatch:
        """In page-locked memory, so that the copy to a GPU overlaps its work (called by torch's DataLoader)."""
        labels = {k: Targets(*(x.pin_memory() for x in t)) for k, t in self.labels.items()}
        types = None if self.token_type_ids is None else self.token_type_ids.pin_memory()
        decoder = None if self.decoder is None else self.decoder.pin_memory()
        return self.with_(input_ids=self.input_ids.pin_memory(), token_type_ids=types, labels=labels, decoder=decoder)


def _array(x: Tensor | None) -> NDArray[Any] | None:
    return None if x is None else x.numpy()


def _tensor(x: NDArray[Any] | None) -> Tensor | None:
    return None if x is None else torch.from_numpy(x)


def _arrived(
    fields: tuple[Any, ...], labels: dict[str, tuple[Any, Any]], decoder: PackedBatch | None, progress: float
) -> PackedBatch:
    targets = {
        name: Targets(torch.from_numpy(where), torch.from_numpy(value)) for name, (where, value) in labels.items()
    }
    types, words, examples, documents = map(_tensor, fields[2:])
    ids, starts = torch.from_numpy(fields[0]), torch.from_numpy(fields[1])
    return PackedBatch(ids, starts, types, words, examples, documents, targets, decoder, progress)


class Group(NamedTuple):
    """Consecutive sequences of near-equal length, which a dense kernel takes at once."""

    first: int  # first token
    tokens: int  # real tokens
    sequences: int
    longest: int
    gather: Tensor | None  # [sequences * longest] token of each padded place, relative to `first`; None: no padding
    real: Tensor | None  # [tokens] padded place of each token
    mask: Tensor | None  # [sequences, 1, 1, longest] True at real places

    def to(self, device: torch.device) -> Group:
        """On another device."""
        if self.gather is None or self.real is None or self.mask is None:
            return self
        return self._replace(gather=self.gather.to(device), real=self.real.to(device), mask=self.mask.to(device))


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each token sits: computed once per batch, shared by every layer."""

    starts: Tensor  # [B+1]
    position_ids: Tensor  # [T] place inside its own sequence, from 0
    rows: Tensor  # [T] its sequence
    lengths: tuple[int, ...]  # [B]
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, starts: Tensor) -> Layout:
        """From cumulative lengths on the CPU. Sequences sorted by length give the fewest groups."""
        lengths = starts.diff().long()
        rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        position_ids = torch.arange(len(rows)) - starts[:-1].long()[rows]
        sizes = lengths.tolist()
        return cls(starts, position_ids, rows, tuple(sizes), tuple(_groups(sizes)))

    @property
    def longest(self) -> int:
        return max(self.lengths)

    def to(self, device: torch.device) -> Layout:
        """On another device."""
        groups = tuple(g.to(device) for g in self.groups)
        return Layout(self.starts.to(device), self.position_ids.to(device), self.rows.to(device), self.lengths, groups)

    def padding(self) -> float:
        """Share of the places attention works on that hold no token."""
        places = sum(g.sequences * g.longest for g in self.groups)
        return 1 - len(self.rows) / places

    def pad(self, x: Tensor) -> Tensor:
        """[T, ...] to [B, L, ...], zeros where there is no token."""
        slots = self.rows * self.longest + self.position_ids
        grid = x.new_zeros(len(self.lengths) * self.longest, *x.shape[1:])
        return grid.index_copy(0, slots, x).unflatten(0, (len(self.lengths), self.longest))

    def unpad(self, grid: Tensor) -> Tensor:
        """[B, L, ...] to [T, ...]: undoes `pad`."""
        return grid.flatten(0, 1)[self.rows * self.longest + self.position_ids]

    def valid(self) -> Tensor:
        """[B, L] True where there is a token: the padded world's attention_mask."""
        return self.pad(torch.ones_like(self.position_ids, dtype=torch.bool))


def _groups(lengths: list[int]) -> list[Group]:
    groups, first, i = [], 0, 0
    while i < len(lengths):
        j, tokens, longest = i + 1, lengths[i], lengths[i]
        while j < len(lengths):
            wider = max(longest, lengths[j])
            if tokens + lengths[j] < (1 - WASTE) * wider * (j + 1 - i):
                break
            longest, tokens, j = wider, tokens + lengths[j], j + 1
        groups.append(_group(first, tokens, lengths[i:j], longest))
        first, i = first + tokens, j
    return groups


def _group(first: int, tokens: int, lengths: list[int], longest: int) -> Group:
    if tokens == len(lengths) * longest:
        return Group(first, tokens, len(lengths), longest, None, None, None)
    size = torch.tensor(lengths)
    place = torch.arange(longest)
    real = place < size[:, None]
    begin = size.cumsum(0) - size
    gather = torch.where(real, begin[:, None] + place, 0).flatten()
    return Group(
        first, tokens, len(lengths), longest, gather, real.flatten().nonzero().squeeze(1), real[:, None, None, :]
    )
