"""Is the file the model? Its answers beside our own on ragged batches, after writing.

Legend: B sequences, L longest, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.errors import UnmaskError
from unmask.hub.onnx.graph import DECODER_INPUTS, Graph, PaddedDecoder, PaddedEncoder
from unmask.hub.onnx.session import open_session
from unmask.hub.onnx.tasks import LOGITS, PaddedTask

TOLERANCE = 1e-4  # of the largest number of an answer, or of 1: what another order of fp32 sums may change
LENGTHS = ((1,), (9,), (5, 3, 1), (200, 2, 70, 1))  # beyond ModernBERT's window and most buckets of DeBERTa

Arrays = dict[str, NDArray[Any]]


def verify(graph: Graph, config: EncoderConfig, path: Path) -> float:
    """The worst difference between the file's answers and those of our packed network, as TOLERANCE counts it.

    Raises UnmaskError for a file that answers otherwise.
    """
    session = open_session(path, torch.get_num_threads())
    worst = 0.0
    for seed, lengths in enumerate(LENGTHS):
        batch = _random_batch([min(n, config.max_position_embeddings) for n in lengths], config, seed)
        given, expected = _case(graph, batch, config)
        found = dict(zip(graph.outputs, session.run(list(graph.outputs), given), strict=True))
        for name in graph.outputs:
            difference = _difference(found[name], *expected[name])
            if not difference <= TOLERANCE:  # also for NaN, which is no more and no less than any number
                raise UnmaskError(
                    f"the written graph does not compute this model: its {name} is {difference:.1e} away from our own, "
                    f"more than {TOLERANCE:.0e}",
                    where=path.name,
                    do="report it with the model's config.json; what stood in the output folder before is untouched",
                )
            worst = max(worst, difference)
    return worst


def padded(batch: PackedBatch) -> Arrays:
    """A batch as a graph takes it; padding has id 0, which no answer depends on."""
    layout = batch.layout
    types = torch.zeros_like(batch.input_ids) if batch.token_type_ids is None else batch.token_type_ids
    return {
        "input_ids": layout.pad(batch.input_ids).numpy(),
        "attention_mask": layout.valid().long().numpy(),
        "token_type_ids": layout.pad(types).numpy(),
    }


def _case(graph: Graph, batch: PackedBatch, config: EncoderConfig) -> tuple[Arrays, dict[str, tuple[Any, Any]]]:
    """Inputs of a graph, and for each output what it should be [B, L, …] or [B, …] and which places count."""
    network, layout = graph.network, batch.layout
    given, valid = padded(batch), layout.valid().numpy()
    with torch.no_grad():
        if isinstance(network, PaddedEncoder | PaddedTask):
            answers = network.answers(batch)
            expected = {
                name: (layout.pad(x).numpy(), valid) if of_tokens else (x.numpy(), np.ones(len(x), bool))
                for name, (x, of_tokens) in zip(graph.outputs, answers, strict=True)
            }
            return {name: given[name] for name in graph.inputs}, expected
        assert isinstance(network, PaddedDecoder)
        hidden_TD = network.encoder(batch)
        target = _random_batch([min(4, 1 + n // 2) for n in layout.lengths], config, 99)
        logits = network.head(network.encoder, hidden_TD, batch.with_(decoder=target)).dense()
        given = dict(
            zip(
                DECODER_INPUTS,
                (padded(target)["input_ids"], layout.pad(hidden_TD).numpy(), valid.astype(np.int64)),
                strict=True,
            )
        )
        return given, {LOGITS: (target.layout.pad(logits).numpy(), target.layout.valid().numpy())}


def _difference(found: NDArray[Any], expected: NDArray[Any], counts: NDArray[np.bool_]) -> float:
    if found.shape != expected.shape:
        return float("inf")
    right = expected[counts]
    return float(np.abs(found[counts] - right).max() / max(1.0, float(np.abs(right).max())))


def _random_batch(lengths: Sequence[int], config: EncoderConfig, seed: int) -> PackedBatch:
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(config.vocab_size, (n,), generator=generator).tolist() for n in lengths]
    types = [[int(2 * place >= n) for place in range(n)] for n in lengths] if config.type_vocab_size > 1 else None
    return PackedBatch.pack(ids, types)
