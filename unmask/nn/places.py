"""How attention knows where tokens stand: what is the same for every layer is computed once a batch.

Legend: T tokens, L longest, D hidden_size, H heads, K head size, N rows of a table of relative places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.batch import Layout
from unmask.config import Disentangled, EncoderConfig, RelativeBias, Rope
from unmask.nn.kernels.dropout import Dropout
from unmask.nn.kernels.plain import Offsets
from unmask.nn.parts import build_norm


@dataclass(frozen=True)
class Turns:
    """RoPE's angles as cosine and sine, each [T, 1, K/2], of global and of local layers."""

    everywhere: tuple[Tensor, Tensor]
    local: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Relative:
    """DeBERTa's table of relative places, and which of its rows stands for each offset from 1-L to L-1."""

    table_ND: Tensor
    rows: Tensor  # [2L-1]


Known = Turns | Offsets | Relative | None


class Places(nn.Module):
    """The shared table of relative places, where a model has one, and what a batch's layout makes of it."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        match config.positions:
            case RelativeBias(num_buckets=buckets):
                self.table = nn.Embedding(buckets, config.num_attention_heads)
            case Disentangled() as d:
                self.table = nn.Embedding(2 * d.span, config.hidden_size)
                self.norm = build_norm(config, config.hidden_size) if d.normed else nn.Identity()
                self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, layout: Layout) -> Known:
        match self.config.positions:
            case Rope() as rope:
                everywhere = turns(layout.position_ids, rope.theta, self.config.key_size)
                if not rope.local_theta or rope.local_theta == rope.theta:
                    return Turns(everywhere, everywhere)
                return Turns(everywhere, turns(layout.position_ids, rope.local_theta, self.config.key_size))
            case RelativeBias() as relative:
                rows = t5_buckets(-_offsets(layout), relative, both_sides=not self.config.causal)
                return Offsets(rows, bias_HN=self.table.weight.T)
            case Disentangled() as d:
                first, last = _rows_within(layout, d)
                rows = (deberta_buckets(_offsets(layout), d) + d.span).clamp(first, last) - first
                return Relative(self.dropout(self.norm(self.table.weight[first : last + 1])), rows)
        return None


def _offsets(layout: Layout) -> Tensor:
    """[2L-1] every i-j of a query at i and a key at j, from 1-L to L-1."""
    return torch.arange(1 - layout.longest, layout.longest, device=layout.position_ids.device)


def _rows_within(layout: Layout, d: Disentangled) -> tuple[int, int]:
    """The first and last row of the table that a batch reaches: short sequences need a few only.

    Worked out without asking the device. A dense layout may have any length, so all rows stay.
    """
    if layout.attention_mask is not None:
        return 0, 2 * d.span - 1
    farthest = deberta_buckets(torch.tensor([1 - layout.longest, layout.longest - 1], device="cpu"), d) + d.span
    first, last = farthest.clamp(0, 2 * d.span - 1).tolist()
    return int(first), int(last)


def turns(position_ids: Tensor, theta: float, key_size: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine [T, 1, K/2] of place × theta^(-2i/K) (Su et al. 2021, section 3.2.2)."""
    steps = torch.arange(0, key_size, 2, device=position_ids.device, dtype=torch.float32) / key_size
    angles = position_ids[:, None, None].float() * (1.0 / theta**steps)
    return angles.cos(), angles.sin()


def t5_buckets(distance: Tensor, relative: RelativeBias, *, both_sides: bool) -> Tensor:
    """Bucket of each key's distance from its query: near ones alone, far ones on a logarithmic scale (T5 section 2.1).

    A decoder never looks ahead, so all of its buckets are for what lies behind.
    """
    buckets = relative.num_buckets
    side = torch.zeros_like(distance)
    if both_sides:
        buckets //= 2
        side = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = -distance.clamp(max=0)
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(relative.max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return side + torch.where(distance < exact, distance, far)


def deberta_buckets(distance: Tensor, d: Disentangled) -> Tensor:
    """Row of each distance, counted from the middle: itself (v1), or beyond half of the buckets logarithmic (v2 section 3)."""
    if not d.position_buckets:
        return distance
    middle = d.position_buckets // 2
    size = distance.abs().clamp(min=1)
    farthest = torch.full((), (d.max_relative_positions - 1) / middle, device=distance.device)
    ratio = torch.log(size / middle) / torch.log(farthest)  # both in fp32, as released: `ceil` sees the last bit
    far = torch.ceil(ratio * (middle - 1)) + middle
    return torch.where(distance.abs() <= middle, distance.float(), far * distance.sign()).long()
