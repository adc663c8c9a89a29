"""What every objective promises, whatever the backbone, the tokenizer and the text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from contract_cases import CASES, SIZE, USUAL, VOCABULARIES, Text, model, text
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import PackedBatch, Targets
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint, combine
from unmask.text.vocabulary import Vocabulary

CHANCE = {"mlm": SIZE, "sbo": SIZE, "causal": SIZE, "infill": SIZE, "nsp": 2, "sop": 2, "rtd": 2}
MASKING = [name for name, (_, goals) in CASES.items() if any(g.kind in ("mlm", "rtd") for g in goals)]


def sides(batch: PackedBatch) -> list[PackedBatch]:
    return [batch] if batch.decoder is None else [batch, batch.decoder]


def same(a: PackedBatch, b: PackedBatch) -> bool:
    return all(
        torch.equal(x.input_ids, y.input_ids)
        and torch.equal(x.starts, y.starts)
        and set(x.labels) == set(y.labels)
        and all(torch.equal(p, q) for name in x.labels for p, q in zip(x.labels[name], y.labels[name], strict=True))
        for x, y in zip(sides(a), sides(b), strict=True)
    )


some_text = st.tuples(
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.integers(0, 2**31),
    st.booleans(),
    st.sampled_from([1, 3, 6]),
)


def frames(batch: PackedBatch, ids: Vocabulary) -> list[list[int]]:
    """The special tokens of each sequence but sentinels."""
    kept = ids.is_special()
    kept[list(ids.sentinel_ids)] = False
    rows = np.split(batch.input_ids.numpy(), batch.starts[1:-1].tolist())
    return [row[kept[row]].tolist() for row in rows]


# --- what is corrupted -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ids", VOCABULARIES.values(), ids=VOCABULARIES)
@pytest.mark.parametrize("case", MASKING)
def test_no_special_token_is_a_target_and_nothing_else_changes(case: str, ids: Vocabulary) -> None:
    """Elsewhere [SEP] and [CLS] are chosen in a quarter of the pairs, separators and segments are lost, random tokens land
    outside the targets."""
    _, objective = model(case, ids)
    special = torch.from_numpy(ids.is_special())

    @settings(max_examples=15, deadline=None)
    @given(some_text)
    def check(drawn: tuple[list[int], int, bool, int]) -> None:
        lengths, seed, pairs, longest_word = drawn
        before = text(lengths, seed, ids, pairs=pairs, longest_word=longest_word).batch()
        after = objective.prepare(before, seed)
        where, value = after.labels["mlm"]
        assert torch.equal(after.input_ids.index_copy(0, where, value), before.input_ids)
        assert not special[value].any()
        shown = after.input_ids[where]
        assert not special[shown[shown != ids.mask_token_id]].any(), "a random replacement is a word"
        for name in ("starts", "token_type_ids", "examples"):
            assert torch.equal(getattr(after, name), getattr(before, name))
        assert after.labels["pair"] is before.labels["pair"]
        if "sbo" in after.labels:
            assert set(after.labels["sbo"].where.tolist()) <= set(where.tolist())

    check()


@pytest.mark.parametrize("case", [name for name in CASES if "rtd" in name])
def test_a_generator_fills_the_blanks_and_nothing_else(case: str) -> None:
    """Elsewhere ELECTRA's random tokens are placed outside the mask."""
    encoder, objective = model(case, deviation=0.3)
    text_ = text([30, 5, 0, 17], 0, USUAL)
    before, prepared = text_.batch(), objective.prepare(text_.batch(), 0)
    filled, _ = objective.begin(encoder, prepared)
    where = prepared.labels["mlm"].where
    outside = torch.ones(len(before.input_ids), dtype=torch.bool).index_fill(0, where, False)
    assert torch.equal(filled.input_ids[outside], before.input_ids[outside])
    truth = filled.labels["rtd"]
    assert torch.equal(truth.value.bool(), filled.input_ids != before.input_ids) and truth.value.any()
    assert truth.where.tolist() == list(range(len(before.input_ids)))


