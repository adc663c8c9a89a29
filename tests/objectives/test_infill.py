from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import vocabulary
from scipy import stats
from small_models import randomise

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, Infill, RelativeBias
from unmask.errors import UnmaskError
from unmask.nn.cost import attention_flops, block_matrices, token_head_flops
from unmask.nn.encoder import Encoder
from unmask.objectives.infill import InfillObjective, choose_spans, random_parts
from unmask.randomness import keys
from unmask.text.vocabulary import Vocabulary

SENTINELS = tuple(range(299, 279, -1))  # T5's count down from the end of the vocabulary
CONFIG = EncoderConfig(
    vocab_size=300,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    type_vocab_size=0,
    positions=RelativeBias(),
    norm="rms",
    norm_first=True,
    embedding_norm=False,
    linear_bias=False,
    scale_attention=False,
    head_transform=False,
    head_bias=False,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def t5_vocabulary(sentinels: tuple[int, ...] = SENTINELS) -> Vocabulary:
    """As T5's: padding 0, </s> 3 here, no [CLS] and no [MASK]."""
    base = vocabulary(300, special_ids=(0, 1, 2, 3, 4, *sentinels))
    return replace(base, cls_token_id=None, mask_token_id=None, sentinel_ids=sentinels)


def objective_of(goal: Infill | None = None, sentinels: tuple[int, ...] = SENTINELS) -> InfillObjective:
    return InfillObjective(CONFIG, goal or Infill(), t5_vocabulary(sentinels))


def batch_of(rows: list[list[int]], first: int = 0) -> PackedBatch:
    return PackedBatch.pack(rows).with_(
        examples=torch.arange(first, first + len(rows)), documents=torch.arange(len(rows))
    )


def random_rows(lengths: list[int], seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(5, 280, n).tolist(), 3] for n in lengths]


def split(ids: torch.Tensor, starts: torch.Tensor) -> list[list[int]]:
    return [ids[a:b].tolist() for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


def targets_of(batch: PackedBatch) -> list[list[int]]:
    return split(batch.decoder.labels["infill"].value, batch.decoder.starts)


def undone(source: list[int], target: list[int], sentinels: tuple[int, ...] = SENTINELS) -> list[int]:
    """The text that a corrupted one and its target were made from."""
    assert target[-1] == 3
    spans: dict[int, list[int]] = {}
    for token in target[:-1]:
        if token in sentinels:
            assert token not in spans, "a sentinel stands for one span only"
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    assert all(spans.values()), "a span holds a token"
    assert [t for t in source if t in sentinels] == list(spans) == list(sentinels[: len(spans)])
    return [t for token in source for t in spans.get(token, [token])]


# --- the text --------------------------------------------------------------------------------------------------------
@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
    st.integers(0, 2**31),
    st.sampled_from([0.01, 0.15, 0.5, 1.0]),
    st.sampled_from([1.0, 3.0, 10.0]),
    st.sampled_from([1, 3, 20]),
    st.booleans(),
)
def test_corruption_can_be_undone(
    lengths: list[int], seed: int, rate: float, mean_span: float, most: int, specials: bool
) -> None:
    rows = random_rows(lengths, seed)
    if specials:  # pairs and unknown tokens: inside a span they stay where they are
        rng = np.random.default_rng(seed)
        rows = [[2, *(t if rng.random() < 0.8 else int(rng.integers(0, 5)) for t in row[:-1]), 3] for row in rows]
    sentinels = SENTINELS[:most]
    rows = [[t if t < 280 else 7 for t in row] for row in rows]
    after = objective_of(Infill(mask_rate=rate, mean_span=mean_span), sentinels).prepare(batch_of(rows), seed)
    found = split(after.input_ids, after.starts)
    assert [undone(s, t, sentinels) for s, t in zip(found, targets_of(after), strict=True)] == rows
    assert all(row[-1] == 3 for row in found)
    assert not any(t in (0, 1, 2, 4) or 3 in target[:-1] for target in targets_of(after) for t in target)


def test_the_papers_example() -> None:
    """T5, figure 2: sentinels in their order, each before its span, the end of text last; the decoder reads one place later."""
    after = objective_of(Infill(mask_rate=0.4, mean_span=2)).prepare(
        batch_of([[10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 3]]), 1
    )
    source, target = after.input_ids.tolist(), targets_of(after)[0]
    assert [t for t in target if t >= 280] == [299, 298] and len(target) == 4 + 2 + 1
    assert source[0] == 10 and source[-2:] == [298, 3]  # begins with what stays, ends with a span
    assert after.decoder.input_ids.tolist() == [0, *target[:-1]]
    assert after.decoder.labels["infill"].where.tolist() == list(range(7))


