"""Words from their characters: what belongs to a word, and a vector for it by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from elmo_models import CLS, ELMO, KINDS, SEP, elmo, packed, sentences
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import Recurrent, Rope
from unmask.errors import UnmaskError
from unmask.nn.characters import ALONE, BEGINS, CONTINUES, CharacterWords, Words, token_kinds
from unmask.text.train_tokenizer import TrainOptions, train


def split(ids: list[int]) -> list[list[int]]:
    """The words of a sequence, one token after the other."""
    words: list[list[int]] = []
    for place, id in enumerate(ids):
        if place == 0 or KINDS[id] != CONTINUES or KINDS[ids[place - 1]] == ALONE:
            words.append([])
        words[-1].append(id)
    return words


@given(st.lists(st.lists(st.integers(0, 59), min_size=1, max_size=30), min_size=1, max_size=5))
def test_words_are_runs_of_tokens_that_never_cross_a_sequence_or_a_special_token(rows: list[list[int]]) -> None:
    batch = PackedBatch.pack(rows)
    words, found = Words.of(batch, torch.from_numpy(KINDS)), [split(row) for row in rows]
    assert words.layout.lengths == tuple(map(len, found))
    flat = [word for row in found for word in row]
    assert words.word_T.tolist() == [number for number, word in enumerate(flat) for _ in word]
    assert words.first_W.tolist() == np.cumsum([0, *map(len, flat[:-1])]).tolist()
    assert words.places().tolist() == [place for word in flat for place in range(len(word))]


@given(st.lists(st.lists(st.integers(30, 33), max_size=4), min_size=2, max_size=12))
def test_two_words_have_one_key_exactly_if_they_are_spelled_alike(tails: list[list[int]]) -> None:
    spelled = [[7, *tail] for tail in tails]
    batch = PackedBatch.pack([[id for word in spelled for id in word]])
    keys = Words.of(batch, torch.from_numpy(KINDS)).keys(batch.input_ids).tolist()
    assert min(keys) >= 0
    assert [[a == b for b in keys] for a in keys] == [[a == b for b in spelled] for a in spelled]


def by_hand(read: CharacterWords, word: list[int]) -> Tensor:
    """Convolutions over one padded word, highways and projection, as the papers write them."""
    most, sizes = read.most, read.widths
    table = read.characters.weight
    x = torch.stack([read.marks.weight[0], *(table[id] for id in word[:most]), read.marks.weight[1]])
    strongest = []
    for width, filters in zip(sizes, read.filters, strict=True):
        kernel = filters.weight.unflatten(1, (width, -1)).transpose(1, 2)  # [F, E, width]
        padded = F.pad(x, (0, 0, 0, max(0, width - len(x))))
        strongest.append(F.conv1d(padded.T[None], kernel, filters.bias)[0].amax(1))
    y = torch.relu(torch.cat(strongest))
    for highway in read.highways:
        new, gate = F.linear(y, highway.both.weight, highway.both.bias).chunk(2)
        y = torch.sigmoid(gate) * torch.relu(new) + (1 - torch.sigmoid(gate)) * y
    return F.linear(y, read.project.weight, read.project.bias)


def test_a_words_vector_is_the_one_worked_by_hand_for_short_long_and_too_long_words() -> None:
    encoder = elmo()
    texts = [[[CLS], [7], [8, 40], [9, *range(30, 37)], [9, *range(30, 45)], [SEP]], [[8, 40], [7]]]
    batch = packed(texts)
    with torch.no_grad():
        got = encoder.layers(batch, until=0)[0]
        assert encoder.words is not None
        wanted = torch.stack([by_hand(encoder.words, word) for text in texts for word in text for _ in word])
    torch.testing.assert_close(got, torch.cat([wanted, wanted], 1), rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_the_plain_way() -> None:
    encoder, texts = elmo(), sentences(4, 7)
    read = encoder.words
    assert read is not None
    encoder.layers(packed(texts), until=0)[0].square().sum().backward()
    got = {name: p.grad.clone() for name, p in read.named_parameters() if p.grad is not None}
    read.zero_grad()
    rows = torch.stack([by_hand(read, word) for text in texts for word in text for _ in word])
    (2 * rows.square().sum()).backward()
    for name, parameter in read.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_a_tokenizer_tells_where_words_begin_hanzi_and_special_tokens_each_alone() -> None:
    tokenizer, _ = train(["the cats sat 猫坐 cats"], TrainOptions(kind="characters", vocab_size=60, min_frequency=9))
    kinds = token_kinds(tokenizer)
    found = {tokenizer.token(id): int(kind) for id, kind in enumerate(kinds)}
    assert found["[CLS]"] == found["[UNK]"] == ALONE
    assert found["c"] == found["猫"] == found["坐"] == BEGINS and found["##a"] == CONTINUES


def test_a_tokenizer_that_does_not_mark_inner_pieces_is_refused_in_words() -> None:
    tokenizer, _ = train(["the cats sat"], TrainOptions(kind="bpe", vocab_size=300))
    with pytest.raises(UnmaskError, match="does not mark"):
        token_kinds(tokenizer)


@pytest.mark.parametrize(
    "change",
    [
        {"causal": True}, {"norm_first": True}, {"positions": Rope()}, {"local_attention": 8}, {"embedding_size": 8},
        {"type_vocab_size": 2}, {"gated": True}, {"hidden_size": 15, "num_attention_heads": 3}, {"hidden_size": 40},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_settings_that_only_attention_has_are_refused_by_their_name(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(ELMO, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("filters", [(), ((0, 4),), ((2, 0),), ((2, 4, 1),), ((11, 4),)])
def test_filters_that_are_no_widths_and_numbers_are_refused(filters: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="filters"):
        Recurrent(max_characters=8, filters=filters)