@pytest.mark.parametrize("ids", VOCABULARIES.values(), ids=VOCABULARIES)
@pytest.mark.parametrize("case", ["infill on T5", "infill on BERT"])
def test_spans_are_words_and_the_frame_stays(case: str, ids: Vocabulary) -> None:
    _, objective = model(case, ids)

    @settings(max_examples=15, deadline=None)
    @given(some_text)
    def check(drawn: tuple[list[int], int, bool, int]) -> None:
        lengths, seed, pairs, longest_word = drawn
        before = text(lengths, seed, ids, pairs=pairs, longest_word=longest_word).batch()
        after = objective.prepare(before, seed)
        special = ids.is_special()
        special[list(ids.sentinel_ids)] = False
        value = after.decoder.labels["infill"].value.numpy()
        ends = after.decoder.starts[1:].numpy() - 1
        assert (value[ends] == ids.sep_token_id).all() and special[value].sum() == len(ends)
        assert frames(before, ids) == frames(after, ids)

    check()


@pytest.mark.parametrize("case", CASES)
def test_corruption_depends_on_the_example_alone(case: str) -> None:
    """Not on its batch mates, nor on a state that workers share: so nothing changes with workers, batches and resumes."""
    _, objective = model(case)
    texts = text(list(range(2, 40, 3)), 1, USUAL, pairs=True)
    whole = objective.prepare(texts.batch(), 3)
    assert same(whole, objective.prepare(texts.batch(), 3))
    for i in (0, 5, 12):
        alone = objective.prepare(texts.batch([i]), 3)
        for one, all_ in zip(sides(alone), sides(whole), strict=True):
            begin, end = int(all_.starts[i]), int(all_.starts[i + 1])
            assert torch.equal(one.input_ids, all_.input_ids[begin:end])
            for name in {*one.labels} - {"pair", "sbo_edges"}:
                inside = (all_.labels[name].where >= begin) & (all_.labels[name].where < end)
                assert torch.equal(one.labels[name].where, all_.labels[name].where[inside] - begin)
                assert torch.equal(one.labels[name].value, all_.labels[name].value[inside])


@pytest.mark.parametrize("case", CASES)
def test_preparing_leaves_the_batch_it_was_given_as_it_is(case: str) -> None:
    _, objective = model(case)
    texts = text([30, 20], 1, USUAL, pairs=True)
    given_ = texts.batch()
    objective.prepare(given_, 0)
    assert same(given_, texts.batch()) and torch.equal(given_.word_starts, texts.batch().word_starts)


@pytest.mark.parametrize("case", CASES)
def test_id_0_can_be_a_label(case: str) -> None:
    """Elsewhere `label > 0` drops it."""
    ids = VOCABULARIES["special ids scattered"]
    _, objective = model(case, ids)
    zeros = Text([[59, *[0] * 40, 58]], [[0] * 42], [[True] * 42]).batch()
    after = sides(objective.prepare(zeros, 0))[-1]
    values = [after.labels[name].value for name in ("mlm", "causal", "infill") if name in after.labels]
    assert any((value == 0).any() for value in values)


# --- the loss --------------------------------------------------------------------------------------------------------
def losses_of(
    encoder: Encoder, objective: Joint, batches: Sequence[PackedBatch]
) -> tuple[torch.Tensor, Mapping[str, int]]:
    """Backward over micro-batches as the training loop does it; the loss of the step and its counts."""
    for module in (encoder, objective):
        module.zero_grad()
    counts: dict[str, int] = {}
    for batch in batches:
        for name, count in objective.counts(batch).items():
            counts[name] = counts.get(name, 0) + count
    total = torch.zeros(())
    for batch in batches:
        losses = objective(encoder, batch)
        assert {name: part.count for name, part in losses.items()} == objective.counts(batch)
        loss = combine(losses, counts)
        loss.backward()
        total += loss.detach()
    return total, counts


def gradient(encoder: Encoder, objective: Joint) -> torch.Tensor:
    parameters = [p for module in (encoder, objective) for p in module.parameters()]
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])


