"""The ONNX graph of a fine-tuned folder answers like its class in transformers, under the names that Optimum gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from numpy.typing import NDArray
from small_models import VARIANTS, randomise, sequences
from task_models import LABELS, edit, our_logits, theirs_of
from task_models import saved as saved_task
from typer.testing import CliRunner

pytest.importorskip("onnxruntime")

from unmask.batch import PackedBatch
from unmask.cli.main import app
from unmask.config import Tagging
from unmask.errors import UnmaskError
from unmask.hub.files import build_encoder, load_model, save_model
from unmask.hub.onnx import trace, verify
from unmask.hub.onnx.export import OnnxReport, export_onnx
from unmask.hub.onnx.graph import HIDDEN, Graph, build_graphs
from unmask.hub.onnx.session import open_session
from unmask.hub.onnx.tasks import PaddedTask, build_task_head, task_outputs
from unmask.hub.onnx.verify import padded
from unmask.hub.task_heads import TaskSettings, head_shape
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.tag import TagObjective

LENGTHS = [9, 1, 20, 64]
TAGS = ("O", "B-PER", "I-PER")


def asked(folder: Path, batch: PackedBatch) -> dict[str, NDArray[Any]]:
    """All outputs of an ONNX folder, by their names."""
    session, given = open_session(folder / "model.onnx", 1), padded(batch)
    inputs = {entry.name: given[entry.name] for entry in session.get_inputs()}
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.slow  # the exporter takes 4 to 7 s a graph
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert", "classify"), ("bert", "tag"), ("bert", "answer"), ("roberta", "classify"), ("deberta-v2", "classify"),
        ("modernbert-mean", "classify"), ("modernbert", "tag"), ("gpt2", "classify"), ("albert", "answer"),
        ("electra", "tag"),
    ],
)  # fmt: skip
def test_the_graph_of_a_fine_tuned_folder_answers_like_transformers(name: str, kind: str, tmp_path: Path) -> None:
    model = theirs_of(name, kind)
    model.save_pretrained(tmp_path / "theirs")
    report = export_onnx(tmp_path / "theirs", tmp_path / "out")
    assert report.head == kind and report.notes == ()
    batch = sequences(LENGTHS, load_model(tmp_path / "theirs").config)
    batch = batch.with_(input_ids=batch.input_ids.clamp(min=1))  # GPT-2's class looks for padding by its id
    given, found = padded(batch), asked(tmp_path / "out", batch)
    names = [key for key in given if key != "token_type_ids" or model.config.to_dict().get("type_vocab_size", 0) > 1]
    with torch.no_grad():
        expected = model(**{key: torch.from_numpy(given[key]) for key in names})
    real = given["attention_mask"].astype(bool) if kind != "classify" else slice(None)
    assert tuple(found) == (("start_logits", "end_logits") if kind == "answer" else ("logits",))
    for output, array in found.items():
        np.testing.assert_allclose(array[real], getattr(expected, output).numpy()[real], atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "modernbert-mean", "gpt2", "roberta"])
def test_padding_changes_no_answer_of_the_network_that_is_traced(name: str, tmp_path: Path) -> None:
    theirs_of(name, "classify").save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    network = PaddedTask(build_encoder(loaded), build_task_head(loaded, "classify"), "classify")
    batch = sequences(LENGTHS, loaded.config)
    given = {key: torch.from_numpy(array) for key, array in padded(batch).items()}
    with torch.no_grad():
        (found,) = network(given["input_ids"], given["attention_mask"])
    plain = our_logits(loaded, "classify", batch.with_(token_type_ids=torch.zeros_like(batch.input_ids)))
    torch.testing.assert_close(found, plain, atol=2e-5, rtol=2e-4)


def tagger(folder: Path, decoder: Any) -> Path:
    config = replace(VARIANTS["bert"], attention_probs_dropout_prob=0.0, num_hidden_layers=1)
    encoder = Encoder(config)
    objective = TagObjective(config, Tagging(labels=TAGS, decoder=decoder), head_shape("bert", "tag"))
    for seed, part in enumerate((encoder, objective)):
        randomise(part, seed)
    joint = Joint({"tag": objective})
    task = TaskSettings(labels=TAGS)
    save_model(folder, encoder, joint, tokenizer_folder=None, about={}, task=task, model_type="bert")
    return folder


@pytest.fixture(scope="module")
def crf(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, OnnxReport]:
    """A folder with a tagger in `model` and its graph in `onnx`; what asks for it is slow, since the exporter is."""
    folder = tmp_path_factory.mktemp("crf")
    return folder, export_onnx(tagger(folder / "model", "crf"), folder / "onnx")


@pytest.mark.slow
def test_a_crf_tagger_gives_its_emissions_and_says_so(crf: tuple[Path, OnnxReport]) -> None:
    folder, report = crf
    loaded = load_model(folder / "model")
    batch = sequences(LENGTHS, loaded.config)
    found = asked(folder / "onnx", batch)
    assert tuple(found) == ("logits",) and found["logits"].shape == (4, 64, 3)
    state = {name: tensor for name, tensor in loaded.heads["tag"].items() if not name.startswith("crf.")}
    expected = our_logits(replace(loaded, heads={"tag": state}), "tag", batch).numpy()
    real = padded(batch)["attention_mask"].astype(bool)
    np.testing.assert_allclose(found["logits"][real], expected, atol=1e-4)
    assert len(report.notes) == 1 and "emissions of a CRF" in report.notes[0]


@pytest.mark.slow
def test_an_onnx_folder_names_the_labels(crf: tuple[Path, OnnxReport]) -> None:
    names = json.loads((crf[0] / "onnx" / "config.json").read_text(encoding="utf-8"))["id2label"]
    assert names == {"0": "O", "1": "B-PER", "2": "I-PER"}


@pytest.mark.slow
def test_batch_and_length_of_a_task_s_graph_are_open(crf: tuple[Path, OnnxReport]) -> None:
    import onnx

    graph = onnx.load(str(crf[0] / "onnx" / "model.onnx")).graph
    sizes = {
        entry.name: [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim] for entry in graph.input
    }
    (logits,) = graph.output
    assert sizes["input_ids"] == ["batch_size", "sequence_length"]
    assert [d.dim_param or d.dim_value for d in logits.type.tensor_type.shape.dim] == [
        "batch_size", "sequence_length", 3,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_graph_with_another_head_is_refused(crf: tuple[Path, OnnxReport]) -> None:
    loaded = load_model(crf[0] / "model")
    loaded.heads["tag"]["out.bias"][1] += 0.5
    network = PaddedTask(build_encoder(loaded), build_task_head(loaded, "tag"), "tag")
    names = ("input_ids", "attention_mask", "token_type_ids")
    graph = Graph("model.onnx", network, names, task_outputs("tag"))
    with pytest.raises(UnmaskError, match="does not compute this model"):
        verify.verify(graph, loaded.config, crf[0] / "onnx" / "model.onnx")


def test_a_graph_that_answers_nan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def run(self, names: list[str], given: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
            return [np.full((*given["input_ids"].shape, len(TAGS)), np.nan, np.float32) for _ in names]

    loaded = load_model(tagger(tmp_path / "model", "linear"))
    (graph,) = build_graphs(loaded, "tag", None)
    monkeypatch.setattr(verify, "open_session", lambda *_: Broken())
    with pytest.raises(UnmaskError, match="its logits is nan away"):
        verify.verify(graph, loaded.config, tmp_path / "model.onnx")


def test_a_tagger_with_an_lstm_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace.torch.onnx, "export", lambda *_, **__: pytest.fail("work was done"))
    with pytest.raises(UnmaskError, match="LSTM reads the first pieces of words"):
        export_onnx(tagger(tmp_path / "model", "bilstm_crf"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_int8_of_a_task_s_head_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = tagger(tmp_path / "model", "linear")
    with pytest.raises(UnmaskError, match="int8 is for hidden states") as caught:
        export_onnx(folder, tmp_path / "out", int8=True)
    assert "--head none" in caught.value.do


@pytest.mark.slow
def test_a_folder_that_names_no_labels_gets_those_of_transformers(tmp_path: Path) -> None:
    theirs_of("bert", "classify").save_pretrained(tmp_path / "five")
    edit(tmp_path / "five", id2label=None, label2id=None)
    export_onnx(tmp_path / "five", tmp_path / "out", head="classify")
    names = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert names["id2label"] == {str(at): f"LABEL_{at}" for at in range(len(LABELS))}
    assert names["label2id"] == {f"LABEL_{at}": at for at in range(len(LABELS))}


@pytest.mark.slow
def test_a_cross_encoder_s_graph_gives_the_raw_score_that_transformers_gives(tmp_path: Path) -> None:
    task = TaskSettings(labels=("LABEL_0",), problem_type="regression", activation="sigmoid")
    saved_task("bert", "classify", tmp_path / "model", task)
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    batch = sequences(LENGTHS, load_model(tmp_path / "model").config)
    model = hf.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "model", attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(array) for name, array in padded(batch).items()}).logits.numpy()
    found = asked(tmp_path / "onnx", batch)["logits"]
    assert found.shape == (4, 1)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.slow
def test_the_command_says_which_head_was_written(tmp_path: Path) -> None:
    saved_task("bert", "classify", tmp_path / "model")
    done = CliRunner().invoke(
        app, ["export", str(tmp_path / "model"), "--format", "onnx", "--out", str(tmp_path / "onnx")]
    )
    assert done.exit_code == 0, done.output
    assert "classify" in done.output
    names = json.loads((tmp_path / "onnx" / "config.json").read_text(encoding="utf-8"))["id2label"]
    assert tuple(names.values()) == LABELS
    loaded = load_model(tmp_path / "model")
    batch = sequences(LENGTHS, loaded.config)
    found = asked(tmp_path / "onnx", batch)["logits"]
    np.testing.assert_allclose(found, our_logits(loaded, "classify", batch).numpy(), atol=1e-4)


def test_hidden_states_of_a_fine_tuned_folder_can_still_be_asked_for(tmp_path: Path) -> None:
    (graph,) = build_graphs(load_model(tagger(tmp_path / "model", "crf")), "none", None)
    assert graph.outputs == (HIDDEN,)


def test_a_fine_tuning_run_stands_for_the_model_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[Path] = []

    def write(model: Path, out: Path, **_: Any) -> OnnxReport:
        asked_for.append(model)
        return OnnxReport(("model.onnx",), 0.0, head="tag", notes=("read this",))

    monkeypatch.setattr("unmask.hub.onnx.export.export_onnx", write)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text(json.dumps({"run": {"task": {"kind": "tag"}, "model": "x"}}))
    done = CliRunner().invoke(
        app, ["export", str(tmp_path / "run"), "--format", "onnx", "--out", str(tmp_path / "onnx")]
    )
    assert done.exit_code == 0, done.output
    assert asked_for == [tmp_path / "run" / "model"] and "Note: read this." in done.output
