"""The road for every family of goals: each trains, is measured, exported, resumed and costed by the same code."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from small_runs import ignore, losses, result, small_run, stop_after, weights

from unmask import presets, road
from unmask.config import (
    Absolute,
    AdamW,
    Blocks,
    Disentangled,
    EncoderConfig,
    FullSentences,
    Infill,
    Keeping,
    MaskedTokens,
    NextTokens,
    Pairs,
    ReplacedTokens,
    RunConfig,
    SentenceOrder,
    SpanBoundary,
    Steps,
)
from unmask.errors import UnmaskError
from unmask.loader import Cursor
from unmask.nn.cost import count_parameters
from unmask.text.families import Like
from unmask.text.shards import Corpus

SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BERT = EncoderConfig(**SIZES)
ROPE = replace(presets.modernbert_base(), **SIZES, local_attention=16)
DEBERTA = EncoderConfig(
    **SIZES, positions=Disentangled(position_buckets=8, max_relative_positions=32), type_vocab_size=0
)
GPT = replace(presets.gpt2(), **SIZES)
BLANKS = MaskedTokens(replace_mask=0.85, replace_random=0.0)

RUNS: dict[str, dict[str, Any]] = {
    "roberta": {
        "encoder": replace(BERT, positions=Absolute(after_padding=True), type_vocab_size=1),
        "examples": FullSentences(max_length=64),
        "objectives": (MaskedTokens(),),
    },
    "albert": {
        "encoder": replace(BERT, embedding_size=16, num_hidden_groups=1),
        "examples": Pairs(negatives="swapped", max_length=64),
        "objectives": (MaskedTokens(unit="ngram"), SentenceOrder()),
    },
    "spanbert": {
        "encoder": replace(BERT, type_vocab_size=1),
        "examples": FullSentences(max_length=64),
        "objectives": (MaskedTokens(unit="span"), SpanBoundary()),
    },
    "electra": {
        "encoder": BERT,
        "examples": FullSentences(max_length=64),
        "objectives": (ReplacedTokens(masking=BLANKS),),
    },
    "deberta": {
        "encoder": DEBERTA,
        "examples": FullSentences(max_length=64),
        "objectives": (MaskedTokens(unit="word", enhanced_decoder=True),),
    },
    "deberta-v3": {
        "encoder": DEBERTA,
        "examples": FullSentences(max_length=64),
        "objectives": (ReplacedTokens(masking=BLANKS, sharing="gradient_disentangled", add_first=True),),
    },
    "modernbert": {
        "encoder": ROPE,
        "examples": FullSentences(max_length=64),
        "objectives": (MaskedTokens(mask_rate=0.3, final_mask_rate=0.1),),
    },
    "rtd on rope": {
        "encoder": ROPE,
        "examples": FullSentences(max_length=64),
        "objectives": (ReplacedTokens(masking=BLANKS, sharing="gradient_disentangled"),),
    },
    "gpt": {"encoder": GPT, "examples": Blocks(max_length=64, frame=False), "objectives": (NextTokens(),)},
}
T5 = replace(presets.t5_small(), **SIZES, head_size=16)
RUNS["t5"] = {"encoder": T5, "examples": Blocks(max_length=64), "objectives": (Infill(),)}
VOCABULARY_LOSS = {"gpt": "causal"}


def run_of(corpus: Path, family: str, **changes: Any) -> RunConfig:
    settings = {"until": Steps(steps=6), "keeping": Keeping(evaluations=2, evaluation_tokens=400)}
    return small_run(corpus, **(settings | RUNS[family] | changes))


@pytest.mark.parametrize("family", [family for family in RUNS if family != "t5"])
def test_every_family_trains_is_measured_resumed_and_exported(small_corpus: Path, tmp_path: Path, family: str) -> None:
    """Stopped after four steps and resumed, it is bit for bit the run that was not; the report and the card are written."""
    run = run_of(small_corpus, family)
    assert road.pretrain(run, tmp_path / "whole", view=ignore).finished
    road.pretrain(run, tmp_path / "stopped", view=stop_after(4))
    assert road.resume(tmp_path / "stopped", view=ignore).finished
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    found = result(tmp_path / "whole")
    names = found["last"]["losses"]
    assert found["last"]["loss"] == pytest.approx(sum(names.values()))
    assert found["last"]["perplexity"] > 1 and found["unigram_entropy"] > 1
    assert VOCABULARY_LOSS.get(family, "mlm") in names
    assert (tmp_path / "whole" / "report.html").stat().st_size > 10_000
    card = (tmp_path / "whole" / "model" / "README.md").read_text()
    assert "Held-out loss after 6 steps (nats): " in card and ("AutoModelForCausalLM" in card) == (family == "gpt")
    config = json.loads((tmp_path / "whole" / "model" / "config.json").read_text())
    assert ("import build_encoder" in card) == (config["model_type"] == "unmask"), (
        "only what transformers has is its own"
    )


def corpus_like(folder: Path, like: Like) -> Path:
    """A corpus whose tokenizer has the special tokens of another family, and maybe no [MASK], [CLS] or [PAD]."""
    from made_up import english_documents

    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.documents import ReadOptions
    from unmask.text.train_tokenizer import TrainOptions, train

    texts = english_documents(120)
    (folder / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    tokenizer, _ = train(texts, TrainOptions(like=like, vocab_size=500))
    options = BuildOptions(read=ReadOptions(separator="line"), heldout_share=0.1, duplicates="keep")
    build_corpus([str(folder / "text.txt")], folder / "corpus", tokenizer, options, workers=1)
    return folder / "corpus"


@pytest.mark.parametrize(
    "like, family", [("gpt2", "gpt"), ("t5", "t5"), ("roberta", "roberta"), ("deberta-v3", "deberta-v3")]
)
def test_families_train_over_their_own_tokenizers(tmp_path: Path, like: Like, family: str) -> None:
    corpus = corpus_like(tmp_path, like)
    run = run_of(corpus, family)
    assert road.pretrain(run, tmp_path / "run", view=ignore).finished
    found = result(tmp_path / "run")
    assert found["last"]["loss"] < found["first"]["loss"] + 0.1
    assert (found["unigram_entropy"] is None) == (family == "t5"), "a third of T5's targets are sentinels"
    assert road.estimate(run)["parameters"] > 0


@pytest.mark.parametrize("family", [family for family in RUNS if family != "t5"])
def test_what_a_run_will_cost_is_told_before_it_is_built(small_corpus: Path, family: str) -> None:
    run = run_of(small_corpus, family)
    cost = road.estimate(run)
    corpus = Corpus.open(small_corpus, "train")
    model = road.build(run, corpus.vocabulary)
    assert cost["parameters"] == count_parameters(model.encoder, model.objective)
    batches = road.run._batches(run, corpus, model, 0)
    real = [
        model.training_flops(b) * run.batch.tokens * 2 / b.num_tokens for b, _ in islice(batches.since(Cursor()), 5)
    ]
    assert sum(real) / 5 == pytest.approx(cost["flops_per_step"], rel=0.25)


def test_samples_of_rtd_show_the_generators_guesses_and_what_the_encoder_doubts(
    small_corpus: Path, tmp_path: Path
) -> None:
    road.pretrain(run_of(small_corpus, "electra"), tmp_path / "run", view=ignore)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    shown = [record for record in map(json.loads, lines) if record["kind"] == "sample"]
    assert shown
    for record in shown:
        length = len(record["tokens"])
        assert len(record["filled"]) == len(record["doubts"]) == length and all(0 <= p <= 1 for p in record["doubts"])
        assert record["filled"] != record["shown"] and "[MASK]" not in record["filled"]
        assert len(record["guesses"]) == len(record["masked"])


def test_continued_rtd_starts_where_the_model_ended(small_corpus: Path, tmp_path: Path) -> None:
    """With its generator, and with disentangled tables taken apart again."""
    road.pretrain(run_of(small_corpus, "deberta-v3"), tmp_path / "first", view=ignore)
    start = str(tmp_path / "first" / "model")
    run = run_of(small_corpus, "deberta-v3", start_from=start, optimizer=AdamW(learning_rate=1e-9))
    road.pretrain(run, tmp_path / "second", view=ignore)
    before, after = result(tmp_path / "first")["last"]["losses"], result(tmp_path / "second")["first"]["losses"]
    assert after == pytest.approx(before, rel=1e-4)


def test_a_continued_generator_is_as_large_as_the_models_whatever_the_recipe_says(
    small_corpus: Path, tmp_path: Path
) -> None:
    half = ReplacedTokens(masking=BLANKS, generator_width=0.5, generator_depth=0.5)
    road.pretrain(run_of(small_corpus, "electra", objectives=(half,)), tmp_path / "first", view=ignore)
    other = replace(half, generator_width=1.0, generator_depth=1.0)
    start = str(tmp_path / "first" / "model")
    run = road.fit_to_corpus(run_of(small_corpus, "electra", objectives=(other,), start_from=start))
    assert run.objectives == (half,)
    assert not road.build(run, Corpus.open(small_corpus, "train").vocabulary).notes


def test_disentangled_tables_begin_at_the_generators(small_corpus: Path) -> None:
    """E_delta is 0 (DeBERTa-v3 section 3.3), so that both begin with the same vectors."""
    model = road.build(run_of(small_corpus, "deberta-v3"), Corpus.open(small_corpus, "train").vocabulary)
    assert not model.encoder.embeddings.tokens.weight.any()
    plain = road.build(run_of(small_corpus, "electra"), Corpus.open(small_corpus, "train").vocabulary)
    assert plain.encoder.embeddings.tokens.weight.any()


def test_the_card_names_the_class_that_was_written_not_the_one_that_has_the_goal(tmp_path: Path) -> None:
    """A BERT that learned by infill is a BertModel to others: its decoder lies beside it, under our names."""
    run = run_of(corpus_like(tmp_path, "t5"), "t5", encoder=BERT, until=Steps(steps=1))
    road.pretrain(run, tmp_path / "run", view=ignore)
    model = tmp_path / "run" / "model"
    (architecture,) = json.loads((model / "config.json").read_text())["architectures"]
    card = (model / "README.md").read_text()
    assert architecture == "BertModel" and "import BertModel, " in card and "Seq2Seq" not in card


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("gpt", {}, "the causal objective and encoder.causal go together"),
        ("t5", {}, "the infill objective needs encoder.embedding_size 0"),
        ("roberta", {"examples": FullSentences(max_length=128)}, "max_length 128 exceeds"),
    ],
)
def test_a_model_that_cannot_do_what_the_run_asks_is_refused_in_a_sentence(
    small_corpus: Path, tmp_path: Path, family: str, changes: dict[str, Any], words: str
) -> None:
    encoder = replace(BERT, embedding_size=16, max_position_embeddings=64)
    road.pretrain(run_of(small_corpus, "roberta", encoder=encoder), tmp_path / "run", view=ignore)
    model = tmp_path / "run" / "model"
    with pytest.raises(UnmaskError, match=f"the model to start from does not fit this run: .*{words}") as error:
        run_of(small_corpus, family, start_from=str(model), **changes)  # fitted to corpus and model
    assert error.value.where == str(model)


def test_examples_that_need_a_token_the_tokenizer_lacks_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    run = run_of(corpus_like(tmp_path, "gpt2"), "gpt")
    with pytest.raises(UnmaskError, match="no cls token"):
        road.pretrain(replace(run, examples=Pairs(max_length=64)), tmp_path / "run", view=ignore)
    assert not (tmp_path / "run").exists()
