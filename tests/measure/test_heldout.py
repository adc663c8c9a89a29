from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import small_run

from unmask import road
from unmask.config import EncoderConfig, MaskedTokens, NextTokens, ReplacedTokens, SentencePair, SpanBoundary
from unmask.loader import Batches
from unmask.measure.fill import fill_mask, samples
from unmask.measure.heldout import evaluate, evaluating, held_out_batches, unigram_entropy
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer


def parts(corpus: Path, **changes: object) -> tuple[road.Model, list, Corpus]:
    run = small_run(corpus, **changes)
    heldout = Corpus.open(corpus, "heldout")
    model = road.build(run, heldout.vocabulary)
    batches = Batches(heldout, run.examples, heldout.vocabulary, model.objective.prepare, 1, 300)
    return model, held_out_batches(batches, 3000), heldout


def test_unigram_entropy_has_the_value_worked_by_hand() -> None:
    assert unigram_entropy(np.array([0, 2, 1, 1])) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(4))
    assert unigram_entropy(np.array([0, 3, 2, 2]), frozenset({1, 99})) == pytest.approx(math.log(2))


def test_a_model_that_knows_only_frequencies_has_the_unigram_entropy_as_its_loss(small_corpus: Path) -> None:
    """The two figures a demo prints side by side are the same quantity: checked by a model that is the frequency table."""
    model, batches, heldout = parts(small_corpus)
    mlm = model.objective.parts["mlm"]
    counts = np.bincount(torch.cat([b.labels["mlm"].value for b in batches]).numpy(), minlength=heldout.vocabulary.size)
    with torch.no_grad():
        mlm.head.transform.norm.weight.zero_()  # nothing of the context reaches the logits
    mlm.know_frequencies(1000 * counts)  # the half occurrence that each token gets more then hardly counts
    found = evaluate(model.encoder, model.objective, batches)
    truth = unigram_entropy(counts)
    assert found["losses"]["mlm"] == pytest.approx(truth, abs=2e-3)
    assert found["perplexity"] == pytest.approx(math.exp(found["losses"]["mlm"]), rel=1e-6)


def test_evaluation_sums_before_it_divides(small_corpus: Path) -> None:
    model, batches, _ = parts(small_corpus)
    one_by_one = [
        evaluate(model.encoder, model.objective, [b])["losses"]["mlm"] * len(b.labels["mlm"].where) for b in batches
    ]
    whole = evaluate(model.encoder, model.objective, batches)["losses"]["mlm"]
    assert whole == pytest.approx(sum(one_by_one) / sum(len(b.labels["mlm"].where) for b in batches), rel=1e-5)


def test_evaluation_changes_nothing(small_corpus: Path) -> None:
    model, batches, _ = parts(small_corpus, dropout=0.3)
    model.encoder.train()
    before, state = {k: v.clone() for k, v in model.encoder.state_dict().items()}, torch.get_rng_state()
    first, second = (evaluate(model.encoder, model.objective, batches) for _ in range(2))
    assert first == second and model.encoder.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[k], v) for k, v in model.encoder.state_dict().items())


def test_the_held_out_batches_are_at_most_one_epoch(small_corpus: Path) -> None:
    model, _, heldout = parts(small_corpus)
    run = small_run(small_corpus)
    batches = Batches(heldout, run.examples, heldout.vocabulary, model.objective.prepare, 1, 300)
    kept = held_out_batches(batches, 10**9)
    assert {int(d) for b in kept for d in b.documents} == set(range(heldout.num_documents))
    assert all(int(b.examples.max()) < 1 << 44 for b in kept)


def test_fill_mask_ranks_what_the_head_prefers(small_corpus: Path) -> None:
    model, _, heldout = parts(small_corpus)
    tokenizer = Tokenizer.load(heldout.tokenizer_folder)
    mlm = model.objective.parts["mlm"]
    wanted = int(tokenizer.encode(["cat"])[0].ids[0])
    with torch.no_grad():
        mlm.head.bias[wanted] = 50.0
        mlm.head.bias[tokenizer.mask_token_id] = 90.0  # never guessed: it stands for no text
    guesses = fill_mask(model.encoder, mlm, tokenizer, "the [MASK] sees the [MASK] .")
    assert [row[0].token for row in guesses] == ["cat", "cat"] and guesses[0][0].probability > 0.99
    assert all(a.probability >= b.probability for row in guesses for a, b in zip(row, row[1:], strict=False))


