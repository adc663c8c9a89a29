"""A batch of ragged sequences, stored end to end with no padding.

Legend: T tokens in the batch, B sequences, L longest sequence, M scored places.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WASTE = 0.02  # padding a group of near-equal lengths may hold on a CPU: fewer calls for a little more work

Made = TypeVar("Made")


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
    read: Tensor | None = None  # [M] int64 ascending, the tokens whose last states are looked at; None: all

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
        fields = (
            self.input_ids, self.starts, self.token_type_ids, self.word_starts, self.examples, self.documents, self.read,
        )  # fmt: skip
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
            None if self.read is None else self.read.to(device, non_blocking=True),
        )
        moved.__dict__["layout"] = self.layout.to(device)
        return moved

    def padded_to(self, tokens: int) -> PackedBatch:
        """With sequences of token 0 behind, up to that many tokens: sizes that come again suit memory and compiled code.

        None is longer than those that are there, and nothing refers to them: labels, names and the decoder's side stay.
        """
        more = tokens - len(self.input_ids)
        if not more:
            return self
        layout = self.layout.once(("filled", more), lambda: self.layout.followed_by(more))
        fill = self.input_ids.new_zeros(more)
        types = self.token_type_ids
        types = None if types is None else torch.cat([types, torch.zeros_like(fill, dtype=types.dtype)])
        padded = self.with_(input_ids=torch.cat([self.input_ids, fill]), starts=layout.starts, token_type_ids=types)
        padded.__dict__["layout"] = layout
        return padded

    def pin_memory(self) -> PackedBatch:
        """In page-locked memory, so that the copy to a GPU overlaps its work (called by torch's DataLoader)."""
        labels = {k: Targets(*(x.pin_memory() for x in t)) for k, t in self.labels.items()}
        types = None if self.token_type_ids is None else self.token_type_ids.pin_memory()
        decoder = None if self.decoder is None else self.decoder.pin_memory()
        read = None if self.read is None else self.read.pin_memory()
        ids = self.input_ids.pin_memory()
        return self.with_(input_ids=ids, token_type_ids=types, labels=labels, decoder=decoder, read=read)


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
    types, words, examples, documents, read = map(_tensor, fields[2:])
    ids, starts = torch.from_numpy(fields[0]), torch.from_numpy(fields[1])
    return PackedBatch(ids, starts, types, words, examples, documents, targets, decoder, progress, read)


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
    lengths: tuple[int, ...]  # [B]; empty in a dense layout, whose lengths stand in `attention_mask` alone
    attention_mask: Tensor | None = None  # [B, L] True at real tokens: a dense layout, in which padding takes up tokens
    _kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, starts: Tensor) -> Layout:
        """From cumulative lengths on the CPU. Sequences sorted by length give the fewest groups."""
        begin_B, lengths_B = starts[:-1].numpy(), np.diff(starts.numpy())
        rows = np.repeat(np.arange(len(lengths_B)), lengths_B)
        position_ids = np.arange(len(rows)) - np.repeat(begin_B, lengths_B)
        return cls(starts, torch.from_numpy(position_ids), torch.from_numpy(rows), tuple(lengths_B.tolist()))

    @classmethod
    def dense(cls, attention_mask_BL: Tensor) -> Layout:
        """A padded batch as it comes from elsewhere: T = B × L, padding (0 or False, behind the text) counts as tokens.

        Holds for any B and L, also unknown ones (torch.export): nothing is asked of the mask's values.
        """
        sequences, longest = attention_mask_BL.shape
        mask, device = attention_mask_BL.bool(), attention_mask_BL.device
        place, row = torch.arange(longest, device=device), torch.arange(sequences, device=device)
        return cls(
            torch.arange(sequences + 1, device=device) * longest,
            place.expand(sequences, longest).reshape(-1),
            row[:, None].expand(sequences, longest).reshape(-1),
            (),
            mask,
        )

    @property
    def num_sequences(self) -> int:
        return len(self.lengths) if self.attention_mask is None else self.attention_mask.shape[0]

    @cached_property
    def longest(self) -> int:
        return max(self.lengths) if self.attention_mask is None else self.attention_mask.shape[1]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Runs of near-equal lengths; made when first asked for, since not every kernel wants them."""
        if self.attention_mask is not None:
            sequences, longest = self.attention_mask.shape
            mask = self.attention_mask[:, None, None, :]
            return (Group(0, sequences * longest, sequences, longest, None, None, mask),)
        groups = _groups(self.lengths, _near_equal(self.lengths, self.lengths))
        device = self.starts.device
        return tuple(groups if device.type == "cpu" else (group.to(device) for group in groups))

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gives, made when first asked for: every layer of a step asks for the same."""
        if key not in self._kept:
            self._kept[key] = make()
        made: Made = self._kept[key]
        return made

    def to(self, device: torch.device) -> Layout:
        """On another device."""
        mask = None if self.attention_mask is None else self.attention_mask.to(device, non_blocking=True)
        starts, position_ids, rows = (
            x.to(device, non_blocking=True) for x in (self.starts, self.position_ids, self.rows)
        )
        return Layout(starts, position_ids, rows, self.lengths, mask)

    def followed_by(self, tokens: int) -> Layout:
        """With so many tokens more behind, in sequences as long as the longest and a rest; made where this one is."""
        assert self.attention_mask is None, "a dense batch is not for training"
        full, rest = divmod(tokens, self.longest)
        lengths = [self.longest] * full + [rest] * (rest > 0)
        behind = Layout.of(torch.tensor([0, *lengths]).cumsum(0).int()).to(self.starts.device)
        return Layout(
            torch.cat([self.starts, behind.starts[1:] + len(self.rows)]),
            torch.cat([self.position_ids, behind.position_ids]),
            torch.cat([self.rows, behind.rows + len(self.lengths)]),
            self.lengths + behind.lengths,
        )

    def padding(self) -> float:
        """Share of the places attention works on that hold no token."""
        if self.attention_mask is not None:
            return 0.0
        begins, sizes = _near_equal(self.lengths, self.lengths), np.array(self.lengths)
        places = np.diff(begins, append=len(sizes)) * np.maximum.reduceat(sizes, begins)
        return float(1 - len(self.rows) / places.sum())

    def pad(self, x: Tensor) -> Tensor:
        """[T, ...] to [B, L, ...], zeros where there is no token."""
        if self.attention_mask is not None:
            empty = ~self.attention_mask.reshape(-1, *[1] * (x.dim() - 1))
            return x.masked_fill(empty, 0).reshape(*self.attention_mask.shape, *x.shape[1:])
        slots = self.rows * self.longest + self.position_ids
        grid = x.new_zeros(len(self.lengths) * self.longest, *x.shape[1:])
        return grid.index_copy(0, slots, x).unflatten(0, (len(self.lengths), self.longest))

    def unpad(self, grid: Tensor) -> Tensor:
        """[B, L, ...] to [T, ...]: undoes `pad`."""
        if self.attention_mask is not None:
            return grid.flatten(0, 1)
        return grid.flatten(0, 1)[self.rows * self.longest + self.position_ids]

    def valid(self) -> Tensor:
        """[B, L] True where there is a token: the padded world's attention_mask."""
        if self.attention_mask is not None:
            return self.attention_mask
        return self.pad(torch.ones_like(self.position_ids, dtype=torch.bool))


