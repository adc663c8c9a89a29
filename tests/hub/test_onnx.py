"""An ONNX folder computes the model it came from, and is written whole and checked or not at all."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import VARIANTS, goals_of, our_network, sequences
from theirs import built

pytest.importorskip("onnxruntime")

from unmask.cli import export as cli
from unmask.errors import DamagedError, UnmaskError
from unmask.hub.files import LoadedModel, load_model, save_model
from unmask.hub.onnx import export, quantise, trace, verify
from unmask.hub.onnx.export import export_onnx
from unmask.hub.onnx.graph import HEADS, HIDDEN, LOGITS, build_graphs
from unmask.hub.onnx.session import open_session
from unmask.hub.onnx.verify import padded
from unmask.text.tokenizer import Tokenizer


def saved(folder: Path, name: str) -> LoadedModel:
    encoder, objective = our_network(VARIANTS[name], goals_of(name))
    save_model(folder, encoder, objective, tokenizer_folder=None, about={})
    return load_model(folder)


def written(folder: Path, name: str, head: str) -> float:
    """The worst difference of the graphs of a small model."""
    loaded = saved(folder / "model", name)
    worst = 0.0
    for graph in build_graphs(loaded, head, None):
        trace.write_graph(graph, loaded.config, folder / graph.file)
        worst = max(worst, verify.verify(graph, loaded.config, folder / graph.file))
    return worst


@pytest.mark.slow  # the exporter takes 4 to 7 s a graph
@pytest.mark.parametrize("name", VARIANTS)
def test_every_family_answers_alike(name: str, tmp_path: Path) -> None:
    """One graph with the first head holds the hidden states too; batches of 1 to 4 texts of 1 to 64 tokens are compared."""
    head = goals_of(name)[0].kind
    assert written(tmp_path, name, head) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), [("bert", "nsp"), ("albert", "sop")])
def test_heads_over_pairs_answer_alike(name: str, head: str, tmp_path: Path) -> None:
    assert written(tmp_path, name, head) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["electra", "roberta", "modernbert"])
def test_the_graph_of_a_published_folder_answers_like_transformers(name: str, tmp_path: Path) -> None:
    model = built(name)
    model.save_pretrained(tmp_path / "theirs")
    head = "rtd" if name == "electra" else "mlm"
    export_onnx(tmp_path / "theirs", tmp_path / "out", head=head)
    batch = sequences([9, 4, 1], load_model(tmp_path / "theirs").config)
    given = padded(batch)
    session = open_session(tmp_path / "out" / "model.onnx", 1)
    names = [entry.name for entry in session.get_inputs()]
    (found,) = session.run([LOGITS], {key: given[key] for key in names})
    with torch.no_grad():
        expected = model(**{key: torch.from_numpy(given[key]) for key in names}).logits.numpy()
    real = given["attention_mask"].astype(bool)
    np.testing.assert_allclose(found[real], expected[real], atol=1e-4)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small BERT in `model` and its graph in `onnx`."""
    folder = tmp_path_factory.mktemp("bert")
    saved(folder / "model", "bert")
    export_onnx(folder / "model", folder / "onnx")
    return folder


def test_batch_and_length_are_open_and_no_path_of_this_machine_is_told(bert: Path) -> None:
    import onnx

    graph = onnx.load(str(bert / "onnx" / "model.onnx")).graph
    sizes = {entry.name: [d.dim_param for d in entry.type.tensor_type.shape.dim] for entry in graph.input}
    names = ("input_ids", "attention_mask", "token_type_ids")
    assert sizes == dict.fromkeys(names, ["batch_size", "sequence_length"])
    assert str(Path(trace.__file__).parents[3]).encode() not in (bert / "onnx" / "model.onnx").read_bytes()


def test_a_graph_with_other_weights_is_refused(bert: Path) -> None:
    loaded = load_model(bert / "model")
    loaded.encoder["blocks.2.feed_forward.down.bias"][0] += 0.5
    (graph,) = build_graphs(loaded, "none", None)
    with pytest.raises(UnmaskError, match="does not compute this model"):
        verify.verify(graph, loaded.config, bert / "onnx" / "model.onnx")


