"""Two language models over words: which word is told from where, in which class, and at what cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from elmo_models import ELMO, KINDS, elmo, packed, sentences
from made_up import vocabulary

from unmask.config import BidirectionalWords, RunConfig, SentencePair
from unmask.nn.characters import token_kinds, word_keys
from unmask.objectives.base import combine
from unmask.objectives.bilm import RARE, BidirectionalWordObjective, WordHead
from unmask.objectives.build import build_objective
from unmask.objectives.word_table import frequent_words
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer


def key(word: list[int]) -> int:
    at = torch.arange(len(word))
    return int(word_keys(torch.tensor(word), at, torch.zeros_like(at), 1))


def goal(max_words: int = 40) -> BidirectionalWordObjective:
    made = BidirectionalWordObjective(ELMO, BidirectionalWords(max_words=max_words), vocabulary(ELMO.vocab_size))
    made.tell(KINDS)
    return made


def test_each_word_tells_the_next_from_the_left_and_the_one_before_from_the_right_never_across_sequences() -> None:
    texts = sentences(4, 0, 7)
    batch, objective = packed(texts), goal()
    found = objective.prepare(batch, 0)
    firsts, at = [], 0
    for text in texts:
        firsts.append([at := at + (len(text[i - 1]) if i else 0) for i in range(len(text))])
        at += len(text[-1])
    forward = [(firsts[n][i], key(text[i + 1])) for n, text in enumerate(texts) for i in range(len(text) - 1)]
    backward = [(firsts[n][i], key(text[i - 1])) for n, text in enumerate(texts) for i in range(1, len(text))]
    for name, wanted in (("forward", forward), ("backward", backward)):
        where, value = found.labels[name]
        assert list(zip(where.tolist(), value.tolist(), strict=True)) == wanted
        assert objective.counts(found)[name] == len(wanted)


def test_the_table_holds_the_most_frequent_words_of_a_corpus(small_corpus: Path) -> None:
    corpus = Corpus.open(small_corpus, "train")
    kinds = token_kinds(Tokenizer.load(corpus.tokenizer_folder))
    texts = corpus.read(np.arange(corpus.num_documents))
    counts: Counter[tuple[int, ...]] = Counter()
    for begin, end in zip(texts.sentences[texts.documents][:-1], texts.sentences[texts.documents][1:], strict=True):
        word: list[int] = []
        for id in texts.tokens[begin:end].tolist():
            if kinds[id] and word:
                counts[tuple(word)] += 1
                word = []
            word.append(id)
        counts[tuple(word)] += 1
    ranked = sorted(counts, key=lambda word: (-counts[word], key(list(word))))
    keys, found = frequent_words(corpus, kinds, [], 20)
    assert keys.tolist() == [key(list(word)) for word in ranked[:20]]
    assert found.tolist() == [sum(counts[w] for w in ranked[20:]), *(counts[w] for w in ranked[:20])]
    everything = frequent_words(corpus, kinds, [2], 1 << 20)[0].tolist()
    assert len(everything) == len(set(everything)) == len(counts) + 1 and key([2]) in everything


def test_a_table_counts_the_same_in_many_pieces(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(small_corpus, "train")
    kinds = token_kinds(Tokenizer.load(corpus.tokenizer_folder))
    whole = frequent_words(corpus, kinds, [2, 3], 100)
    monkeypatch.setattr("unmask.objectives.word_table.PIECE", 1000)
    parts = frequent_words(corpus, kinds, [2, 3], 100)
    assert torch.equal(whole[0], parts[0]) and torch.equal(whole[1], parts[1])


def test_classes_are_ranks_others_are_rare_and_a_folder_of_floats_keeps_every_key() -> None:
    head, keys = WordHead(8, 20), torch.tensor([(1 << 63) - 1, 5, 1 << 62, 0, 77])
    assert not head.knows() and head.classes(keys).tolist() == [RARE] * 5
    head.learn_words(keys, torch.ones(6))
    assert head.knows() and head.classes(torch.tensor([77, 6, 0, (1 << 63) - 1, 4])).tolist() == [5, RARE, 4, 1, RARE]
    other = WordHead(8, 20)
    other.load_state_dict({name: tensor.float() for name, tensor in head.state_dict().items()})
    assert torch.equal(other.words, head.words) and other.classes(keys).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("max_words", [16, 40, 2500])
def test_losses_are_those_of_all_probabilities_and_the_likeliest_words_are_counted(max_words: int) -> None:
    encoder, objective = elmo(), goal(max_words).eval()
    texts = sentences(6, 9, seed=4)
    objective.head.learn_words(
        torch.tensor([key(word) for word in (*texts[0], *texts[1])]).unique()[:12], torch.arange(13)
    )
    batch = objective.prepare(packed(texts), 0)
    with torch.no_grad():
        layers = encoder.layers(batch)
        found = objective.loss(encoder, layers, batch)
        for name, half in (("forward", slice(0, 8)), ("backward", slice(8, 16))):
            where, value = batch.labels[name]
            classes = objective.head.classes(value)
            chances = objective.head.softmax.log_prob(layers[ELMO.num_hidden_layers][where, half])
            assert chances.exp().sum(1).tolist() == pytest.approx([1.0] * len(where), abs=1e-5)
            cost = -chances.gather(1, classes[:, None]).sum()
            assert float(found[name].total) == pytest.approx(float(cost), rel=1e-5)
            assert int(found[name].correct or 0) == int((chances.argmax(1) == classes).sum())


@pytest.mark.parametrize("max_words", [16, 40])
def test_it_begins_with_the_frequencies_of_words(max_words: int) -> None:
    """Of frequent ones each its own, of the others that of their group, evenly spread until it learns."""
    head, counts = WordHead(8, max_words), torch.tensor([7, 90, 50, 20, 9, 3])
    head.learn_words(torch.arange(5), counts)
    with torch.no_grad():
        chances = head.softmax.log_prob(torch.zeros(1, 8))[0].exp()
    all_ = torch.cat([counts + 0.5, torch.full((max_words - 5,), 0.5)])
    begin = head.softmax.cutoffs[0]
    torch.testing.assert_close(chances[:begin], all_[:begin] / all_.sum())
    assert float(chances[begin:].sum()) == pytest.approx(float(all_[begin:].sum() / all_.sum()), rel=1e-5)


@pytest.mark.parametrize(
    ("max_words", "ends"),
    [(40, [20, 41]), (2000, [1000, 2001]), (10_000, [2000, 10_001]), (50_000, [2000, 10_000, 50_001])],
)
def test_no_group_of_rare_words_holds_one_alone(max_words: int, ends: list[int]) -> None:
    assert WordHead(64, max_words).softmax.cutoffs == ends


def test_sequences_of_one_word_tell_nothing_and_cost_nothing() -> None:
    encoder, objective = elmo(), goal().eval()
    batch = objective.prepare(packed([[[7, 40]], [[9]]]), 0)
    found = objective.loss(encoder, encoder.layers(batch), batch)
    assert objective.counts(batch) == {"forward": 0, "backward": 0}
    assert all(float(one.total.detach()) == 0 == int(one.correct or 0) for one in found.values())
    combine(found, objective.counts(batch)).backward()


def test_micro_batches_give_the_same_gradient() -> None:
    texts = sentences(5, 3, 8, 2)
    found = []
    for parts in ([texts], [texts[:1], texts[1:]]):
        torch.manual_seed(0)
        encoder, objective = elmo(), goal()
        batches = [objective.prepare(packed(part), 0) for part in parts]
        counts = {name: sum(objective.counts(b)[name] for b in batches) for name in ("forward", "backward")}
        for batch in batches:
            combine(objective.loss(encoder, objective.states(encoder, batch), batch), counts).backward()
        found.append({n: p.grad for n, p in encoder.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys() and len(found[0]) > 20
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-4, atol=1e-6)


def test_it_learns_and_the_mix_of_layers_stands_still() -> None:
    torch.manual_seed(0)
    encoder, texts = elmo(), sentences(5, 6, 4, 7)
    joint = build_objective(ELMO, [BidirectionalWords(max_words=40)], vocabulary(ELMO.vocab_size))
    objective = joint.members()["bilm"]
    assert isinstance(objective, BidirectionalWordObjective) and encoder.mix is not None
    objective.tell(KINDS)
    keys = torch.tensor([key(word) for text in texts for word in text]).unique()
    objective.head.learn_words(keys, torch.ones(len(keys) + 1))
    batch, before = joint.prepare(packed(texts), 0), encoder.mix.weights.clone()
    counts = joint.counts(batch)
    parameters = [p for part in (encoder, joint) for p in part.parameters() if p.requires_grad]
    optimizer, costs = torch.optim.Adam(parameters, lr=2e-2), []
    for _ in range(40):
        loss = combine(joint(encoder, batch), counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        costs.append(float(loss.detach()))
    assert costs[-1] < 0.2 * costs[0] and torch.equal(before, encoder.mix.weights)


def test_two_directions_and_a_network_that_keeps_them_apart_go_together() -> None:
    run = RunConfig(
        encoder=ELMO, objectives=(BidirectionalWords(),), examples=replace(RunConfig().examples, max_length=64)
    )
    with pytest.raises(ValueError, match="go together"):
        replace(run, encoder=RunConfig().encoder)
    with pytest.raises(ValueError, match="go together"):
        replace(run, objectives=RunConfig().objectives)
    with pytest.raises(ValueError, match="stands alone"):
        replace(run, objectives=(BidirectionalWords(), SentencePair()))
    with pytest.raises(ValueError, match="max_words"):
        BidirectionalWords(max_words=3)
