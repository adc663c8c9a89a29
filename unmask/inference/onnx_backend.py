"""The encoder on ONNX Runtime: batches padded to their longest text.

Legend: T tokens of a batch, B texts, L longest, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.hub.configs import read_config, read_json
from unmask.hub.onnx.graph import HIDDEN
from unmask.hub.onnx.session import open_session
from unmask.inference.backend import TokenBatch
from unmask.inference.batches import CPU_TOKENS
from unmask.nn.pooling import Pooling, pool

if TYPE_CHECKING:
    import onnxruntime

PLACES = ("model.onnx", "onnx/model.onnx")  # ours and Optimum's; sentence-transformers'
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxBackend:
    """A graph that gives hidden states. Calls may come from several threads."""

    def __init__(self, session: onnxruntime.InferenceSession, num_layers: int, where: Path):
        self.session, self.num_layers, self.batch_tokens, self.where = session, num_layers, CPU_TOKENS, str(where)
        self._inputs = [entry.name for entry in session.get_inputs()]
        outputs = [entry.name for entry in session.get_outputs()]
        strange = [name for name in self._inputs if name not in INPUTS]
        if strange or HIDDEN not in outputs:
            raise UnmaskError(
                f"the graph asks for {strange[0]!r}"
                if strange
                else f"the graph gives no {HIDDEN}, but {', '.join(outputs)}",
                where=self.where,
                do="choose a graph that turns ids into hidden states: `unmask export MODEL --format onnx --head none` writes one",
            )

    @classmethod
    def load(cls, folder: Path, threads: int = 0) -> OnnxBackend:
        """From a folder with model.onnx and config.json; `threads` 0: as many as torch has.

        Raises UnmaskError for a folder without a graph and for one that has other inputs and outputs, and the errors of
        `open_session`.
        """
        path = next((folder / name for name in PLACES if (folder / name).is_file()), None)
        if path is None:
            raise UnmaskError(
                "the folder has no model.onnx",
                where=str(folder),
                do=f"write one: unmask export {folder} --format onnx --head none --out FOLDER",
            )
        _, config = read_config(read_json(folder / "config.json"), where=str(folder / "config.json"))
        session = open_session(path, threads or torch.get_num_threads())
        return cls(session, config.num_hidden_layers, path)

    def pooled(self, batch: TokenBatch, pooling: Pooling, layer: int) -> NDArray[np.float32]:
        """[B, D]; see `Backend`. A graph gives the last layer only."""
        if layer != self.num_layers:
            raise UnmaskError(
                f"an ONNX graph gives its last layer, {self.num_layers}, only",
                where="layer",
                do="leave it away, or use the torch backend",
            )
        real_BL = np.arange(batch.lengths_B.max()) < batch.lengths_B[:, None]
        input_ids = np.zeros(real_BL.shape, np.int64)
        input_ids[real_BL] = batch.ids_T
        given = dict(zip(INPUTS, (input_ids, real_BL.astype(np.int64), np.zeros_like(input_ids)), strict=True))
        hidden_BLD = self._run({name: given[name] for name in self._inputs})
        with torch.inference_mode():
            hidden_TD, lengths_B = torch.from_numpy(hidden_BLD[real_BL]), torch.from_numpy(batch.lengths_B)
            vectors: NDArray[np.float32] = pool(hidden_TD, lengths_B, pooling).numpy()
        return vectors

    def _run(self, given: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        """[B, L, D]. A graph of others may take one size or another type only, or ask for more memory than there is."""
        try:
            hidden_BLD: NDArray[np.float32] = self.session.run([HIDDEN], given)[0]
        except Exception as error:  # its errors share no class of their own
            size = " × ".join(map(str, given["input_ids"].shape))
            raise UnmaskError(
                f"the graph can't compute {size} tokens: {str(error).strip()[:300]}",
                where=self.where,
                do="use a graph for any number and length of texts, such as `unmask export` writes, or shorter texts",
            ) from None
        return hidden_BLD
