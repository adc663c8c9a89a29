"""Opening an ONNX file, which may be anybody's: nothing outside of its folder is read, and no code is loaded for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.errors import DamagedError, UnmaskError
from unmask.files import safe_join

if TYPE_CHECKING:
    import onnx
    import onnxruntime

DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")  # what ONNX Runtime computes without libraries of others


def require_onnx() -> None:
    """UnmaskError that names the extra, where its packages are not installed."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise UnmaskError(f"ONNX needs the package {package}", do="install it: pip install 'unmask[onnx]'")


def open_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """The file ready to run on the CPU with that many threads.

    Raises UnmaskError for a file that keeps tensors outside of its folder or needs operations of others, DamagedError for
    one that is no ONNX model.
    """
    require_onnx()
    import onnxruntime

    _require_harmless(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; warnings are about its own optimiser
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # torch's threads want the cores in between
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors share no class of their own
        raise _damaged(path, error) from None


def _require_harmless(path: Path) -> None:
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except FileNotFoundError:
        raise UnmaskError("there is no such file", where=str(path), do="check the path of the model") from None
    except Exception as error:  # protobuf's own, whichever of its implementations is at work
        raise _damaged(path, error) from None
    for tensor in chain(_tensors(model.graph), *(_tensors_of_nodes(function.node) for function in model.functions)):
        for entry in tensor.external_data:
            if entry.key == "location":
                _require_file(path, entry.value)
    for opset in model.opset_import:
        if opset.domain not in DOMAINS or model.functions and opset.domain not in ("", "ai.onnx"):
            raise UnmaskError(
                f"the file needs operations of {ascii(opset.domain)[:80]}, and no code of a model is ever run",
                where=str(path),
                do="choose a model of standard operations, for example by `unmask export --format onnx`",
            )


def _require_file(path: Path, location: str) -> None:
    """A real one: some names that are none mean addresses in memory to ONNX Runtime."""
    if not safe_join(path.parent, location).is_file():
        raise DamagedError(
            f"a tensor's file {ascii(location)[:80]} is missing", where=str(path), do="use another copy of the folder"
        )


def _tensors(graph: onnx.GraphProto) -> Iterator[Any]:
    """Every tensor of a graph, those of its nodes' attributes and inner graphs too."""
    yield from graph.initializer
    yield from _of_sparse(graph.sparse_initializer)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            yield from _of_sparse([attribute.sparse_tensor, *attribute.sparse_tensors])
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _of_sparse(tensors: Iterable[onnx.SparseTensorProto]) -> Iterator[Any]:
    for sparse in tensors:
        yield from (sparse.values, sparse.indices)


def _damaged(path: Path, error: Exception) -> DamagedError:
    return DamagedError(
        f"{path.name} can't be loaded: {str(error).strip()[:200]}", where=str(path), do="use another copy of the folder"
    )