def test_what_is_kept_of_a_batch() -> None:
    rows = random_rows([30, 40])
    before = batch_of(rows).with_(
        word_starts=torch.ones(72, dtype=torch.bool), token_type_ids=torch.ones(72).long(), progress=0.5
    )
    ids = before.input_ids.clone()
    after = objective_of().prepare(before, 0)
    assert torch.equal(before.input_ids, ids) and before.decoder is None
    assert torch.equal(after.examples, before.examples) and torch.equal(after.documents, before.documents)
    assert after.word_starts is None and after.token_type_ids is None and after.progress == 0.5
    assert sum(after.layout.lengths) == len(after.input_ids) < 72 and after.decoder.num_sequences == 2
    assert after.num_tokens == len(after.input_ids) + len(after.decoder.input_ids)
    assert objective_of().counts(after) == {"infill": len(after.decoder.input_ids)}


def test_a_sequence_does_not_depend_on_its_batch_mates() -> None:
    rows = random_rows(list(range(1, 60)))
    whole = objective_of().prepare(batch_of(rows), 3)
    sources, targets = split(whole.input_ids, whole.starts), targets_of(whole)
    for i in (0, 1, 17, 58):
        alone = objective_of().prepare(batch_of([rows[i]], first=i), 3)
        assert (alone.input_ids.tolist(), targets_of(alone)[0]) == (sources[i], targets[i])
    assert split(objective_of().prepare(batch_of(rows), 4).input_ids, whole.starts) != sources
    assert objective_of().prepare(batch_of(rows, first=1 << 44), 3).input_ids.tolist() != whole.input_ids.tolist()


# --- how much, and where ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("length", [2, 5, 7, 64, 101])
def test_the_rate_is_exact_on_average_and_to_a_token_each_time(length: int) -> None:
    count = 4000
    after = objective_of().prepare(batch_of([[9] * length + [3]] * count), 0)
    hidden = np.array([len(t) - 1 - sum(x >= 280 for x in t) for t in targets_of(after)])
    low = int(0.15 * length)
    assert set(np.unique(hidden)) <= {low, low + 1}
    assert abs(hidden.mean() - 0.15 * length) < 4 * 0.5 / count**0.5


@pytest.mark.parametrize("mean_span", [1.0, 3.0, 5.0])
def test_spans_have_the_mean_length(mean_span: float) -> None:
    after = objective_of(Infill(mean_span=mean_span)).prepare(batch_of([[9] * 100 + [3]] * 500), 0)
    sentinels = sum(t >= 280 for row in targets_of(after) for t in row)
    tokens = sum(3 < t < 280 for row in targets_of(after) for t in row)
    assert abs(tokens / sentinels - mean_span) < 0.02


def test_more_spans_than_sentinels_become_fewer_and_longer_ones() -> None:
    after = objective_of(Infill(mask_rate=0.5, mean_span=1), SENTINELS[:4]).prepare(batch_of([[9] * 100 + [3]] * 50), 0)
    for target in targets_of(after):
        assert sum(t >= 280 for t in target) == 4 and sum(t == 9 for t in target) == 50


def test_every_way_to_cut_is_equally_likely() -> None:
    """6 into 3 parts: ten ways."""
    count = 50_000
    parts = random_parts(np.full(count, 6), np.full(count, 3), keys(np.arange(count))).reshape(count, 3)
    assert (parts.sum(1) == 6).all() and parts.min() == 1
    found = Counter(map(tuple, parts.tolist()))
    assert len(found) == math.comb(5, 2) and stats.chisquare(list(found.values())).pvalue > 1e-3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 2**31))
