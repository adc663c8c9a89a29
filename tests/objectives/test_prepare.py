"""What corrupting a batch leaves alone."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import VOCABULARY
from small_goals import CONFIG

from unmask.batch import PackedBatch, Targets
from unmask.config import MaskedTokens, SentencePair
from unmask.objectives.build import build_objective
from unmask.objectives.choose import Unit

UNITS: tuple[Unit, ...] = get_args(Unit)
FIELDS = ("starts", "token_type_ids", "word_starts", "examples", "documents")


def batch_of(lengths: list[int], seed: int) -> PackedBatch:
    """Sequences of these lengths with every field set, words of several tokens among them, and pair labels."""
    rng = np.random.default_rng(seed)
    rows = [[2, *rng.integers(5, 64, n - 2).tolist(), 3] for n in lengths]
    kinds = [[int(place >= n // 2) for place in range(n)] for n in lengths]
    batch = PackedBatch.pack(rows, kinds)
    numbers = torch.arange(len(lengths))
    labels = {"pair": Targets(numbers, torch.from_numpy(rng.integers(0, 2, len(lengths))))}
    words = torch.from_numpy(rng.random(batch.num_tokens) < 0.4)
    return batch.with_(examples=numbers + 7, documents=numbers * 3, labels=labels, word_starts=words)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(3, 30), min_size=1, max_size=6), st.integers(0, 2**31), st.sampled_from(UNITS))
def test_B087_masking_keeps_lengths_segments_and_every_other_field(lengths: list[int], seed: int, unit: Unit) -> None:
    """The lengths are what an attention mask says elsewhere: lost, the model would attend to padding."""
    joint = build_objective(CONFIG, [MaskedTokens(unit=unit), SentencePair()], VOCABULARY)
    before = batch_of(lengths, seed)
    kept = {name: getattr(before, name).clone() for name in FIELDS}
    after = joint.prepare(before, seed)
    for name in FIELDS:
        assert torch.equal(getattr(after, name), kept[name]) and torch.equal(getattr(before, name), kept[name]), name
    assert after.layout.lengths == tuple(lengths) and after.num_tokens == before.num_tokens
    assert set(after.labels) == {"mlm", "pair"} and after.labels["pair"] is before.labels["pair"]
    assert torch.equal(after.layout.valid().sum(1), torch.tensor(lengths))


def test_B087_the_case_as_it_was_reported() -> None:
    joint = build_objective(CONFIG, [MaskedTokens(unit="word")], VOCABULARY)
    after = joint.prepare(batch_of([4, 9], 0), 0)
    assert after.layout.valid().long().tolist() == [[1] * 4 + [0] * 5, [1] * 9]
    assert after.layout.pad(after.token_type_ids).tolist() == [[0, 0, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 1]]


def test_preparing_changes_nothing_in_the_batch_it_was_given() -> None:
    joint = build_objective(CONFIG, [MaskedTokens(mask_rate=0.9, unit="word")], VOCABULARY)
    batch = batch_of([20, 30], 0)
    ids = batch.input_ids.clone()
    assert not torch.equal(joint.prepare(batch, 0).input_ids, ids)
    assert torch.equal(batch.input_ids, ids) and set(batch.labels) == {"pair"}
