from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import VOCABULARY, vocabulary
from scipy import stats

from unmask.batch import PackedBatch
from unmask.config import MaskedTokens
from unmask.objectives.masked import MaskedTokenObjective
from unmask.presets import bert_tiny
from unmask.text.vocabulary import Vocabulary

BIG = vocabulary(2000, special_ids=(0, 1, 2, 3, 4, 1500))


def objective(goal: MaskedTokens | None = None, ids: Vocabulary = VOCABULARY) -> MaskedTokenObjective:
    return MaskedTokenObjective(bert_tiny(ids.size), goal or MaskedTokens(), ids)


def batch_of(rows: list[list[int]], words: list[list[bool]] | None = None, first: int = 0) -> PackedBatch:
    batch = PackedBatch.pack([[2, *row, 3] for row in rows])
    flags = None if words is None else torch.tensor([w for row in words for w in [True, *row, True]])
    return batch.with_(examples=torch.arange(first, first + len(rows)), word_starts=flags)


def random_rows(count: int, low: int, high: int, size: int = 64, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(5, size, rng.integers(low, high + 1)).tolist() for _ in range(count)]


def random_words(rows: list[list[int]], longest: int, seed: int = 0) -> list[list[bool]]:
    rng = np.random.default_rng(seed)
    flags = []
    for row in rows:
        row_flags: list[bool] = []
        while len(row_flags) < len(row):
            row_flags += [True] + [False] * int(rng.integers(0, longest))
        flags.append(row_flags[: len(row)])
    return flags


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(0, 2**31),
    st.sampled_from([0.01, 0.15, 0.3, 1.0]),
    st.booleans(),
)
def test_only_targets_change_and_no_special_token_is_one(
    lengths: list[int], seed: int, rate: float, whole_word: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(1, 64, n).tolist() for n in lengths]  # the unknown token, [MASK] and separators among them
    before = batch_of(rows, random_words(rows, 4))
    after = objective(MaskedTokens(mask_rate=rate, whole_word=whole_word)).prepare(before, seed)
    where, value = after.labels["mlm"]
    special = torch.tensor(VOCABULARY.is_special())
    assert torch.equal(after.input_ids.index_copy(0, where, value), before.input_ids)
    assert not special[value].any()
    shown = after.input_ids[where]
    assert not special[shown[shown != VOCABULARY.mask_token_id]].any()
    assert torch.equal(after.starts, before.starts) and torch.equal(where, where.sort().values)


def test_B086_special_tokens_are_never_masked_whatever_their_ids() -> None:
    rows = [[1500, 1, 7, 1500, 3, 0, 4] for _ in range(200)]
    for whole_word in (False, True):
        words = [[True] * 7 for _ in rows]
        after = objective(MaskedTokens(mask_rate=1.0, whole_word=whole_word), BIG).prepare(batch_of(rows, words), 0)
        assert set(after.labels["mlm"].value.tolist()) == {7}


def test_B089_the_rate_and_80_10_10_are_exact() -> None:
    """Bounds are three standard deviations, for a million maskable tokens."""
    rows = random_rows(10_000, 100, 100, size=2000)
    rows = [[t if t != 1500 else 7 for t in row] for row in rows]
    before = batch_of(rows)
    after = objective(ids=BIG).prepare(before, 1)
    where, value = after.labels["mlm"]
    assert len(where) == 150_000  # 15 of each 100, exactly
    shown = after.input_ids[where]
    masked = (shown == BIG.mask_token_id).double().mean()
    changed = ((shown != BIG.mask_token_id) & (shown != value)).double().mean()
    assert abs(masked - 0.8) < 0.0031
    assert abs(changed - 0.1 * (1 - 1 / 1994)) < 0.0024
    noise = shown[(shown != BIG.mask_token_id) & (shown != value)].numpy()
    counts = np.bincount(noise, minlength=2000)
    assert (counts[list(BIG.special_ids)] == 0).all()
    assert stats.chisquare(np.delete(counts, BIG.special_ids)).pvalue > 1e-4  # uniform over the ordinary ids


@pytest.mark.parametrize("length", [3, 7, 10, 33])
def test_short_sequences_get_their_share_on_average(length: int) -> None:
    """B084: a sequence whose share is below one token sometimes has no target; its weight is then 0, never NaN."""
    count = 20_000
    after = objective().prepare(batch_of([[9] * length] * count), 0)
    counts = np.bincount(after.layout.rows[after.labels["mlm"].where].numpy(), minlength=count)
    low = int(0.15 * length)
    assert set(np.unique(counts)) <= {low, low + 1}
    assert abs(counts.mean() - 0.15 * length) < 4 * 0.5 / count**0.5


