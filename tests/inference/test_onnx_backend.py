"""ONNX Runtime gives the vectors that torch gives."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import GOALS, VARIANTS, our_network

from unmask.errors import UnmaskError
from unmask.hub.files import save_model
from unmask.inference.backend import TokenBatch
from unmask.inference.torch_backend import TorchBackend
from unmask.nn.pooling import MODES, Pooling

pytest.importorskip("onnxruntime")

from unmask.hub.onnx.export import export_onnx
from unmask.hub.onnx.session import open_session
from unmask.inference.onnx_backend import OnnxBackend

NAME = "bert"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[TorchBackend, OnnxBackend, Path]:
    folder = tmp_path_factory.mktemp("onnx")
    encoder, objective = our_network(VARIANTS[NAME], [GOALS["mlm"]])
    save_model(folder / "model", encoder, objective, tokenizer_folder=None, about={})
    export_onnx(folder / "model", folder / "onnx")
    return TorchBackend(encoder, torch.device("cpu")), OnnxBackend.load(folder / "onnx", threads=1), folder


def batch_of(lengths: list[int]) -> TokenBatch:
    generator = np.random.default_rng(0)
    return TokenBatch(generator.integers(5, 97, sum(lengths)), np.array(lengths))


@pytest.mark.parametrize("mode", MODES)
def test_vectors_are_those_of_torch(both: tuple[TorchBackend, OnnxBackend, Path], mode: str) -> None:
    ours, graph, _ = both
    for lengths in ([64, 9, 9, 1], [1], [5]):
        batch, pooling = batch_of(lengths), Pooling.of(mode)
        np.testing.assert_allclose(graph.pooled(batch, pooling, 3), ours.pooled(batch, pooling, 3), atol=1e-5)


def test_only_the_last_layer_is_there(both: tuple[TorchBackend, OnnxBackend, Path]) -> None:
    with pytest.raises(UnmaskError, match="its last layer, 3, only"):
        both[1].pooled(batch_of([3]), Pooling(), 1)


def test_a_folder_without_a_graph_is_told_how_to_get_one(both: tuple[TorchBackend, OnnxBackend, Path]) -> None:
    with pytest.raises(UnmaskError, match="has no model.onnx") as caught:
        OnnxBackend.load(both[2] / "model")
    assert "--format onnx --head none" in caught.value.do  # a fine-tuned folder's own graph gives no vectors


def test_a_graph_for_one_size_of_batch_is_refused_in_words(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 4])
    found = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [1, 4, 1])
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["numbers", "last"], ["last_hidden_state"]),
    ]
    last = helper.make_tensor("last", TensorProto.INT64, [1], [2])
    graph = helper.make_graph(nodes, "fixed", [given], [found], [last])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(tmp_path / "model.onnx"))
    backend = OnnxBackend(open_session(tmp_path / "model.onnx", 1), 3, tmp_path / "model.onnx")
    assert backend.pooled(batch_of([4]), Pooling(), 3).shape == (1, 1)
    with pytest.raises(UnmaskError, match="can't compute 2 × 5 tokens") as caught:
        backend.pooled(batch_of([5, 3]), Pooling(), 3)
    assert "model.onnx" in str(caught.value)
