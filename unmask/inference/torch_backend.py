"""The encoder on torch: packed tokens, no gradients."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import PackedBatch
from unmask.errors import UnmaskError
from unmask.inference.backend import TokenBatch
from unmask.inference.batches import CPU_TOKENS
from unmask.nn.encoder import Encoder
from unmask.nn.kernels.linear import pack
from unmask.nn.pooling import Pooling, pool
from unmask.train.machine import autocast, has_bf16

GPU_TOKENS = 32768
PACKED_BYTES = 512 << 20  # of parameters: in a larger model 3 % of the time are not worth matrices that are there twice


class TorchBackend:
    """An encoder that answers on one device, its matrix products in `precision`; the rest is fp32 always."""

    def __init__(self, encoder: Encoder, device: torch.device, precision: Literal["fp32", "bf16"] = "fp32"):
        if precision not in ("fp32", "bf16"):
            raise UnmaskError(f"unknown precision {precision!r}", where="precision", do="give fp32 or bf16")
        if precision == "bf16" and not has_bf16(device):
            raise UnmaskError(
                "this hardware has no bf16 products and would only emulate them, many times slower",
                where="precision",
                do="use fp32",
            )
        self.encoder, self.device = encoder.eval().to(device), device
        self.precision = torch.bfloat16 if precision == "bf16" else torch.float32
        self.batch_tokens = CPU_TOKENS if device.type == "cpu" else GPU_TOKENS
        self.num_layers = encoder.config.num_hidden_layers
        if _bytes(self.encoder) <= PACKED_BYTES:
            pack(self.encoder, self.batch_tokens)

    def pooled(self, batch: TokenBatch, pooling: Pooling, layer: int) -> NDArray[np.float32]:
        """[B, D]; see `Backend`."""
        starts = torch.from_numpy(np.r_[0, batch.lengths_B.cumsum()].astype(np.int32))
        with torch.inference_mode(), autocast(self.device, self.precision):
            packed = PackedBatch(torch.from_numpy(batch.ids_T), starts).to(self.device)
            last = layer == self.num_layers
            hidden_TD = self.encoder(packed) if last else self.encoder.layers(packed, until=layer)[-1]
            vectors: NDArray[np.float32] = pool(hidden_TD, packed.starts.diff().long(), pooling).cpu().numpy()
        return vectors


def _bytes(encoder: Encoder) -> int:
    return sum(p.nbytes for p in encoder.parameters())
