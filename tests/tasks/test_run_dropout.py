"""A run's dropout reaches its head, also one with a rate of its own; the saved folder keeps the rate it came with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_models import SMALL, VARIANTS
from toy import texts, write

from unmask.config import Answering, Classification, FineTuning, Keeping, Machine
from unmask.config.tasks import HeadShape
from unmask.files import MANIFEST
from unmask.hub.files import load_model, save_weights
from unmask.hub.weights import Weights
from unmask.nn.encoder import Encoder
from unmask.nn.heads import TaskHead
from unmask.nn.initial import initialise
from unmask.tasks.dropout import learning
from unmask.tasks.job import Job
from unmask.tasks.jobs import job_of
from unmask.tasks.network import build_network, load_start
from unmask.tasks.run import finetune
from unmask.text.shards import Corpus

OWN = {"albert": ("classifier_dropout_prob", 0.3), "modernbert": ("classifier_dropout", 0.4)}


@pytest.fixture(params=list(OWN))
def model(request: pytest.FixtureRequest, small_corpus: Path, tmp_path: Path) -> Path:
    """New weights of a family whose head has a rate of its own."""
    vocabulary = Corpus.open(small_corpus, "train", verify=False).vocabulary
    config = replace(VARIANTS[request.param], vocab_size=vocabulary.size)
    encoder = Encoder(config)
    initialise(encoder, config, torch.Generator().manual_seed(0))
    weights = Weights(config, encoder.state_dict(), model_type=request.param)
    folder = tmp_path / request.param
    tokenizer = Corpus.open(small_corpus, "train", verify=False).tokenizer_folder
    save_weights(folder, weights, tokenizer_folder=tokenizer, about={})
    (folder / MANIFEST).unlink()
    said = json.loads((folder / "config.json").read_text())
    name, rate = OWN[request.param]
    (folder / "config.json").write_text(json.dumps({**said, name: rate}))
    return folder


def test_the_head_learns_with_the_dropout_of_the_run_and_is_saved_with_its_own(model: Path, tmp_path: Path) -> None:
    name, rate = OWN[model.name]
    data = write(tmp_path / "train.jsonl", texts(16, 0))
    run = FineTuning(
        model=str(model), train=str(data), epochs=1, max_length=16, dropout=0.15, examples=8,
        keeping=Keeping(evaluations=1), machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    job = job_of(Classification(labels=("bad news", "good news")))
    assert rates(run, job) == {0.15} and rates(replace(run, dropout=0.0), job) == {0.0}
    assert rate in rates(replace(run, dropout=-1.0), job)
    finetune(run, tmp_path / "run", view=lambda record: None)
    before, saved = (json.loads((f / "config.json").read_text()) for f in (model, tmp_path / "run" / "model"))
    encoders = "hidden_dropout_prob" if model.name == "albert" else "mlp_dropout"
    assert saved[name] == rate and saved[encoders] == before[encoders]
    assert load_model(tmp_path / "run" / "model").head_shape("classify").dropout == rate


def rates(run: FineTuning, job: Job) -> set[float]:
    """Of the encoder, and of the head before its outputs."""
    net = build_network(run, job, load_start(run))
    (head,) = (m for m in net.objective.modules() if isinstance(m, TaskHead))
    return {net.config.hidden_dropout_prob, head.dropout.p}


def test_a_place_without_dropout_gets_none() -> None:
    no_place = HeadShape(act=None, dropout=0.0)
    assert learning(SMALL, no_place, 0.2, Answering().kind)[1] == no_place
    assert learning(SMALL, no_place, 0.2, "tag")[1] == HeadShape(act=None, dropout=0.2)
    with_a_place = HeadShape(act="gelu", normed=True, dropout=0.0)  # ModernBERT's head of answers
    assert learning(SMALL, with_a_place, 0.2, Answering().kind)[1].dropout == 0.2
    both = HeadShape(dropout=0.3, input_dropout=-1.0)
    assert learning(SMALL, both, 0.2, "classify")[1] == HeadShape(dropout=0.2, input_dropout=0.2)
    assert learning(SMALL, both, -1.0, "classify") == (SMALL, both)