def test_a_file_cut_short_is_damaged(bert: Path, tmp_path: Path) -> None:
    whole = (bert / "onnx" / "model.onnx").read_bytes()
    (tmp_path / "model.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match="can't be loaded"):
        open_session(tmp_path / "model.onnx", 1)


def test_a_failed_check_leaves_what_was_there(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    shutil.copytree(bert / "onnx", tmp_path / "onnx")
    before = {path.name: path.read_bytes() for path in (tmp_path / "onnx").iterdir() if path.is_file()}
    monkeypatch.setattr(verify, "TOLERANCE", 0.0)
    monkeypatch.setattr(
        export, "write_graph", lambda graph, config, path: shutil.copyfile(bert / "onnx" / "model.onnx", path)
    )
    with pytest.raises(UnmaskError, match="does not compute"):
        export_onnx(bert / "model", tmp_path / "onnx")
    assert {path.name: path.read_bytes() for path in (tmp_path / "onnx").iterdir() if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["onnx"]


def test_a_head_that_is_not_there_is_named_with_those_that_are(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="'rtd' is not in the folder") as caught:
        export_onnx(bert / "model", tmp_path / "out", head="rtd")
    assert caught.value.do == "give one of: none (hidden states), mlm, nsp"
    assert not (tmp_path / "out").exists() and set(HEADS) >= {"mlm", "nsp"}


def with_external(source: Path, target: Path, location: str) -> Path:
    """The graph with a tensor that claims to lie in another file."""
    import onnx

    model = onnx.load(str(source))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    target.write_bytes(model.SerializeToString())
    return target


def in_function(source: Path, target: Path, location: str) -> Path:
    """The graph with a function that holds a tensor which claims to lie in another file."""
    import onnx

    model = onnx.load(str(source))
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    node = onnx.helper.make_node("Constant", [], ["y"], value=tensor)
    model.functions.append(
        onnx.helper.make_function("ours", "f", [], ["y"], [node], [onnx.helper.make_opsetid("", 22)])
    )
    target.write_bytes(model.SerializeToString())
    return target


@pytest.mark.parametrize("placed", [with_external, in_function])
@pytest.mark.parametrize("location", ["*/_ORT_MEM_ADDR_/*", "weights"])
def test_tensors_in_files_that_are_not_there_are_refused(
    placed: Callable[[Path, Path, str], Path], location: str, bert: Path, tmp_path: Path
) -> None:
    path = placed(bert / "onnx" / "model.onnx", tmp_path / "model.onnx", location)
    with pytest.raises(DamagedError, match="a tensor's file .* is missing"):
        open_session(path, 1)


def test_tensors_of_functions_outside_of_the_folder_are_refused(bert: Path, tmp_path: Path) -> None:
    path = in_function(bert / "onnx" / "model.onnx", tmp_path / "model.onnx", "../secret")
    with pytest.raises(UnmaskError, match="not the name of a file inside its folder"):
        open_session(path, 1)


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "a/../../secret", "C:/x"])
def test_tensors_outside_of_the_folder_are_refused(location: str, bert: Path, tmp_path: Path) -> None:
    path = with_external(bert / "onnx" / "model.onnx", tmp_path / "model.onnx", location)
    with pytest.raises(UnmaskError, match="not the name of a file inside its folder"):
        open_session(path, 1)


def test_a_link_out_of_the_folder_is_refused(bert: Path, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"x" * 100)
    (inside / "weights").symlink_to(tmp_path / "secret")
    path = with_external(bert / "onnx" / "model.onnx", inside / "model.onnx", "weights")
    with pytest.raises(UnmaskError, match="not the name of a file inside"):
        open_session(path, 1)


def test_operations_of_others_are_refused(bert: Path, tmp_path: Path) -> None:
    import onnx

    model = onnx.load(str(bert / "onnx" / "model.onnx"))
    model.opset_import.add(domain="some.body", version=1)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnmaskError, match="operations of 'some.body'"):
        open_session(tmp_path / "model.onnx", 1)


def test_int8_keeps_vectors_or_is_refused(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, small = bert / "onnx" / "model.onnx", tmp_path / "small.onnx"
    batches = [padded(sequences([12, 7, 3], VARIANTS["bert"]))]
    monkeypatch.setattr(quantise, "LEAST_COSINE", 0.9)
    least, spared = quantise.quantise(source, small, batches, lambda *_: None)
    assert least >= 0.9 and 0 <= spared <= 6 and small.stat().st_size < source.stat().st_size
    monkeypatch.setattr(quantise, "LEAST_COSINE", 1.1)
    with pytest.raises(UnmaskError, match="a cosine of .* only"):
        quantise.quantise(source, small, batches, lambda *_: None)
    assert not small.exists()


def test_int8_needs_a_tokenizer_to_be_checked(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="has no tokenizer"):
        export_onnx(bert / "model", tmp_path / "out", int8=True)
    assert HIDDEN == "last_hidden_state"


@pytest.mark.parametrize("texts", [[], [""]])
def test_int8_without_a_token_to_check_on_is_refused_before_any_work(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0, "[MASK]": 1}, "merges": []},
    }
    Tokenizer(content, {"mask_token": "[MASK]"}).save(tmp_path / "tokenizer")
    encoder, objective = our_network(VARIANTS["bert"], goals_of("bert"))
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=tmp_path / "tokenizer", about={})
    monkeypatch.setattr(export, "build_graphs", lambda *_: pytest.fail("work was done"))
    with pytest.raises(UnmaskError, match="none has a token"):
        export_onnx(tmp_path / "model", tmp_path / "out", int8=True, texts=texts)


def test_a_file_without_texts_is_refused_before_a_run_is_exported(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "export_onnx", lambda *_, **__: pytest.fail("work was done"))
    (tmp_path / "empty.txt").write_text("\n  \n")
    with pytest.raises(UnmaskError, match="no text in the file"):
        cli.export(bert / "model", tmp_path / "out", kind="onnx", head="none", int8=True, texts=tmp_path / "empty.txt")
