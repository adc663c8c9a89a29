from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import VOCABULARY, vocabulary
from scipy import stats

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, MaskedTokens
from unmask.errors import UnmaskError
from unmask.objectives.choose import Unit
from unmask.objectives.masked import MaskedTokenObjective
from unmask.text.vocabulary import Vocabulary

UNITS: tuple[Unit, ...] = get_args(Unit)
BIG = vocabulary(2000, special_ids=(0, 1, 2, 3, 4, 1500))


def objective(goal: MaskedTokens | None = None, ids: Vocabulary = VOCABULARY) -> MaskedTokenObjective:
    config = EncoderConfig(vocab_size=ids.size, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    return MaskedTokenObjective(config, goal or MaskedTokens(), ids)


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
    st.sampled_from(UNITS),
)
def test_only_targets_change_and_no_special_token_is_one(
    lengths: list[int], seed: int, rate: float, unit: Unit
) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(1, 64, n).tolist() for n in lengths]  # the unknown token, [MASK] and separators among them
    before = batch_of(rows, random_words(rows, 4))
    after = objective(MaskedTokens(mask_rate=rate, unit=unit)).prepare(before, seed)
    where, value = after.labels["mlm"]
    special = torch.tensor(VOCABULARY.is_special())
    assert torch.equal(after.input_ids.index_copy(0, where, value), before.input_ids)
    assert not special[value].any()
    shown = after.input_ids[where]
    assert not special[shown[shown != VOCABULARY.mask_token_id]].any()
    assert torch.equal(after.starts, before.starts) and torch.equal(where, where.sort().values)


def test_B086_special_tokens_are_never_masked_whatever_their_ids() -> None:
    rows = [[1500, 1, 7, 1500, 3, 0, 4] for _ in range(200)]
    for unit in UNITS:
        words = [[True] * 7 for _ in rows]
        after = objective(MaskedTokens(mask_rate=1.0, unit=unit), BIG).prepare(batch_of(rows, words), 0)
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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.integers(0, 2**31),
    st.sampled_from(("word", "ngram", "span")),
)
def test_whole_words_are_masked_whole_and_never_across_sequences(lengths: list[int], seed: int, unit: Unit) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(5, 64, n).tolist() for n in lengths]
    words = random_words(rows, 5, seed)
    words = [[bool(rng.random() < 0.5), *row[1:]] for row in words]  # a sequence may begin inside a word
    batch = batch_of(rows, words)
    after = objective(MaskedTokens(mask_rate=0.3, unit=unit)).prepare(batch, seed)
    chosen = torch.zeros(batch.num_tokens, dtype=torch.bool)
    chosen[after.labels["mlm"].where] = True
    starts = batch.word_starts.clone()
    starts[batch.starts[:-1].long() + 1] = True
    starts[batch.starts[1:].long() - 1] = True
    for i in range(1, batch.num_tokens):
        if not starts[i]:
            assert chosen[i] == chosen[i - 1], "a word is masked in part"


@pytest.mark.parametrize("unit", ["word", "ngram", "span"])
def test_masking_whole_words_keeps_the_rate_where_words_are_long(unit: Unit) -> None:
    """Elsewhere a Chinese sentence counts as one word: then 85 % of the draws mask nothing and 15 % mask everything."""
    rows = random_rows(4_000, 10, 60)
    for longest in (1, 4, 12):
        words = random_words(rows, longest)
        after = objective(MaskedTokens(unit=unit)).prepare(batch_of(rows, words), 5)
        assert abs(len(after.labels["mlm"].where) / sum(map(len, rows)) - 0.15) < 0.003
    counts = np.bincount(after.layout.rows[after.labels["mlm"].where].numpy(), minlength=len(rows))
    assert (counts <= 0.15 * np.array([len(r) for r in rows]) + 12).all()


@pytest.mark.parametrize("unit", UNITS)
def test_R3_masks_depend_on_the_example_alone(unit: Unit) -> None:
    """Not on its batch mates, its place in the batch or the process: masks survive any cut into batches and any resume.

    Sequences without separators, so that a span at the end of one stands beside a span at the beginning of the next.
    """
    rows, goal = random_rows(64, 1, 40), MaskedTokens(unit=unit, mask_rate=0.6)
    pack = lambda chosen, first: PackedBatch.pack(chosen).with_(
        examples=torch.arange(first, first + len(chosen)),
        word_starts=torch.ones(sum(map(len, chosen)), dtype=torch.bool),
    )
    whole = objective(goal).prepare(pack(rows, 0), 3)
    for i in range(64):
        alone = objective(goal).prepare(pack([rows[i]], i), 3)
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


