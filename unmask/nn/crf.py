"""Which sequence of tags fits best: a linear-chain conditional random field (Lafferty et al. 2001).

A path, one tag for each word, scores the sum of its words' scores for their tags, a number for each pair of neighbouring tags,
and one each for its first and its last tag. Its probability is exp(score) over the sum of that for all allowed paths. Words
come gathered, end to end: what is no word or has no tag is not among them, so transitions lead from word to word.

Legend: W words, B sequences (none empty), L longest, K tags; `edges_B2` says of a sequence that its first word begins the text
and its last word ends it. A piece from the middle of a text may begin and end with any tag at no cost; None: all are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unmask.batch import Layout
from unmask.config.tasks import Scheme
from unmask.errors import UnmaskError
from unmask.labelled.schemes import going_on, part_of

FORBIDDEN = -1e30  # in fp32 no sum of scores brings it back; -inf would make gradients NaN where no path leads to a tag


class Allowed(NamedTuple):
    """Which tags a text may begin and end with, and which may follow which (`steps_KK[i, j]`: j after i)."""

    start_K: Tensor
    steps_KK: Tensor
    end_K: Tensor

    def broken(self, tags_W: Tensor, starts: Tensor) -> Tensor:
        """[W] True at a word whose tag may not stand there; `starts` [B+1] are cumulative lengths of whole texts."""
        found = torch.zeros(len(tags_W), dtype=torch.bool)
        found[1:] = ~self.steps_KK[tags_W[:-1], tags_W[1:]]
        sizes = starts.diff()
        first, last = starts[:-1][sizes > 0], starts[1:][sizes > 0] - 1
        found[first] = ~self.start_K[tags_W[first]]
        found[last] |= ~self.end_K[tags_W[last]]
        return found


def allowed_transitions(labels: Sequence[str], scheme: Scheme) -> Allowed:
    """What a scheme allows. In bio, I-x follows B-x and I-x only. In bioes, and whatever has other letters for the same, I-x
    and E-x do, and nothing else follows these. In bios, I-x alone follows B-x. In plain, every tag follows every other.

    UnmaskError for a label that is not the scheme's, and where none can stand alone: a text of one word would have no path.
    """
    count = len(labels)
    if scheme == "plain":
        return Allowed(*(torch.ones(size, dtype=torch.bool) for size in ((count,), (count, count), (count,))))
    parts, unfinished = [part_of(label, scheme) for label in labels], going_on(scheme)
    goes_on = torch.tensor([role in ("I", "E") for role, _ in parts])
    is_open = torch.tensor([role in ("B", "I") for role, _ in parts])
    same = torch.tensor([[one == other for _, other in parts] for _, one in parts])
    may_end = torch.tensor([role not in unfinished for role, _ in parts])
    steps_KK = torch.where(goes_on, is_open[:, None] & same, may_end[:, None])
    if not (~goes_on & may_end).any():
        raise UnmaskError(
            f"no word can stand alone: all of the labels {', '.join(labels)} need another one before or after them",
            do=f"use labels of the scheme {scheme} with O among them, or scheme=plain",
        )
    return Allowed(~goes_on, steps_KK, may_end)


class CRF(nn.Module):
    """Scores of neighbouring tags, all 0 at first: then all allowed paths with equal words' scores are equally likely.

    All methods take words' scores [W, K] and the sequences' layout, and calculate in fp32.
    """

    may_start: Tensor
    may_follow: Tensor
    may_end: Tensor

    def __init__(self, allowed: Allowed):
        super().__init__()
        tags = len(allowed.start_K)
        self.start = nn.Parameter(torch.zeros(tags))
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # to the column's tag from the row's
        self.end = nn.Parameter(torch.zeros(tags))
        for name, mask in zip(("may_start", "may_follow", "may_end"), allowed, strict=True):
            self.register_buffer(name, mask.clone(), persistent=False)

    def log_likelihood(
        self, scores_WK: Tensor, tags_W: Tensor, layout: Layout, edges_B2: Tensor | None = None
    ) -> Tensor:
        """The sum over the sequences of the log-probability of `tags_W`; ValueError for a path that is not allowed (on a GPU,
        which would have to be waited for, a loss of 1e30)."""
        if not layout.lengths:
            return scores_WK.float().sum()
        path = _path_score(scores_WK.float(), tags_W, layout, self._chain(edges_B2, layout))
        if path.device.type == "cpu" and float(path.detach()) < FORBIDDEN / 2:
            raise ValueError("the tags to be learned break their scheme: repair them, or take a linear decoder")
        return path - self.log_partition(scores_WK, layout, edges_B2).sum()

    def log_partition(self, scores_WK: Tensor, layout: Layout, edges_B2: Tensor | None = None) -> Tensor:
        """[B] the logarithm of the sum of exp(score) over all allowed paths of each sequence."""
        start_BK, steps_KK, end_BK = self._chain(edges_B2, layout)
        grid_BLK, top_BL = _prefixes(scores_WK.float(), layout, start_BK, steps_KK, torch.logsumexp)
        last_B = layout.starts.long().diff() - 1
        row_B = torch.arange(len(last_B), device=last_B.device)
        return (grid_BLK[row_B, last_B] + end_BK).logsumexp(-1) + top_BL[row_B, last_B]

    @torch.no_grad()
    def marginals(self, scores_WK: Tensor, layout: Layout, edges_B2: Tensor | None = None) -> Tensor:
        """[W, K] the probability that a word has a tag, over all allowed paths (forward-backward)."""
        start_BK, steps_KK, end_BK = self._chain(edges_B2, layout)
        scores_WK, starts = scores_WK.float(), layout.starts.long()
        mirror_W = (starts[:-1] + starts[1:] - 1)[layout.rows] - torch.arange(len(scores_WK), device=starts.device)
        before_BLK, _ = _prefixes(scores_WK, layout, start_BK, steps_KK, torch.logsumexp)
        behind_BLK, _ = _prefixes(scores_WK[mirror_W], layout, end_BK, steps_KK.t(), torch.logsumexp)
        twice_WK = layout.unpad(before_BLK) + layout.unpad(behind_BLK)[mirror_W]  # each with the word's own score
        return (twice_WK - scores_WK).softmax(-1)

    @torch.no_grad()
    def best(self, scores_WK: Tensor, layout: Layout, edges_B2: Tensor | None = None) -> Tensor:
        """[W] the allowed path of the highest score in each sequence (Viterbi); of equal ones the lower tag, from the end on."""
        start_BK, steps_KK, end_BK = self._chain(edges_B2, layout)
        grid_BLK, _ = _prefixes(scores_WK.float(), layout, start_BK, steps_KK, torch.amax)
        last_B = layout.starts.long().diff() - 1
        tag_B, found = torch.zeros_like(last_B), []
        for place in reversed(range(layout.longest)):
            after_BK = torch.where((last_B == place)[:, None], end_BK, steps_KK.t()[tag_B])
            tag_B = (grid_BLK[:, place] + after_BK).argmax(-1)
            found.append(tag_B)
        return layout.unpad(torch.stack(found[::-1], 1))

    def _chain(self, edges_B2: Tensor | None, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [B, K] of first tags, [K, K] of neighbours, [B, K] of last tags: learned ones, or FORBIDDEN."""
        start, steps, end = (
            torch.where(mask, learned.float(), FORBIDDEN)
            for mask, learned in (
                (self.may_start, self.start), (self.may_follow, self.transitions), (self.may_end, self.end),
            )
        )  # fmt: skip
        if edges_B2 is None:
            return start.expand(len(layout.lengths), -1), steps, end.expand(len(layout.lengths), -1)
        return torch.where(edges_B2[:, :1], start, 0.0), steps, torch.where(edges_B2[:, 1:], end, 0.0)


