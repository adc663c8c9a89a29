"""Fine-tuning with low-rank adapters: it learns, moves nothing else, resumes bit for bit, and leaves a folder like any other."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_models import SMALL, padded, sequences
from toy import texts, toy_model, tune, write

from unmask.config import AdamW, FineTuning, Keeping, Machine, Muon
from unmask.errors import UnmaskError
from unmask.hub.files import load_model
from unmask.nn.encoder import Encoder
from unmask.nn.lora import Adapted, merge
from unmask.tasks import run as road
from unmask.tasks.layers import add_adapters, layer_scales
from unmask.tasks.saved import TaskModel
from unmask.train.checkpoint import Checkpoints
from unmask.train.journal import read_run

RANK = 8


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(small_corpus, tmp_path_factory.mktemp("toy") / "model")


def settings(model: Path, folder: Path, **changes: Any) -> FineTuning:
    train, dev = write(folder / "train.jsonl", texts(200, 0)), write(folder / "dev.jsonl", texts(60, 1))
    run = FineTuning(
        model=str(model), train=str(train), dev=str(dev), examples=16, epochs=1, max_length=48, lora_rank=RANK,
        optimizer=AdamW(learning_rate=5e-3), keeping=Keeping(evaluations=2, keep_last=9),
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    return replace(run, **changes)


def last_tensors(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    found, _ = Checkpoints(folder / "steps").newest()
    assert found is not None
    return Checkpoints(folder / "steps").load(found)[0]


def test_a_toy_task_is_learned_and_the_folder_answers_as_the_run_did(model: Path, tmp_path: Path) -> None:
    metrics, _ = tune(settings(model, tmp_path, epochs=3.0), tmp_path / "run")
    assert metrics["accuracy"] > 0.9
    loaded = TaskModel.load(tmp_path / "run" / "model")
    read = loaded.job.read(str(tmp_path / "dev.jsonl"))
    assert loaded.answer(loaded.features(read.examples)).metrics == pytest.approx(metrics)


@pytest.mark.slow  # importing their library takes seconds
def test_transformers_loads_the_folder_and_answers_as_the_network_with_its_adapters_did(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    unmerged: list[Encoder] = []

    def spy(encoder: Encoder) -> None:
        unmerged.append(copy.deepcopy(encoder).eval())
        merge(encoder)

    monkeypatch.setattr(road, "merge", spy)
    tune(settings(model, tmp_path), tmp_path / "run")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    batch, objective = sequences([3, 12, 1, 7]), TaskModel.load(tmp_path / "run" / "model").objective
    with torch.no_grad():
        found = theirs(**padded(batch)).logits
        ours = objective.predict(unmerged[0], batch)["logits"]
    assert any(isinstance(part, Adapted) for part in unmerged[0].modules())
    torch.testing.assert_close(ours, found, rtol=1e-5, atol=1e-5)


def test_the_encoder_keeps_every_bit_and_only_what_learns_has_moments(model: Path, tmp_path: Path) -> None:
    _, seen = tune(settings(model, tmp_path), tmp_path / "run")
    start, tensors = load_model(model).encoder, last_tensors(tmp_path / "run")
    assert all(torch.equal(tensors["encoder"][name], start[name]) for name in start)
    adapters = tensors["encoder"].keys() - start.keys()
    assert len(adapters) == 2 * 4 * SMALL.num_hidden_layers
    assert all(bool(tensors["encoder"][name].any()) for name in adapters)
    learned = {f"encoder.{name}": tensors["encoder"][name] for name in adapters}
    learned |= {f"objective.{name}": tensor for name, tensor in tensors["objective"].items()}
    moments = {name.partition("/")[2] for name in tensors["optimizer"]}
    assert moments == learned.keys()
    told = read_run(tmp_path / "run")["model"]
    assert told["trained"] == sum(tensor.numel() for tensor in learned.values()) < told["parameters"]
    said = [record["message"] for record in seen if record["kind"] == "message"]
    assert any(
        line.startswith(f"{told['trained']:,} of {told['parameters']:,} parameters are trained") for line in said
    )


def test_the_saved_matrices_are_those_of_the_checkpoint_with_its_adapters(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, dev="", lora_alpha=6.0)
    tune(run, tmp_path / "run")
    kept, saved = last_tensors(tmp_path / "run")["encoder"], load_model(tmp_path / "run" / "model").encoder
    changed = {name.removesuffix("lora_A") for name in kept if name.endswith("lora_A")}
    for name, tensor in saved.items():
        at = name.removesuffix("weight")
        added = 6.0 / RANK * kept[f"{at}lora_B"] @ kept[f"{at}lora_A"] if at in changed else 0.0
        torch.testing.assert_close(tensor, kept[name] + added, rtol=1e-6, atol=1e-7)
    assert saved.keys() == load_model(model).encoder.keys()


def test_a_run_that_goes_on_from_a_checkpoint_ends_with_the_same_bits(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, dropout=0.1, layer_decay=0.9, frozen_layers=1)
    tune(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "model")
    for step in sorted((tmp_path / "again" / "steps").iterdir())[1:]:
        shutil.rmtree(step)
    tune(run, tmp_path / "again")
    whole, again = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "again"))
    assert whole.keys() == again.keys() and all(torch.equal(whole[k], again[k]) for k in whole)
    one, other = (last_tensors(tmp_path / name) for name in ("whole", "again"))
    for group in one:
        assert all(torch.equal(tensor, other[group][key]) for key, tensor in one[group].items())


def test_frozen_layers_get_no_adapters_and_decay_slows_those_of_lower_layers() -> None:
    encoder = Encoder(SMALL)
    add_adapters(encoder, RANK, 16.0, 1, torch.Generator().manual_seed(0))
    held = {name.split(".")[1] for name, part in encoder.named_modules() if isinstance(part, Adapted)}
    assert held == {"1", "2"}
    scales = layer_scales(SMALL, encoder, 0.5)
    assert scales["encoder.blocks.2.attention.qkv.lora_A"] == 1
    assert scales["encoder.blocks.1.feed_forward.down.lora_B"] == 0.5


def test_what_adapters_can_t_do_is_said() -> None:
    draw = torch.Generator()
    with pytest.raises(UnmaskError, match="no layer for adapters"):
        add_adapters(Encoder(SMALL), RANK, 16.0, SMALL.num_hidden_layers, draw)
    with pytest.raises(UnmaskError, match="a rank of 48 at most"):
        add_adapters(Encoder(SMALL), 49, 16.0, 0, draw)
    with pytest.raises(ValueError, match="lora_rank needs AdamW"):
        FineTuning(lora_rank=8, optimizer=Muon())
    with pytest.raises(ValueError, match="lora_rank must not be below 0"):
        FineTuning(lora_rank=-1)
    with pytest.raises(ValueError, match="lora_alpha"):
        FineTuning(lora_alpha=0.0)


def test_without_a_rank_all_parameters_learn_as_ever() -> None:
    encoder = Encoder(SMALL)
    add_adapters(encoder, 0, 16.0, 0, torch.Generator())
    assert all(p.requires_grad for p in encoder.parameters()) and not any(
        isinstance(m, Adapted) for m in encoder.modules()
    )