def long_rows(count: int = 3_000, unit: Unit = "span", **goal: float) -> tuple[PackedBatch, PackedBatch]:
    """Sequences of 100 ordinary tokens, before and after."""
    rows = [[t if t != 1500 else 7 for t in row] for row in random_rows(count, 100, 100, size=2000)]
    before = batch_of(rows, random_words(rows, 3))
    return before, objective(MaskedTokens(unit=unit, **goal), BIG).prepare(before, 1)


def test_a_span_meets_one_fate_80_10_10_of_the_spans() -> None:
    """SpanBERT section 3.1; each random token of a span is another one. Bounds are four standard deviations."""
    _, after = long_rows()
    where, value = after.labels["mlm"]
    shown = after.input_ids[where]
    span = torch.cat([torch.ones(1, dtype=torch.bool), where.diff() > 1]).cumsum(0) - 1
    count = int(span[-1]) + 1
    size = torch.zeros(count).index_add(0, span, torch.ones(len(span)))
    share = lambda flags: torch.zeros(count).index_add(0, span, flags.float()) / size
    masked, kept = share(shown == BIG.mask_token_id), share(shown == value)
    assert set(masked.unique().tolist()) == {0.0, 1.0}, "a span is masked in part"
    assert ((masked == 1) | (kept == 1) | (kept < 0.5)).all()
    noisy = (masked == 0) & (kept < 0.5)
    for flags, wanted in ((masked == 1, 0.8), (kept == 1, 0.1), (noisy, 0.1)):
        assert abs(flags.double().mean() - wanted) < 4 * (wanted * (1 - wanted) / count) ** 0.5
    noise = shown[noisy[span]].numpy()
    assert stats.chisquare(np.delete(np.bincount(noise, minlength=2000), BIG.special_ids)).pvalue > 1e-4


@pytest.mark.parametrize("unit", ["token", "word", "ngram"])
def test_other_units_meet_their_fate_token_by_token(unit: Unit) -> None:
    """BERT decides for each token even where whole words are masked: half of all neighbours would else agree more often."""
    _, after = long_rows(unit=unit, mask_rate=0.5)
    where = after.labels["mlm"].where
    masked = (after.input_ids[where] == BIG.mask_token_id).double()
    both = (masked[1:] * masked[:-1])[where.diff() == 1]
    assert abs(both.mean() - 0.64) < 4 * (0.64 * 0.36 / len(both)) ** 0.5 * 1.5  # neighbours' neighbours overlap
    assert abs(masked.mean() - 0.8) < 4 * (0.16 / len(masked)) ** 0.5


@pytest.mark.parametrize("unit", UNITS)
def test_the_mask_rate_moves_over_the_run(unit: Unit) -> None:
    goal = MaskedTokens(unit=unit, mask_rate=0.3, final_mask_rate=0.1)
    rows = random_rows(500, 100, 100)
    for progress, rate in ((0.0, 0.3), (0.5, 0.2), (1.0, 0.1)):
        after = objective(goal).prepare(batch_of(rows, random_words(rows, 1)).with_(progress=progress), 0)
        assert len(after.labels["mlm"].where) == round(rate * 50_000)


def test_a_schedule_only_takes_targets_away() -> None:
    """Draws do not depend on the rate, so a lower one chooses among the same tokens."""
    rows, goal = random_rows(20, 50, 60), MaskedTokens(mask_rate=0.4, final_mask_rate=0.1)
    many, few = (
        set(objective(goal).prepare(batch_of(rows).with_(progress=p), 0).labels["mlm"].where.tolist())
        for p in (0.0, 1.0)
    )
    assert few < many


def test_a_tokenizer_without_a_mask_token_is_refused() -> None:
    with pytest.raises(UnmaskError, match="mask"):
        objective(ids=replace(VOCABULARY, mask_token_id=None))


def test_the_bias_may_begin_at_the_frequencies_of_the_tokens() -> None:
    counts = np.arange(64.0)
    mlm = objective(MaskedTokens(frequency_bias=True))
    mlm.know_frequencies(counts)
    assert mlm.head.bias is not None
    expected = np.log((counts + 0.5) / (counts + 0.5).sum())
    np.testing.assert_allclose(mlm.head.bias.detach().numpy(), expected, rtol=1e-6)
    config = EncoderConfig(vocab_size=64, hidden_size=8, num_attention_heads=2, intermediate_size=8, head_bias=False)
    without = MaskedTokenObjective(config, MaskedTokens(), VOCABULARY)
    without.know_frequencies(counts)
    assert without.head.bias is None
