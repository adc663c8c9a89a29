"""int8: the weights and inputs of matrix products in eight bits, kept only where texts still get the vectors they had.

Legend: N texts, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.hub.onnx.graph import HIDDEN
from unmask.hub.onnx.session import open_session
from unmask.hub.onnx.trace import without_remarks
from unmask.hub.onnx.verify import Arrays
from unmask.progress import Progress

LEAST_COSINE = 0.98  # of every text's vector with that of the fp32 model
SHARES = (0.0, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5)  # of the products that stay in fp32, tried in turn
WHAT = "int8, trials"


def quantise(source: Path, target: Path, batches: Sequence[Arrays], progress: Progress) -> tuple[float, int]:
    """Writes an int8 form of a graph; returns the least cosine over the texts, and how many products stayed in fp32.

    Weights get a scale per output channel and 7 bits: processors without VNNI add pairs of products in 16 bits, which 8
    would overflow. Inputs get the scale of their batch. Raises UnmaskError where even a half of the products in fp32 leaves
    a text below LEAST_COSINE; then nothing is written.
    """
    right_ND = _vectors(source, batches)
    products = _products(source)
    ranked: list[str] = []
    total, done, best = len(products) + len(SHARES), 0, -1.0
    for share in SHARES:
        if share and not ranked:
            costs = []
            for name in products:
                _write(source, target, [other for other in products if other != name])
                costs.append(_least_cosine(target, batches[:1], right_ND))
                progress(WHAT, done := done + 1, total)
            ranked = [products[i] for i in np.argsort(costs)]
        spared = ranked[: round(share * len(products))]
        _write(source, target, spared)
        best = max(best, least := _least_cosine(target, batches, right_ND))
        if least >= LEAST_COSINE:
            progress(WHAT, total, total)
            return least, len(spared)
        progress(WHAT, done := done + 1, total)
    target.unlink()
    raise UnmaskError(
        f"in int8 a text's vector has a cosine of {best:.3f} only with that of the fp32 model; {LEAST_COSINE} is asked for",
        do="export without --int8; models with few, very large activations lose too much",
    )


def _write(source: Path, target: Path, spared: Sequence[str]) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with without_remarks():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[node for name in spared for node in (name, f"{name}_MatMul")],  # a Gemm is split first
            use_external_data_format=source.with_name(source.name + ".data").exists(),
        )


def _products(path: Path) -> list[str]:
    """Names of the nodes that multiply by a stored matrix."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer} | {
        node.output[0] for node in graph.node if node.op_type == "Transpose"
    }
    return [node.name for node in graph.node if node.op_type in ("MatMul", "Gemm") and node.input[1] in stored]


def _least_cosine(path: Path, batches: Sequence[Arrays], right_ND: NDArray[Any]) -> float:
    found_ND = _vectors(path, batches)
    return float((found_ND * right_ND[: len(found_ND)]).sum(1).min())


def _vectors(path: Path, batches: Sequence[Arrays]) -> NDArray[Any]:
    """[N, D] the mean state of each text, at length 1."""
    session = open_session(path, torch.get_num_threads())
    names = [entry.name for entry in session.get_inputs()]
    means = []
    for batch in batches:
        hidden_BLD = session.run([HIDDEN], {name: batch[name] for name in names})[0]
        mask_BL1 = batch["attention_mask"][:, :, None]
        means.append((hidden_BLD * mask_BL1).sum(1) / mask_BL1.sum(1))
    vectors_ND: NDArray[Any] = np.concatenate(means)
    return vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)
