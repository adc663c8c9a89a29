"""An ELMo under task heads: frozen or not, with a mix of layers that is learned, kept in the folder, and there for others too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from elmo_models import ELMO
from safetensors.torch import load_file
from toy import texts, toy_model, tune, write

import unmask
from unmask.config import AdamW, Answering, Classification, FineTuning, Keeping, Machine, Tagging, Task
from unmask.errors import UnmaskError
from unmask.hub.files import build_encoder, load_model, save_model
from unmask.nn.characters import token_kinds
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.tasks.saved import TaskModel
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New weights with the corpus' tokenizer."""
    corpus = Corpus.open(small_corpus, "train", verify=False)
    config = replace(ELMO, vocab_size=corpus.vocab_size, num_hidden_layers=2)
    encoder = Encoder(config)
    initialise(encoder, config, torch.Generator().manual_seed(0))
    assert encoder.words is not None
    encoder.words.tell(token_kinds(Tokenizer.load(corpus.tokenizer_folder)))
    folder = tmp_path_factory.mktemp("elmo") / "model"
    save_model(folder, encoder, None, tokenizer_folder=corpus.tokenizer_folder, about={})
    return folder


def settings(model: Path, folder: Path, task: Task, **changes: object) -> FineTuning:
    train, dev = write(folder / "train.jsonl", texts(120, 0)), write(folder / "dev.jsonl", texts(40, 1))
    run = FineTuning(
        model=str(model), train=str(train), dev=str(dev), task=task, examples=12, epochs=4, max_length=48, dropout=0.0,
        optimizer=AdamW(learning_rate=1e-2), keeping=Keeping(evaluations=1),
        machine=Machine(device="cpu", threads=1, workers=0),
    )  # fmt: skip
    return replace(run, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("frozen", [2, 0])
def test_a_task_is_learned_and_the_mix_with_it_over_layers_that_stand_still_or_not(
    model: Path, tmp_path: Path, frozen: int
) -> None:
    metrics, _ = tune(settings(model, tmp_path, Classification(), frozen_layers=frozen, epochs=8.0), tmp_path / "run")
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "run" / "model"))
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert {"mix.weights", "mix.scale"} <= moved
    assert (moved == {"mix.weights", "mix.scale"}) == (frozen == 2)
    if not frozen:
        assert metrics["accuracy"] > 0.9
    loaded = TaskModel.load(tmp_path / "run" / "model")
    read = loaded.job.read(str(tmp_path / "dev.jsonl"))
    assert loaded.answer(loaded.features(read.examples)).metrics == pytest.approx(metrics)


def test_words_are_tagged(model: Path, tmp_path: Path) -> None:
    for name, count in (("train", 60), ("dev", 20)):
        rows = [row["text"].split() for row in texts(count, len(name))]
        tagged = [f"{word} {'B-X' if word in ('good', 'bad') else 'O'}" for row in rows for word in [*row, ""]]
        (tmp_path / f"{name}.conll").write_text("\n".join(line if line != " O" else "" for line in tagged) + "\n")
    run = settings(model, tmp_path, Tagging(), epochs=10.0, examples=6)
    run = replace(run, train=str(tmp_path / "train.conll"), dev=str(tmp_path / "dev.conll"))
    metrics, _ = tune(run, tmp_path / "run")
    assert metrics["f1"] > 0.9


def test_answers_are_whole_words_in_a_run_and_after_loading(model: Path, tmp_path: Path) -> None:
    run = settings(model, tmp_path, Answering(), epochs=10.0, examples=6, max_length=64)
    for name, count in (("train", 60), ("dev", 20)):
        rows = [(row["text"], row["label"].split()[0]) for row in texts(count, len(name))]
        write(tmp_path / f"{name}.jsonl", [
            {"id": str(n), "question": "what", "context": text, "answers": [{"text": word, "start": text.index(word)}]}
            for n, (text, word) in enumerate(rows)
        ])  # fmt: skip
    metrics, _ = tune(run, tmp_path / "run")
    loaded = TaskModel.load(tmp_path / "run" / "model")
    told = loaded.answer(loaded.features(loaded.job.read(run.dev).examples))
    assert metrics["exact"] > 0.8 and told.metrics == pytest.approx(metrics)


def test_vectors_are_of_the_mean_of_all_layers_where_no_task_learned_a_mix(model: Path) -> None:
    loaded = unmask.load(model)
    found = torch.as_tensor(loaded.encode(["good news of the week"]))
    encoder = build_encoder(load_model(model))
    assert encoder.mix is not None and found.shape == (1, ELMO.hidden_size)
    assert encoder.mix.weights.tolist() == [0.0, 0.0, 0.0] and encoder.mix.scale.tolist() == [1.0]


def test_a_network_of_attention_learns_a_mix_where_it_is_asked_for(small_corpus: Path, tmp_path: Path) -> None:
    bert = toy_model(small_corpus, tmp_path / "bert")
    run = settings(bert, tmp_path, Classification(), optimizer=AdamW(learning_rate=3e-3))
    tune(replace(run, epochs=0.5, layer_mix=True), tmp_path / "mixed")
    after = load_model(tmp_path / "mixed" / "model")
    assert after.config.layer_mix and after.encoder["mix.weights"].shape == (after.config.num_hidden_layers + 1,)
    assert after.encoder["mix.weights"].any()
    tune(replace(run, epochs=0.5), tmp_path / "plain")
    assert "mix.weights" not in load_model(tmp_path / "plain" / "model").encoder


def test_adapters_are_refused_since_lstms_have_none(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="LSTMs have no adapters"):
        tune(settings(model, tmp_path, Classification(), lora_rank=4), tmp_path / "run")