def paired(targets: Sequence[int], sources: Sequence[int]) -> list[tuple[Group, Group]]:
    """Groups of a decoder's sequences, each with the group of the sequences they look at: near-equal on both sides."""
    begins = _near_equal(targets, sources)
    return list(zip(_groups(targets, begins), _groups(sources, begins), strict=True))


def _near_equal(queries: Sequence[int], keys: Sequence[int]) -> list[int]:
    """Cuts consecutive sequences into runs in which at most WASTE of either side is padding; where each run begins."""
    begins = [0]
    tokens = widest = other_tokens = other_widest = 0
    for at, (size, other) in enumerate(zip(queries, keys, strict=True)):
        tokens, widest = tokens + size, size if size > widest else widest
        other_tokens, other_widest = other_tokens + other, other if other > other_widest else other_widest
        room = (1 - WASTE) * (at + 1 - begins[-1])
        if tokens < room * widest or other_tokens < room * other_widest:
            begins.append(at)
            tokens, widest, other_tokens, other_widest = size, size, other, other
    return begins


def _groups(lengths: Sequence[int], begins: Sequence[int]) -> list[Group]:
    """Legend: G groups, P places in all of them. For all groups at once, since a batch may have dozens."""
    size_B, begin_G = np.array(lengths), np.array(begins)
    count_G = np.diff(begin_G, append=len(size_B))
    tokens_G, longest_G = np.add.reduceat(size_B, begin_G), np.maximum.reduceat(size_B, begin_G)
    first_G, places_G = np.cumsum(tokens_G) - tokens_G, count_G * longest_G
    cuts, tokens = places_G.tolist(), tokens_G.tolist()
    columns = first_G.tolist(), tokens, count_G.tolist(), longest_G.tolist()
    if cuts == tokens:
        return [Group(*row, None, None, None) for row in zip(*columns, strict=True)]
    longest_B = np.repeat(longest_G, count_G)
    begin_B = np.cumsum(size_B) - size_B - np.repeat(first_G, count_G)
    place_P = np.arange(longest_B.sum()) - np.repeat(np.cumsum(longest_B) - longest_B, longest_B)
    real_P = place_P < np.repeat(size_B, longest_B)
    token_P = np.where(real_P, place_P + np.repeat(begin_B, longest_B), 0)
    place_T = np.flatnonzero(real_P) - np.repeat(np.cumsum(places_G) - places_G, tokens_G)
    gathers, masks = (torch.from_numpy(x).split(cuts) for x in (token_P, real_P))
    reals = torch.from_numpy(place_T).split(tokens)
    return [_group(*row) for row in zip(*columns, gathers, reals, masks, strict=True)]


def _group(first: int, tokens: int, sequences: int, longest: int, gather: Tensor, real: Tensor, mask: Tensor) -> Group:
    if tokens == sequences * longest:
        return Group(first, tokens, sequences, longest, None, None, None)
    return Group(first, tokens, sequences, longest, gather, real, mask.view(sequences, 1, 1, longest))