@pytest.mark.parametrize("whole_word", [False, True])
def test_masks_are_flat_over_positions(whole_word: bool) -> None:
    """DeBERTa's mask generator never masks the last 48 of 512 positions."""
    rows = [[9] * 64 for _ in range(20_000)]
    words = random_words(rows, 4)
    after = objective(MaskedTokens(whole_word=whole_word)).prepare(batch_of(rows, words), 0)
    counts = np.bincount(after.layout.position_ids[after.labels["mlm"].where].numpy(), minlength=66)
    assert counts[0] == counts[65] == 0
    expected, spread = counts[1:65].sum() / 64, (20_000 * 0.15 * 0.85) ** 0.5
    assert abs(counts[1:65] - expected).max() < (5 if not whole_word else 8) * spread  # words at the ends are cut short


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 2**31))
def test_whole_words_are_masked_whole_and_never_across_sequences(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(5, 64, n).tolist() for n in lengths]
    words = random_words(rows, 5, seed)
    words = [[bool(rng.random() < 0.5), *row[1:]] for row in words]  # a sequence may begin inside a word
    batch = batch_of(rows, words)
    after = objective(MaskedTokens(mask_rate=0.3, whole_word=True)).prepare(batch, seed)
    chosen = torch.zeros(batch.num_tokens, dtype=torch.bool)
    chosen[after.labels["mlm"].where] = True
    starts = batch.word_starts.clone()
    starts[batch.starts[:-1].long() + 1] = True
    starts[batch.starts[1:].long() - 1] = True
    for i in range(1, batch.num_tokens):
        if not starts[i]:
            assert chosen[i] == chosen[i - 1], "a word is masked in part"


def test_whole_word_masking_keeps_the_rate_where_words_are_long() -> None:
    """Elsewhere a Chinese sentence counts as one word: then 85 % of the draws mask nothing and 15 % mask everything."""
    rows = random_rows(4_000, 10, 60)
    for longest in (1, 4, 12):
        words = random_words(rows, longest)
        after = objective(MaskedTokens(whole_word=True)).prepare(batch_of(rows, words), 5)
        assert abs(len(after.labels["mlm"].where) / sum(map(len, rows)) - 0.15) < 0.003
    counts = np.bincount(after.layout.rows[after.labels["mlm"].where].numpy(), minlength=len(rows))
    assert (counts <= 0.15 * np.array([len(r) for r in rows]) + 12).all()


def test_R3_masks_depend_on_the_example_alone() -> None:
    """Not on its batch mates, its place in the batch or the process: masks survive any cut into batches and any resume."""
    rows = random_rows(64, 5, 40)
    whole = objective().prepare(batch_of(rows), 3)
    for i in range(64):
        alone = objective().prepare(batch_of([rows[i]], first=i), 3)
        begin, end = int(whole.starts[i]), int(whole.starts[i + 1])
        assert torch.equal(alone.input_ids, whole.input_ids[begin:end])


def test_B092_every_epoch_draws_other_masks() -> None:
    row = [9] * 40
    draws = {
        tuple(objective().prepare(batch_of([row], first=epoch << 44), 0).labels["mlm"].where.tolist())
        for epoch in range(10)
    }
    assert len(draws) >= 9


def test_seeds_draw_other_masks() -> None:
    rows = random_rows(8, 30, 40)
    a, b = (objective().prepare(batch_of(rows), seed).labels["mlm"].where for seed in (0, 1))
    assert a.tolist() != b.tolist()


def test_id_0_can_be_a_label() -> None:
    """Elsewhere `label > 0` drops it. Here the vocabulary decides which ids are special."""
    after = objective(MaskedTokens(mask_rate=1.0), vocabulary(64, pad_token_id=9, special_ids=(1, 2, 3, 4, 9))).prepare(
        batch_of([[0, 0, 0]]), 0
    )
    assert after.labels["mlm"].value.tolist() == [0, 0, 0]


def test_masking_never_changes_the_batch_it_was_given() -> None:
    batch = batch_of(random_rows(4, 20, 20))
    before = batch.input_ids.clone()
    objective(MaskedTokens(mask_rate=0.9)).prepare(batch, 0)
    assert torch.equal(batch.input_ids, before)
