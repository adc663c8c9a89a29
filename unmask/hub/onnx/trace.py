"""A network to an ONNX file, through torch.export, with the sizes of batch and length left open."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from unmask.config import EncoderConfig
from unmask.hub.onnx.graph import DECODER_INPUTS, Graph

OPSET = 23  # the first with attention and RMS norm as one operation each
DECODER_OPSET = 22  # ONNX Runtime's attention refuses a mask [B, 1, 1, L], which a decoder's look at its encoder has
PROTOBUF_LIMIT = 1_900_000_000  # bytes; a protobuf message ends at 2 GiB, so larger models keep their tensors beside


def write_graph(graph: Graph, config: EncoderConfig, path: Path) -> None:
    """Writes `path`, and beside it "<name>.data" where the tensors are too many for one file."""
    import onnx

    example = _example(graph, config)
    with without_remarks(), torch.no_grad():
        program = torch.onnx.export(
            graph.network,
            tuple(example.values()),
            dynamo=True,
            opset_version=DECODER_OPSET if graph.inputs == DECODER_INPUTS else OPSET,
            dynamic_shapes=tuple(_open_sizes(graph, config).values()),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces with the paths of this machine
    size = sum(p.numel() * p.element_size() for p in graph.network.parameters())
    program.save(str(path), external_data=size > PROTOBUF_LIMIT)
    onnx.checker.check_model(str(path), full_check=True)


def _example(graph: Graph, config: EncoderConfig) -> dict[str, Tensor]:
    """Inputs of an arbitrary size to trace with; neither 0, 1 nor a repeated size, which would be taken for a constant."""
    if graph.inputs == DECODER_INPUTS:
        states = torch.zeros(2, 7, config.hidden_size)
        return dict(zip(graph.inputs, (_ones(2, 5), states, _ones(2, 7)), strict=True))
    return {name: torch.zeros_like(_ones(2, 7)) if name == "token_type_ids" else _ones(2, 7) for name in graph.inputs}


def _ones(*size: int) -> Tensor:
    return torch.ones(size, dtype=torch.int64)


def _open_sizes(graph: Graph, config: EncoderConfig) -> dict[str, dict[int, torch.export.Dim]]:
    limit = config.max_position_embeddings
    batch, length = torch.export.Dim("batch_size"), torch.export.Dim("sequence_length", max=limit)
    sizes = dict.fromkeys(graph.inputs, {0: batch, 1: length})
    if graph.inputs == DECODER_INPUTS:
        sizes["input_ids"] = {0: batch, 1: torch.export.Dim("decoder_sequence_length", max=limit)}
    return sizes


@contextmanager
def without_remarks() -> Iterator[None]:
    """The exporter and the quantiser warn of their own insides, and of what they could do with other packages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