def _prefixes(
    scores_WK: Tensor, layout: Layout, start_BK: Tensor, steps_KK: Tensor, total: Callable[[Tensor, int], Tensor]
) -> tuple[Tensor, Tensor]:
    """[B, L, K] `total` over all paths that end at a word with a tag, its own score with them, less [B, L] the best of them.

    Small numbers keep their digits over thousands of words. Behind the end of a sequence the chain runs on over zeros; nobody
    reads what comes of it, so no gradient comes back.
    """
    grid_BLK, into_KK = layout.pad(scores_WK), steps_KK.t().contiguous()
    at_BK = start_BK + grid_BLK[:, 0]
    found, tops = [], []
    for place in range(layout.longest):
        if place:
            at_BK = total(at_BK[:, None, :] + into_KK, -1) + grid_BLK[:, place]
        top_B1 = at_BK.detach().amax(-1, keepdim=True)
        at_BK = at_BK - top_B1
        found.append(at_BK)
        tops.append(top_B1)
    return torch.stack(found, 1), torch.cat(tops, 1).cumsum(1)


def _path_score(scores_WK: Tensor, tags_W: Tensor, layout: Layout, chain: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Of given tags, all sequences together."""
    start_BK, steps_KK, end_BK = chain
    first, behind = layout.starts[:-1].long(), layout.starts[1:].long()
    inside = layout.rows[1:] == layout.rows[:-1]  # no step leads into the next sequence
    steps = torch.where(inside, steps_KK[tags_W[:-1], tags_W[1:]], 0.0)
    ends = start_BK.gather(1, tags_W[first, None]) + end_BK.gather(1, tags_W[behind - 1, None])
    return scores_WK.gather(1, tags_W[:, None]).sum() + steps.sum() + ends.sum()