def test_parts_add_up_and_none_is_empty(totals: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = np.array([int(rng.integers(1, n + 1)) if n else 0 for n in totals])
    lengths = random_parts(np.array(totals), parts, keys(seed, np.arange(len(totals))))
    assert len(lengths) == parts.sum() and (lengths >= 1).all()
    assert [int(x.sum()) for x in np.split(lengths, np.cumsum(parts)[:-1])] == totals


def literal_spans(length: int, rate: float, mean_span: float, rng: np.random.Generator) -> list[bool]:
    """T5's appendix, one sequence at a time: two shuffled rows of "a part begins here", laid alternately."""
    hidden = min(int(rate * length + rng.random()), length - 1)
    if hidden == 0:
        return [False] * length
    spans = min(max(1, round(hidden / mean_span)), hidden, length - hidden)

    def parts(total: int) -> list[int]:
        flags = [1] * (spans - 1) + [0] * (total - spans)
        rng.shuffle(flags)
        sizes = [1]
        for flag in flags:
            if flag:
                sizes.append(1)
            else:
                sizes[-1] += 1
        return sizes

    out: list[bool] = []
    for stays, goes in zip(parts(length - hidden), parts(hidden), strict=True):
        out += [False] * stays + [True] * goes
    return out


def test_spans_lie_as_in_a_literal_loop() -> None:
    """By place, and by length of span: 20 tokens, half of them hidden, in spans of 2 on average."""
    count, length = 20_000, 20
    rows = np.repeat(np.arange(count), length)
    ours = choose_spans(np.ones(count * length, bool), rows, keys(7, np.arange(count)), 0.5, 2.0, 99).reshape(
        count, length
    )
    rng = np.random.default_rng(0)
    literal = np.array([literal_spans(length, 0.5, 2.0, rng) for _ in range(count // 4)])
    assert (ours.sum(1) == 10).all() and (literal.sum(1) == 10).all()
    at = np.stack([ours.sum(0), literal.sum(0)])[:, 1:-1]  # the first is never hidden, the last always
    assert stats.chi2_contingency(np.stack([at[0], count - at[0]])).pvalue < 1e-3  # not flat, and that is T5's way
    for place in range(length - 2):
        a, b = at[0, place] / count, at[1, place] / (count // 4)
        assert abs(a - b) < 5 * (0.25 / (count // 4) + 0.25 / count) ** 0.5

    def sizes(grid: np.ndarray) -> np.ndarray:
        edges = np.diff(np.pad(grid, ((0, 0), (1, 1))).astype(int), axis=1)
        return np.bincount(np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1], minlength=12)[1:7]

    assert stats.chi2_contingency(np.stack([sizes(ours), sizes(literal)])).pvalue > 1e-3


# --- the network -----------------------------------------------------------------------------------------------------
def model(config: EncoderConfig = CONFIG) -> tuple[Encoder, InfillObjective]:
    encoder, objective = Encoder(config), InfillObjective(config, Infill(num_decoder_layers=3), t5_vocabulary())
    randomise(encoder, 1)
    randomise(objective, 2)
    return encoder.eval(), objective.eval()


@pytest.mark.parametrize("tied", [True, False])
def test_the_loss_covers_every_target_token(tied: bool) -> None:
    """Tied: the states are divided by √hidden_size before the matrix, since T5's word vectors have deviation 1."""
    encoder, objective = model(replace(CONFIG, tie_word_embeddings=tied))
    batch = objective.prepare(batch_of(random_rows([30, 9])), 0)
    found = objective(encoder, batch)["infill"]
    table = encoder.token_table() if tied else objective.head.tokens.matrix.weight
    with torch.no_grad():
        x = objective.head.decoder(
            encoder.embeddings(batch.decoder), batch.decoder.layout, encoder(batch), batch.layout
        )
        logits = (x.double() / (32**0.5 if tied else 1.0)) @ table.double().T
        value = batch.decoder.labels["infill"].value
        by_hand = -logits.log_softmax(-1)[torch.arange(len(value)), value].sum()
    assert abs(float(found.total.detach()) - float(by_hand)) < 1e-3
    assert found.count == len(value) and int(found.correct) == int((logits.argmax(-1) == value).sum())


def test_the_decoder_sees_its_own_source_and_nothing_ahead() -> None:
    encoder, objective = model()
    rows = random_rows([30, 30, 12])

    def logits(batch: PackedBatch) -> torch.Tensor:
        with torch.no_grad():
            return objective.head(encoder, encoder(batch), batch).dense()

    whole = objective.prepare(batch_of(rows), 0)
    together = split(logits(whole), whole.decoder.starts)
    for i in range(3):
        alone = logits(objective.prepare(batch_of([rows[i]], first=i), 0))
        torch.testing.assert_close(alone, torch.tensor(together[i]), rtol=2e-4, atol=2e-5)
    one = objective.prepare(batch_of([rows[0]]), 0)
    read = one.decoder.input_ids.clone()
    read[5] = 9 if read[5] != 9 else 10
    after, before = logits(one.with_(decoder=one.decoder.with_(input_ids=read))), logits(one)
    torch.testing.assert_close(after[:5], before[:5], rtol=2e-4, atol=2e-5)
    assert (after[5:] != before[5:]).any(1).all()


def test_the_decoder_is_as_deep_as_asked_or_as_the_encoder() -> None:
    assert len(objective_of(Infill(num_decoder_layers=5)).head.decoder.blocks) == 5
    assert len(objective_of().head.decoder.blocks) == CONFIG.num_hidden_layers


def test_the_decoders_work_is_counted() -> None:
    batch = objective_of().prepare(batch_of(random_rows([40])), 0)
    source, target = len(batch.input_ids), len(batch.decoder.input_ids)
    cross = 2 * (2 * target * 32 * 32 + 2 * source * 32 * 32) + 4 * source * target * 32
    layer = 2 * target * block_matrices(CONFIG) + attention_flops(CONFIG, [target]) + cross
    assert objective_of().flops(CONFIG, batch) == 2 * layer + token_head_flops(CONFIG, target)


def test_sequences_too_short_for_a_span_still_train() -> None:
    encoder, objective = model()
    batch = objective.prepare(batch_of([[3], [9, 3], [9, 10, 3]]), 0)
    assert targets_of(batch)[:2] == [[3], [3]]
    assert math.isfinite(float(objective(encoder, batch)["infill"].total.detach()))


def test_a_tokenizer_without_sentinels_is_refused_in_words() -> None:
    with pytest.raises(UnmaskError, match="sentinels") as caught:
        objective_of(sentinels=())
    assert "T5 tokenizer" in str(caught.value)
