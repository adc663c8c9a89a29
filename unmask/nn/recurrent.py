"""Layers that read a text from the left and from the right, and never mix the two (ELMo: Peters et al. 2018, section 3.1).

Legend: W words end to end, B sequences (none empty), D hidden_size: the first half is what was read from the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from unmask.batch import Layout
from unmask.config import EncoderConfig, Recurrent
from unmask.nn.kernels.dropout import Dropout


class RecurrentBlock(nn.Module):
    """An LSTM with a projection for each direction (Sak et al. 2014, section 2.2), from the second layer on added to its input.

    Each half of the output depends on the same half of the input alone. Nothing is kept from batch to batch: the released code
    went on where the batch before had ended, so that the same sentence got other vectors. Nor are cells clipped, which torch's
    fused LSTM can't do; clipped gradients keep the training steady.
    """

    def __init__(self, config: EncoderConfig, layer: Recurrent, *, first: bool):
        super().__init__()
        half = config.hidden_size // 2
        self.from_left = nn.LSTM(half, layer.cell_size, proj_size=half)
        self.from_right = nn.LSTM(half, layer.cell_size, proj_size=half)
        self.residual = not first
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x_WD: Tensor, layout: Layout) -> Tensor:
        """[W, D]; `layout` is that of words."""
        steps = layout.once("steps", lambda: Steps.of(layout))
        left_WP, right_WP = x_WD.chunk(2, -1)
        read = [
            _read(self.from_left, left_WP, steps.from_left, steps),
            _read(self.from_right, right_WP, steps.from_right, steps),
        ]
        out: Tensor = self.dropout(torch.cat(read, -1))
        return x_WD + out if self.residual else out


@dataclass(frozen=True, eq=False)
class Order:
    """Words in the order in which they are read, and back."""

    there_W: Tensor
    back_W: Tensor


@dataclass(frozen=True, eq=False)
class Steps:
    """How all sequences are read at once: the first words of all of them, then the second ones of those that have one …"""

    from_left: Order
    from_right: Order
    words: Tensor  # [steps] words read in each step, on the CPU

    @classmethod
    def of(cls, layout: Layout) -> Steps:
        """Made once a batch, for all layers."""
        lengths_B = np.array(layout.lengths)
        rank_B = np.empty_like(lengths_B)
        rank_B[np.argsort(-lengths_B, kind="stable")] = np.arange(len(lengths_B))
        rows_W = np.repeat(np.arange(len(lengths_B)), lengths_B)
        place_W = np.arange(len(rows_W)) - np.repeat(np.cumsum(lengths_B) - lengths_B, lengths_B)
        behind_W, rank_W, device = lengths_B[rows_W] - 1 - place_W, rank_B[rows_W], layout.starts.device
        words = torch.from_numpy(np.bincount(place_W).astype(np.int64))
        return cls(_order(place_W, rank_W, device), _order(behind_W, rank_W, device), words)


def _order(step_W: NDArray[np.int64], rank_W: NDArray[np.int64], device: torch.device) -> Order:
    there_W = np.lexsort((rank_W, step_W))
    back_W = np.empty_like(there_W)
    back_W[there_W] = np.arange(len(there_W))
    return Order(torch.from_numpy(there_W).to(device), torch.from_numpy(back_W).to(device))


def _read(lstm: nn.LSTM, x_WP: Tensor, order: Order, steps: Steps) -> Tensor:
    """[W, P]: each sequence as if it were alone."""
    there_WP = x_WP.index_select(0, order.there_W)
    if there_WP.is_cuda:
        read_WP: Tensor = lstm(PackedSequence(there_WP, steps.words))[0].data
    else:
        read_WP = step_by_step(lstm, there_WP, steps.words.tolist())
    return read_WP.index_select(0, order.back_W)


def step_by_step(lstm: nn.LSTM, x_WP: Tensor, words: Sequence[int]) -> Tensor:
    """[W, P]: what torch's LSTM makes of the same `PackedSequence`, in fewer than half the time where there is no cuDNN: on its
    way back, torch fills a matrix for all words with zeros at every step.

    Cells are fp32 also under autocast.
    """
    w = lstm.get_parameter
    input_bias = w("bias_ih_l0") + w("bias_hh_l0")
    from_input = F.linear(x_WP, w("weight_ih_l0"), input_bias).split(list(words))
    told = x_WP.new_zeros(words[0], lstm.proj_size)
    cell = x_WP.new_zeros(words[0], lstm.hidden_size, dtype=torch.float32)
    out = []
    for from_input_B, count in zip(from_input, words, strict=True):
        if count < len(told):  # sequences that have ended; the longest stand first
            told, cell = told[:count], cell[:count]
        gates = from_input_B + F.linear(told, w("weight_hh_l0"))
        taken, kept, new, shown = gates.chunk(4, 1)
        cell = kept.sigmoid() * cell + taken.sigmoid() * new.tanh()
        told = F.linear(shown.sigmoid() * cell.tanh(), w("weight_hr_l0"))
        out.append(told)
    return torch.cat(out)
