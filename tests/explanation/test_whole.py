"""What is explained is what training does: the batch, its labels, its loss."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from texts import CHINESE, ENGLISH, FAMILIES, OTHER, PAIRS, explained

import unmask
from unmask.errors import UnmaskError
from unmask.explanation import OBJECTIVES, Explanation, explain
from unmask.explanation.ask import ask
from unmask.explanation.pieces import learn
from unmask.loader import Batches, Cursor
from unmask.objectives.base import combine
from unmask.road.model import build
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.documents import ReadOptions
from unmask.text.shards import Corpus
from unmask.text.words import WordSplitter


@pytest.fixture(scope="module", params=["en", "zh"])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[str, str], Path]:
    """Two texts, and a folder with corpora of them by their tokenizer."""
    texts = (ENGLISH, OTHER) if request.param == "en" else (CHINESE, "银行没有感到意外。利率又上升了。")
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    options = BuildOptions(
        read=ReadOptions(separator="blank"), words=WordSplitter("jieba"), duplicates="keep", heldout_share=0.0
    )
    for like in ("bert", "t5", "gpt2"):
        tokenizer = learn(texts, like)
        tokenizer.save(folder / like / "tokenizer")
        build_corpus([str(folder / "text.txt")], folder / like / "corpus", tokenizer, options, workers=1)
    return texts, folder


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_inputs_labels_and_loss_are_those_of_a_training_batch(
    corpus: tuple[tuple[str, str], Path], objective: str
) -> None:
    """The batch that a run draws from the shards of a corpus with these two texts, seed for seed."""
    (text, second), folder = corpus
    folder = folder / {"infill": "t5", "causal": "gpt2"}.get(objective, "bert")
    for seed in range(2):
        found = explain(text, second=second, objective=objective, tokenizer=folder / "tokenizer", seed=seed)
        run = ask((text, second), objective, None, None, folder / "tokenizer", seed).small
        shards = Corpus.open(folder / "corpus", "train")
        model = build(run, shards.vocabulary)
        batches = Batches(shards, run.examples, shards.vocabulary, model.objective.prepare, seed, run.batch.tokens)
        batch, _ = next(batches.since(Cursor()))
        assert [i for s in found.sequences for i in s.input_ids] == batch.input_ids.tolist()
        assert [n for s in found.sequences for n in (len(s.input_ids),)] == list(batch.layout.lengths)
        assert [list(s.attention_mask) for s in found.sequences] == batch.layout.valid().int().tolist()
        labels = torch.full_like(batch.input_ids, -100)
        for name in ("mlm", "causal"):
            if name in batch.labels:
                where, value = batch.labels[name]
                labels[where] = value
        assert [i for s in found.sequences for i in s.labels] == labels.tolist()
        pairs = [s.pair.label for s in found.sequences if s.pair]
        assert pairs == batch.labels["pair"].value.tolist()
        if batch.decoder is not None:
            written = [s.decoder for s in found.sequences if s.decoder]
            assert [i for d in written for i in d.input_ids] == batch.decoder.input_ids.tolist()
            assert [i for d in written for i in d.labels] == batch.decoder.labels["infill"].value.tolist()
        model.encoder.eval(), model.objective.eval()
        with torch.no_grad():
            loss = combine(model.objective(model.encoder, batch), model.objective.counts(batch))
        assert found.loss == pytest.approx(float(loss), rel=1e-6)


@pytest.mark.parametrize(("preset", "objective"), PAIRS)
def test_every_objective_is_explained_with_every_family(preset: str, objective: str) -> None:
    _check(explained(preset, objective), preset, objective)


@pytest.mark.parametrize("preset", FAMILIES)
def test_chinese_is_explained_with_every_family(preset: str) -> None:
    for objective in {"wwm", "infill", FAMILIES[preset][0]} & set(FAMILIES[preset]):
        _check(explain(CHINESE, objective=objective, preset=preset), preset, objective)


def _check(found: Explanation, preset: str, objective: str) -> None:
    assert (found.objective, found.network) == (objective, preset)
    assert all(loss.targets and loss.worked for loss in found.losses if loss.name != "sbo")
    for one in found.sequences:
        rows = (one.input_ids, one.token_type_ids, one.position_ids, one.labels, one.fates)
        assert len({len(row) for row in rows}) == 1 and len(one.words) == len(one.ids)


def test_a_bare_call_explains_masked_tokens_of_bert_at_once() -> None:
    found = explain("The cat sat on the mat.")
    assert (found.objective, found.network) == ("mlm", "bert_base")
    (one,) = found.sequences
    assert one.tokens == ("[CLS]", "The", "cat", "sat", "on", "the", "mat", ".", "[SEP]")
    assert one.words == (None, 0, 1, 2, 3, 4, 5, 6, None) and one.position_ids == tuple(range(9))
    assert any("learned from this text" in note for note in found.notes)


def test_a_preset_alone_brings_its_own_objective() -> None:
    named = {preset: explain(ENGLISH, preset=preset).objective for preset in ("albert_base", "spanbert_base", "gpt2")}
    assert named == {"albert_base": "ngram", "spanbert_base": "span", "gpt2": "causal"}
    assert explain(ENGLISH, preset="deberta-v3-xsmall").settings["objectives"][0]["sharing"] == "gradient_disentangled"


def test_the_same_call_gives_the_same_explanation() -> None:
    assert explain(ENGLISH, objective="rtd") == explain(ENGLISH, objective="rtd")
    assert explain(ENGLISH, seed=1).sequences != explain(ENGLISH, seed=2).sequences


def test_the_function_is_a_public_name() -> None:
    assert unmask.explain is explain and unmask.Explanation is Explanation


def test_a_long_text_is_explained_as_far_as_tables_go() -> None:
    found = explain("The cat sat on the mat. " * 1000, objective="nsp")
    assert len(found.sequences) > 3 and max(len(one.ids) for one in found.sequences) <= 512
    assert sum(map(len, found.texts)) == 10_000 and "first 10,000 characters" in found.notes[0]


@pytest.mark.parametrize("text", ["", "  \n ", "\x07"])
def test_a_text_without_anything_is_refused(text: str) -> None:
    with pytest.raises(UnmaskError, match="text"):
        explain(text)
