from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from made_up import VOCABULARY, MadeUpSource, numbered_documents, random_documents

from unmask.batch import PackedBatch
from unmask.config import Documents, Examples, FullSentences, MaskedTokens, Pairs
from unmask.loader import Batches, Cursor, load
from unmask.objectives.masked import MaskedTokenObjective
from unmask.presets import bert_tiny


def unchanged(batch: PackedBatch, seed: int) -> PackedBatch:
    return batch


def batches_of(
    documents: list[list[list[int]]], how: Examples, prepare=unchanged, tokens: int = 200, pool: int = 2000
) -> Batches:
    return Batches(MadeUpSource(documents), how, VOCABULARY, prepare, seed=3, tokens=tokens, pool_tokens=pool)


def masking(documents: int = 400, tokens: int = 200) -> Batches:
    objective = MaskedTokenObjective(bert_tiny(VOCABULARY.size), MaskedTokens(), VOCABULARY)
    return batches_of(random_documents(documents), Pairs(max_length=48), objective.prepare, tokens, pool=10 * tokens)


def as_numbers(batch: PackedBatch) -> tuple[object, ...]:
    labels = {name: (t.where.tolist(), t.value.tolist()) for name, t in batch.labels.items()}
    return batch.input_ids.tolist(), batch.starts.tolist(), batch.examples.tolist(), batch.documents.tolist(), labels


def test_any_number_of_workers_gives_the_same_batches() -> None:
    plans = [load(masking(), Cursor(), workers=workers) for workers in (0, 1, 2)]
    seen = [[(as_numbers(batch), cursor) for batch, cursor in islice(plan, 60)] for plan in plans]
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][-1][1] > Cursor(0, 3, 0)


@pytest.mark.slow
def test_masks_and_order_agree_for_0_1_and_2_workers_over_ten_thousand_examples() -> None:
    """Issue and RELIABILITY R3: 100 % equal over 10,000 examples, across epochs."""
    streams = [load(masking(tokens=4000), Cursor(), workers=workers) for workers in (0, 1, 2)]
    examples = 0
    while examples < 10_000:
        (a, x), (b, y), (c, z) = (next(stream) for stream in streams)
        assert x == y == z
        assert as_numbers(a) == as_numbers(b) == as_numbers(c)
        examples += a.num_sequences
    assert x.epoch >= 1


def test_B029_B033_B034_B035_going_on_from_any_cursor_is_going_on() -> None:
    """Within an epoch, at its end, and again and again: what follows a cursor never depends on where the process began."""
    whole = [(as_numbers(batch), cursor) for batch, cursor in islice(masking(60).since(Cursor()), 130)]
    assert whole[-1][1].epoch >= 2
    for stop in (0, 1, 30, 40, *[i for i, (_, cursor) in enumerate(whole) if cursor.batch == 0]):
        rest = masking(60).since(whole[stop][1])
        again = [(as_numbers(batch), cursor) for batch, cursor in islice(rest, min(9, len(whole) - stop - 1))]
        assert again == whole[stop + 1 : stop + 1 + len(again)]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("documents", [10, 40])
def test_every_document_is_used_exactly_once_an_epoch(documents: int, workers: int) -> None:
    """Elsewhere the last document of each worker was lost."""
    texts = numbered_documents([[5, 7, 3]] * documents)
    batches = batches_of(texts, FullSentences(max_length=32), tokens=40, pool=60)
    for epoch in range(2):
        used: Counter[int] = Counter()
        for batch, cursor in load(batches, Cursor(epoch), workers=workers):
            used.update(t for t in batch.input_ids.tolist() if t >= 5)
            if cursor.epoch > epoch:
                break
        assert used == Counter(t for d in texts for s in d for t in s)


def test_epochs_differ_in_order_and_masks() -> None:
    orders, masks = [], []
    for epoch in range(3):
        order, mask = [], []
        for batch, cursor in masking().since(Cursor(epoch)):
            order += batch.documents.tolist()
            mask += batch.labels["mlm"].where.tolist()
            if cursor.epoch > epoch:
                break
        orders.append(order)
        masks.append(mask)
    assert sorted(set(orders[0])) == sorted(set(orders[1])) == list(range(400))
    assert orders[0] != orders[1] != orders[2] and masks[0] != masks[1]


def test_batches_are_of_about_the_budget_with_no_runt() -> None:
    sizes = [batch.num_tokens for batch, _ in islice(masking().since(Cursor()), 100)]
    assert min(sizes) > 0.6 * 200 and max(sizes) < 1.4 * 200
    assert abs(np.mean(sizes) - 200) < 20


def test_a_corpus_smaller_than_a_batch_still_makes_batches() -> None:
    batch, cursor = next(iter(batches_of([[[7, 8, 9]]], Documents(max_length=16)).since(Cursor())))
    assert batch.input_ids.tolist() == [2, 7, 8, 9, 3] and cursor == Cursor(1, 0, 0, made=1)


def test_sequences_in_a_batch_are_sorted_so_that_attention_groups_them() -> None:
    for batch, _ in islice(masking().since(Cursor()), 20):
        lengths = batch.starts.diff()
        assert torch.equal(lengths, lengths.sort().values)
        assert batch.layout.padding() <= 0.1


def test_example_numbers_are_unique_in_the_whole_run() -> None:
    numbers = [n for batch, _ in islice(masking().since(Cursor()), 200) for n in batch.examples.tolist()]
    assert len(set(numbers)) == len(numbers)
