"""Words that know their neighbours on both sides: a bidirectional LSTM over ragged sequences (Huang et al. 2015).

Legend: W words end to end, B sequences (none empty), D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unmask.batch import Layout


class BiLSTM(nn.LSTM):
    """torch's LSTM over words instead of padded sequences; each direction has half of the width."""

    def __init__(self, width: int):
        if width % 2:
            raise ValueError(f"a bidirectional LSTM needs an even hidden_size, half for each direction, not {width}")
        super().__init__(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, words_WD: Tensor, layout: Layout) -> Tensor:  # type: ignore[override]
        """[W, D]; each sequence as if it were alone."""
        if not layout.lengths:
            return words_WD
        lengths = torch.tensor(layout.lengths)
        packed = pack_padded_sequence(layout.pad(words_WD), lengths, batch_first=True, enforce_sorted=False)
        out_BLD, _ = pad_packed_sequence(super().forward(packed)[0], batch_first=True)
        return layout.unpad(out_BLD)
