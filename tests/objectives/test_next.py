from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import randomise

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.nn.cost import token_head_flops
from unmask.nn.encoder import Encoder
from unmask.objectives.next import NextTokenObjective

CONFIG = EncoderConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=32,
    type_vocab_size=0,
    causal=True,
    norm_first=True,
    embedding_norm=False,
    head_transform=False,
    head_bias=False,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def model() -> tuple[Encoder, NextTokenObjective]:
    encoder, objective = Encoder(CONFIG), NextTokenObjective(CONFIG)
    randomise(encoder, 1)
    return encoder.eval(), objective.eval()


def terms(encoder: Encoder, objective: NextTokenObjective, batch: PackedBatch) -> torch.Tensor:
    """The loss of each target, in order."""
    where, value = batch.labels["causal"]
    logits = objective.head(encoder(batch)[where], encoder.token_table()).dense()
    return F.cross_entropy(logits, value, reduction="none").detach()


def test_every_token_is_guessed_from_the_one_before_it_inside_its_sequence() -> None:
    _, objective = model()
    batch = objective.prepare(PackedBatch.pack([[7, 8, 9], [5], [6, 0]]), 0)
    assert batch.labels["causal"].where.tolist() == [0, 1, 4]
    assert batch.labels["causal"].value.tolist() == [8, 9, 0]  # id 0 too
    assert objective.counts(batch) == {"causal": 3}
    assert objective.flops(CONFIG, batch) == token_head_flops(CONFIG, 3) == 2 * 3 * 32 * 64


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 2**31))
def test_no_target_crosses_a_border_and_nothing_is_hidden(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 64, n).tolist() for n in lengths]
    _, objective = model()
    before = PackedBatch.pack(rows)
    after = objective.prepare(before, seed)
    assert torch.equal(after.input_ids, before.input_ids)
    assert after.labels["causal"].value.tolist() == [t for row in rows for t in row[1:]]
    where = after.labels["causal"].where
    assert torch.equal(after.layout.rows[where], after.layout.rows[(where + 1).clamp(max=len(after.input_ids) - 1)])
    assert len(where) == sum(lengths) - len(lengths)


def test_a_later_token_never_changes_an_earlier_term() -> None:
    encoder, objective = model()
    row = np.random.default_rng(0).integers(0, 64, 20).tolist()
    before = terms(encoder, objective, objective.prepare(PackedBatch.pack([row, row[:7]]), 0))
    for changed in range(1, 20):
        other = [*row[:changed], (row[changed] + 1) % 64, *row[changed + 1 :]]
        after = terms(encoder, objective, objective.prepare(PackedBatch.pack([other, row[:7]]), 0))
        torch.testing.assert_close(after[: changed - 1], before[: changed - 1], rtol=2e-5, atol=2e-5)
        assert (after[changed - 1 : 19] != before[changed - 1 : 19]).all()
        torch.testing.assert_close(after[19:], before[19:], rtol=2e-5, atol=2e-5)  # nor a neighbour's


def test_the_loss_is_minus_the_log_of_the_next_tokens_share() -> None:
    encoder, objective = model()
    batch = objective.prepare(PackedBatch.pack([[7, 8, 9]]), 0)
    hidden, table = encoder(batch).detach().double(), encoder.token_table().detach().double()
    by_hand = -sum(math.log(float((hidden[i] @ table.T).softmax(-1)[t])) for i, t in ((0, 8), (1, 9)))
    found = objective(encoder, batch)["causal"]
    assert abs(float(found.total.detach()) - by_hand) < 1e-4 and found.count == 2 and found.correct is not None


def test_a_batch_of_single_tokens_costs_nothing() -> None:
    encoder, objective = model()
    found = objective(encoder, objective.prepare(PackedBatch.pack([[7], [8]]), 0))["causal"]
    assert found.count == 0 and float(found.total.detach()) == 0.0