@pytest.mark.parametrize("case", CASES)
def test_micro_batches_give_the_gradient_of_the_whole_batch(case: str) -> None:
    """Elsewhere each micro-batch is averaged on its own, which weighs uneven ones wrongly."""
    encoder, objective = model(case, deviation=0.1)
    texts = text([3, 40, 7, 21, 0, 30, 12, 5], 2, USUAL, pairs=True)
    whole_loss, whole_counts = losses_of(encoder, objective, [objective.prepare(texts.batch(), 1)])
    whole = gradient(encoder, objective)
    parts = [objective.prepare(texts.batch(rows), 1) for rows in ([0], [1, 2], [3, 4, 5, 6], [7])]
    loss, counts = losses_of(encoder, objective, parts)
    assert counts == whole_counts and all(counts.values())
    assert abs(float(loss - whole_loss)) < 1e-5 * float(whole_loss)
    assert float((gradient(encoder, objective) - whole).abs().max() / whole.abs().max()) < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_a_batch_without_targets_is_finite(case: str) -> None:
    """A frame around nothing, and a single token."""
    encoder, objective = model(case)
    for rows in ([[2, 3]], [[2]], [[2, 3], [2, 3, 3]]):
        plain = Text(rows, [[0] * len(row) for row in rows], [[True] * len(row) for row in rows]).batch()
        nothing = torch.zeros(0, dtype=torch.long)
        loss, _ = losses_of(
            encoder, objective, [objective.prepare(plain.with_(labels={"pair": Targets(nothing, nothing)}), 0)]
        )
        assert torch.isfinite(loss) and torch.isfinite(gradient(encoder, objective)).all()


@pytest.mark.parametrize("case", CASES)
def test_losses_begin_at_chance(case: str) -> None:
    encoder, objective = model(case)
    batch = objective.prepare(text([30] * 40, 0, USUAL, pairs=True).batch(), 0)
    for name, part in objective(encoder, batch).items():
        chance = math.log(CHANCE[name]) + 0.5 * (case == "infill on T5")  # whose logits begin with deviation 1
        assert abs(float(part.total.detach()) / part.count - chance) < 0.1, name


@pytest.mark.parametrize("case", CASES)
def test_right_answers_are_counted_in_evaluation_only(case: str) -> None:
    encoder, objective = model(case)
    batch = objective.prepare(text([30] * 4, 0, USUAL, pairs=True).batch(), 0)
    assert all(part.correct is None for part in objective(encoder, batch).values())
    objective.eval()
    assert all(0 <= int(part.correct) <= part.count for part in objective(encoder, batch).values())
    assert objective.flops(encoder.config, batch) > 0


# --- learning --------------------------------------------------------------------------------------------------------
def toy(step: int, count: int = 16) -> Text:
    """A language that says one of 8 words over and over, then its partner; which of two such vocabularies is the label."""
    rng = np.random.default_rng(step)
    rows: list[list[int]] = []
    types: list[list[int]] = []
    for i in range(count):
        word, row = int(rng.integers(10, 14)) + 20 * (i % 2), [2]
        for partner in (word, word + 4):
            row += [*[partner] * int(rng.integers(4, 9)), 3]
        rows.append(row)
        types.append([int(place > row.index(3)) for place in range(len(row))])
    return Text(rows, types, [[True] * len(row) for row in rows])


def numbered(batch: PackedBatch, step: int) -> PackedBatch:
    return batch.with_(examples=batch.examples + (step << 20))


@torch.no_grad()
def measured(encoder: Encoder, objective: Joint) -> dict[str, tuple[float, float]]:
    """Each loss on unseen text, and what knowing no more than how often each answer occurs would cost."""
    batch = objective.prepare(numbered(toy(10**6, 100).batch(), 10**6), 0)
    batch, losses = objective.begin(encoder, batch)
    losses = {**losses, **objective.loss(encoder, encoder.layers(batch, *objective.tables()), batch)}
    found = {}
    for name, part in losses.items():
        label = "pair" if name in ("nsp", "sop") else name
        shares = np.unique(sides(batch)[name == "infill"].labels[label].value, return_counts=True)[1] / part.count
        found[name] = float(part.total) / part.count, float(-(shares * np.log(shares)).sum())
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_combination_learns_a_toy_language(case: str) -> None:
    encoder, objective = model(case, deviation=0.1)
    parameters = [*encoder.parameters(), *objective.parameters()]
    optimizer = torch.optim.AdamW(parameters, 4e-3)
    for step in range(100):
        batch = objective.prepare(numbered(toy(step).batch(), step), 0)
        loss = combine(objective(encoder, batch), objective.counts(batch))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    for name, (loss_now, without) in measured(encoder, objective).items():
        assert loss_now < max(0.75 * without, 0.05), name  # a generator that is always right leaves nothing to find
