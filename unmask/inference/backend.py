"""What turns token ids into vectors: the one thing that torch and ONNX Runtime do differently.

Legend: T tokens of a batch, B texts, D numbers of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unmask.nn.pooling import Pooling


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Texts as token ids end to end, with the special tokens of their family, longest first; none is empty.

    There are no segments: a text to embed is all sentence A.
    """

    ids_T: NDArray[np.int64]
    lengths_B: NDArray[np.int64]


class Backend(Protocol):
    """A model ready to answer."""

    num_layers: int
    """How many layers there are: `layer` may be 0 (the embedded tokens) to `num_layers` (the output)."""

    batch_tokens: int
    """How many tokens of a batch suit it."""

    def pooled(self, batch: TokenBatch, pooling: Pooling, layer: int) -> NDArray[np.float32]:
        """[B, D] one vector for each text, in the batch's order; the hidden states are those after `layer` layers.

        A backend that has its states padded picks the real ones, [T, hidden_size] end to end, and calls `pool`. Raises
        UnmaskError for a layer that it cannot give.
        """
