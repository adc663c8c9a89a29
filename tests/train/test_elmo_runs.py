"""A run of ELMo from a corpus to a folder: stopped and resumed bit for bit, opened again with all it knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from elmo_models import ELMO
from small_runs import ignore, losses, result, small_run, stop_after, weights

from unmask import road
from unmask.batch import PackedBatch
from unmask.config import BidirectionalWords, FullSentences, RunConfig
from unmask.errors import UnmaskError
from unmask.hub.files import build_encoder, load_model
from unmask.hub.grow import grow_vocabulary
from unmask.nn.characters import token_kinds
from unmask.objectives.word_table import frequent_words
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer

GOALS = (BidirectionalWords(max_words=60),)


def elmo_run(corpus: Path) -> RunConfig:
    return small_run(corpus, encoder=ELMO, objectives=GOALS, examples=FullSentences(max_length=48))


@pytest.fixture(scope="module")
def whole(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo") / "run"
    assert road.pretrain(elmo_run(small_corpus), folder, view=ignore).finished
    return folder


def test_resume_is_invisible(whole: Path, small_corpus: Path, tmp_path: Path) -> None:
    assert not road.pretrain(elmo_run(small_corpus), tmp_path / "run", view=stop_after(5)).finished
    assert road.resume(tmp_path / "run", view=ignore).finished
    assert weights(tmp_path / "run") == weights(whole) and losses(tmp_path / "run") == losses(whole)
    heads = [(folder / "model" / "heads.safetensors").read_bytes() for folder in (tmp_path / "run", whole)]
    assert heads[0] == heads[1]


def test_both_losses_fall_and_their_mean_is_a_perplexity(whole: Path) -> None:
    first, last = result(whole)["first"], result(whole)["last"]
    assert set(last["losses"]) == {"forward", "backward"} == set(last["accuracy"])
    assert all(last["losses"][name] < first["losses"][name] for name in last["losses"])
    mean = torch.tensor(sum(last["losses"].values()) / 2, dtype=torch.float64)
    assert last["perplexity"] == pytest.approx(float(mean.exp()))


def test_the_folder_knows_words_and_pieces_and_goes_on_where_the_run_ended(
    whole: Path, small_corpus: Path, tmp_path: Path
) -> None:
    loaded, corpus = load_model(whole / "model"), Corpus.open(small_corpus, "train")
    kinds = token_kinds(Tokenizer.load(whole / "model"))
    encoder = build_encoder(loaded)
    assert encoder.words is not None and encoder.words.kinds.tolist() == kinds.tolist()
    assert loaded.config == replace(ELMO, vocab_size=corpus.vocab_size) and set(loaded.heads) == {"bilm"}
    assert json.loads((whole / "model" / "config.json").read_text())["model_type"] == "unmask"
    more = replace(elmo_run(small_corpus), start_from=str(whole / "model"), objectives=(BidirectionalWords(),))
    model = road.build(road.fit_to_corpus(more), corpus.vocabulary)
    model.know_words(corpus)
    head = model.objective.members()["bilm"].get_submodule("head")
    frames = [i for i in (corpus.vocabulary.cls_token_id, corpus.vocabulary.sep_token_id) if i is not None]
    wanted, _ = frequent_words(corpus, kinds, frames, 60)
    assert head.classes(wanted).tolist() == list(range(1, len(wanted) + 1)) and not model.notes  # type: ignore[operator]
    batch = PackedBatch.pack([[2, 40, 41, 3], [2, 7, 3]])
    with torch.no_grad():
        assert torch.equal(model.encoder.eval()(batch), encoder(batch))


def test_what_an_elmo_can_not_have_is_refused_in_words(whole: Path, tmp_path: Path) -> None:
    from unmask.explanation import explain
    from unmask.hub.onnx.export import export_onnx

    with pytest.raises(UnmaskError, match="only networks of attention"):
        explain("The cat sat.", preset="elmo_mini")
    with pytest.raises(UnmaskError, match="only networks of attention"):
        explain("The cat sat.", model=whole / "model")
    with pytest.raises(UnmaskError, match="room for every word"):
        grow_vocabulary(whole / "model", whole / "model", [], tmp_path / "grown")
    pytest.importorskip("onnx")
    with pytest.raises(UnmaskError, match="can't be written as a graph"):
        export_onnx(whole / "model", tmp_path / "onnx")


def test_what_a_run_costs_is_told_before(small_corpus: Path) -> None:
    cost = road.estimate(elmo_run(small_corpus))
    assert cost["parameters"] > cost["encoder_parameters"] > 0 and cost["flops_per_step"] > 0 and cost["bytes"] > 0
