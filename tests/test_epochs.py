"""Batches of labelled sequences: everything once an epoch, the same whoever asks, labels where their tokens are."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import PackedBatch
from unmask.epochs import AHEAD, Epochs, apart, pack, token_budget
from unmask.loader import Cursor
from unmask.text.sequences import Labels, Sequences, ragged


def made_up(lengths: list[int], units: list[int] | None = None) -> Sequences:
    """Sequence n holds the ids 100 n, 100 n + 1 …; every even token is labelled with its own id."""
    places = [list(range(0, length, 2)) for length in lengths]
    values = [[100 * n + place for place in row] for n, row in enumerate(places)]
    return Sequences(
        np.array([100 * n + t for n, length in enumerate(lengths) for t in range(length)], np.int32),
        np.cumsum([0, *lengths]),
        np.arange(len(lengths)) * 7,
        np.arange(len(lengths)) if units is None else np.array(units),
        labels={"tag": Labels.of(places, values), "label": Labels.one_each(np.arange(len(lengths)))},
    )


def rows_of(batch: PackedBatch) -> dict[int, list[int]]:
    assert batch.examples is not None
    return {
        int(n): ids.tolist()
        for n, ids in zip(batch.examples, batch.input_ids.split(batch.starts.diff().tolist()), strict=True)
    }


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_packed_batch_holds_the_chosen_sequences_and_their_labels(lengths: list[int], random) -> None:  # type: ignore[no-untyped-def]
    sequences = made_up(lengths)
    chosen = np.array(random.sample(range(len(lengths)), random.randint(1, len(lengths))))
    batch = pack(sequences, chosen)
    assert rows_of(batch) == {n: [100 * n + t for t in range(lengths[n])] for n in chosen.tolist()}
    where, value = batch.labels["tag"]
    assert torch.equal(batch.input_ids[where], value) and len(where) == sum(-(-lengths[n] // 2) for n in chosen)
    where, value = batch.labels["label"]
    assert torch.equal(where, batch.starts[:-1].long()) and torch.equal(value, batch.examples)
    assert batch.documents is not None and torch.equal(batch.documents, 7 * value)
    assert batch.starts.diff().tolist() == sorted(batch.starts.diff().tolist())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 3))
def test_an_epoch_has_every_unit_once_and_every_epoch_its_own_order(count: int, units: int, seed: int) -> None:
    epochs = Epochs(made_up([1 + n % 3 for n in range(count)]), lambda batch, seed: batch, seed, units)
    found = [list(rows_of(batch)) for batch, _ in islice(epochs.since(Cursor()), 2 * epochs.per_epoch)]
    for epoch in (found[: epochs.per_epoch], found[epochs.per_epoch :]):
        assert sorted(n for batch in epoch for n in batch) == list(range(count))
        assert all(len(batch) == units for batch in epoch[:-1])


def test_sequences_of_a_unit_are_dealt_together() -> None:
    sequences = made_up([3, 1, 2, 5, 4, 1], units=[0, 0, 1, 2, 2, 2])
    for batch, _ in islice(Epochs(sequences, lambda batch, seed: batch, 0, 1).since(Cursor()), 9):
        assert sorted(rows_of(batch)) in ([0, 1], [2], [3, 4, 5])


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_and_resumes_give_the_same_batches(workers: int) -> None:
    epochs = Epochs(made_up([2] * 11), lambda batch, seed: batch, 5, 3)
    alone = list(islice(epochs.since(Cursor()), 9))
    shared = [epochs.since(Cursor(), w, workers) for w in range(workers)]
    together = [next(shared[n % workers]) for n in range(9)]
    for (one, after), (other, same) in zip(alone, together, strict=True):
        assert rows_of(one) == rows_of(other) and after == same
    resumed = list(islice(epochs.since(alone[3][1]), 5))
    assert [rows_of(b) for b, _ in resumed] == [rows_of(b) for b, _ in alone[4:]]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=0, max_size=20), st.integers(1, 40), st.booleans())
def test_a_token_budget_is_kept_and_every_sequence_comes_once(lengths: list[int], tokens: int, whole: bool) -> None:
    units = [n // 3 for n in range(len(lengths))]
    seen: list[int] = []
    for batch in token_budget(made_up(lengths, units), tokens, whole_units=whole):
        rows = list(rows_of(batch))
        assert batch.num_tokens <= tokens or len({units[n] for n in rows} if whole else rows) == 1
        if whole:
            assert all((m in rows) for n in rows for m in range(len(lengths)) if units[m] == units[n])
        seen += rows
    assert sorted(seen) == list(range(len(lengths)))


def test_ragged_rows_are_found_in_any_order() -> None:
    places, ends = ragged(np.array([0, 2, 2, 5]), np.array([2, 0, 1, 2]))
    assert places.tolist() == [2, 3, 4, 0, 1, 2, 3, 4] and ends.tolist() == [0, 3, 5, 5, 8]


def clashes(dealt: list[int], texts: dict[int, set[int]], size: int) -> int:
    batches = [dealt[at : at + size] for at in range(0, len(dealt), size)]
    return sum(
        not texts.get(a, set()).isdisjoint(texts.get(b, set()))
        for batch in batches
        for at, a in enumerate(batch)
        for b in batch[:at]
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 30), max_size=2), min_size=1, max_size=60), st.integers(1, 8))
def test_units_that_share_a_text_are_dealt_apart_and_each_once(own: list[set[int]], size: int) -> None:
    texts = dict(enumerate(own))
    order = np.random.default_rng(len(own)).permutation(len(own)).tolist()
    dealt = list(apart(order, texts, size))
    assert sorted(dealt) == sorted(order) and dealt == list(apart(order, texts, size))
    assert all(dealt.index(unit) >= at - (AHEAD - 1) * size - size for at, unit in enumerate(order)), (
        "none comes far too early"
    )
    if clashes(order, texts, size) == 0:
        assert dealt == order, "what is apart already stays"


def test_pairs_of_a_text_never_meet_where_there_are_enough_others() -> None:
    texts = {unit: {unit // 3} for unit in range(300)}
    order = np.random.default_rng(0).permutation(300).tolist()
    assert clashes(order, texts, 10) > 3 and clashes(list(apart(order, texts, 10))[:-40], texts, 10) == 0


def test_one_text_for_all_spoils_no_batch() -> None:
    order = list(range(20))
    assert list(apart(order, {unit: {7} for unit in order}, 4)) == order
    half = {unit: {7} for unit in range(0, 20, 2)}
    dealt = list(apart(order, half, 4))
    assert sorted(dealt) == order and clashes(dealt[:4], half, 4) == 0


def ranked(texts: list[tuple[int, int, int]]) -> Sequences:
    """Units of a query, a positive and a negative, whose texts have these numbers."""
    count = 3 * len(texts)
    role = np.arange(count) % 3
    chosen = {"query": role == 0, "positive": role > 0}
    labels = {
        name: Labels(np.r_[0, which.cumsum()], np.zeros(which.sum(), np.int64), (role == 1)[which].astype(np.int64))
        for name, which in chosen.items()
    }
    labels["text"] = Labels.one_each(np.array(texts).ravel())
    return Sequences(np.arange(count, dtype=np.int32), np.arange(count + 1), role, np.arange(count) // 3, None, labels)


def test_queries_and_positives_are_kept_apart_and_equal_negatives_may_meet() -> None:
    rows = [(unit // 2, 100 + unit, 999) for unit in range(40)] + [
        (50 + unit, 200 + unit // 2, 999) for unit in range(40)
    ]
    epochs = Epochs(ranked(rows), lambda batch, seed: batch, 3, 5)
    for batch, _ in islice(epochs.since(Cursor()), epochs.per_epoch - AHEAD):
        texts = batch.labels["text"].value.tolist()
        met = [text for text in set(texts) if texts.count(text) > 1]
        assert met == [999]
    alone = [rows_of(batch) for batch, _ in islice(epochs.since(Cursor()), 30)]
    assert [rows_of(b) for b, _ in islice(epochs.since(Cursor(0, 0, 9, 9)), 21)] == alone[9:]