def test_samples_show_what_was_masked(small_corpus: Path) -> None:
    model, batches, heldout = parts(small_corpus)
    tokenizer = Tokenizer.load(heldout.tokenizer_folder)
    records = samples(model.encoder, model.objective, tokenizer, batches[0])
    assert records
    for record in records:
        assert len(record["tokens"]) == len(record["shown"]) and len(record["masked"]) == len(record["guesses"])
        changed = [i for i, (a, b) in enumerate(zip(record["tokens"], record["shown"], strict=True)) if a != b]
        assert set(changed) <= set(record["masked"])


@pytest.mark.parametrize(
    "goals, perplexing",
    [
        ((MaskedTokens(), SentencePair()), "mlm"),
        ((MaskedTokens(unit="span"), SpanBoundary()), "mlm"),
        ((ReplacedTokens(masking=MaskedTokens()),), "mlm"),
        ((SentencePair(),), None),
    ],
)
def test_the_total_is_the_plain_sum_and_perplexity_is_that_of_the_loss_over_the_vocabulary(
    small_corpus: Path, goals: tuple, perplexing: str | None
) -> None:
    """RTD's weight of 50 acts on the gradient only."""
    model, batches, _ = parts(small_corpus, objectives=goals)
    found = evaluate(model.encoder, model.objective, batches)
    assert found["loss"] == pytest.approx(sum(found["losses"].values()), rel=1e-6)
    assert found["losses"].keys() == found["accuracy"].keys()
    if perplexing is None:
        assert "perplexity" not in found
    else:
        assert found["perplexity"] == pytest.approx(math.exp(found["losses"][perplexing]), rel=1e-6)


def test_rtd_begins_at_chance_and_is_right_about_what_was_never_replaced(small_corpus: Path) -> None:
    model, batches, _ = parts(small_corpus, objectives=(ReplacedTokens(masking=MaskedTokens()),))
    found = evaluate(model.encoder, model.objective, batches)
    assert found["losses"]["rtd"] == pytest.approx(math.log(2), abs=0.05)
    with torch.no_grad():
        model.objective.parts["rtd"].head.out.weight.zero_()
        model.objective.parts["rtd"].head.out.bias.fill_(-9.0)
    found = evaluate(model.encoder, model.objective, batches)
    assert 0.8 < found["accuracy"]["rtd"] < 0.95, "of 15 % blanks almost none is filled rightly at random"


def test_an_enhanced_mask_decoder_fills_masks_and_shows_samples(small_corpus: Path) -> None:
    """Its places come in after the encoder: the same masked word guessed at two places gets different chances."""
    model, batches, heldout = parts(small_corpus, objectives=(MaskedTokens(enhanced_decoder=True),))
    tokenizer = Tokenizer.load(heldout.tokenizer_folder)
    mlm = model.objective.parts["mlm"]
    with torch.no_grad():
        mlm.head.positions.weight.normal_(0, 5.0)
    one, two = fill_mask(model.encoder, mlm, tokenizer, "[MASK] [MASK]")
    assert [g.probability for g in one] != [g.probability for g in two]
    assert samples(model.encoder, model.objective, tokenizer, batches[0])


def test_samples_guess_alone_what_the_run_guesses_in_a_batch(small_corpus: Path) -> None:
    """A sentence taken out of its batch has the same chances: what people are shown is what the loss is made of."""
    goal = ReplacedTokens(masking=MaskedTokens(), sharing="gradient_disentangled")
    model, batches, heldout = parts(small_corpus, objectives=(goal,))
    tokenizer, batch = Tokenizer.load(heldout.tokenizer_folder), batches[0]
    record = samples(model.encoder, model.objective, tokenizer, batch, count=1)[0]
    rtd = model.objective.parts["rtd"]
    with evaluating(model.encoder, model.objective):
        filled, _ = rtd.begin(model.encoder, batch)
        hidden = model.encoder(filled, *model.objective.tables())
        first = hidden[batch.starts[:-1].long()].index_select(0, batch.layout.rows)
        doubts = rtd.head(hidden, first).sigmoid()
    begin = int(batch.starts[-2])
    assert record["filled"] == [tokenizer.token(i) for i in filled.input_ids[begin:].tolist()]
    assert record["doubts"] == pytest.approx(doubts[begin:].tolist(), abs=2e-4)


def test_causal_models_have_no_masked_samples(small_corpus: Path) -> None:
    encoder = EncoderConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, causal=True
    )
    model, batches, heldout = parts(small_corpus, objectives=(NextTokens(),), encoder=encoder)
    assert samples(model.encoder, model.objective, Tokenizer.load(heldout.tokenizer_folder), batches[0]) == []
    found = evaluate(model.encoder, model.objective, batches)
    assert found["perplexity"] == pytest.approx(math.exp(found["losses"]["causal"]), rel=1e-6)
