"""InfoNCE against its formula written out, and gradient caching against the whole batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy_retrieval import CONFIG, ToyTexts, example, topic_examples

from unmask.batch import PackedBatch
from unmask.config import Contrast, EncoderConfig
from unmask.epochs import pack
from unmask.errors import UnmaskError
from unmask.labelled.records import RankedExample
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.nn.pooling import Pooling, pool
from unmask.objectives import contrast as module
from unmask.objectives.base import Joint, combine
from unmask.objectives.contrast import BESIDE_TEACHER, ContrastObjective
from unmask.tasks.contrast import known_answers, number, score, sequences

WHOLE = Contrast(chunk_tokens=0)
DROPPING = replace(CONFIG, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)


def batch_of(examples: Sequence[RankedExample], task: Contrast = WHOLE) -> PackedBatch:
    made, _ = sequences(examples, ToyTexts(), task)  # type: ignore[arg-type]
    return pack(made, np.arange(len(made)))


def network(task: Contrast = WHOLE, config: EncoderConfig = CONFIG) -> tuple[Encoder, ContrastObjective]:
    """Weights large enough that different texts have vectors far apart."""
    encoder = Encoder(config)
    initialise(encoder, replace(config, initializer_range=0.3), torch.Generator().manual_seed(0))
    return encoder, ContrastObjective(config, task)


def stepped(encoder: Encoder, objective: ContrastObjective, batch: PackedBatch) -> tuple[float, Tensor]:
    """The loss as the training loop takes it, through a Joint, and the gradient it leaves."""
    encoder.zero_grad()
    whole = Joint({"contrast": objective})
    loss = combine(whole(encoder, whole.with_reads(batch)), whole.counts(batch))
    loss.backward()
    return float(loss.detach()), torch.cat([p.grad.flatten() for p in encoder.parameters() if p.grad is not None])


def by_hand(vectors: dict[tuple[int, str], Tensor], examples: Sequence[RankedExample], size: int) -> float:
    """The mean loss, one query and one document after the other. All records have one answer here."""
    cosine = lambda a, b: float(F.cosine_similarity(a[:size].double(), b[:size].double(), dim=0))
    documents = [(i, text) for i, e in enumerate(examples) for text in (*e.positives, *e.negatives)]
    total = 0.0
    for i, e in enumerate(examples):
        answering = {number(p) for other in examples if number(other.query) == number(e.query) for p in other.positives}
        query, right = vectors[i, "query"], (i, e.positives[0])
        terms = [
            math.exp(cosine(query, vectors[place]) / 0.05)
            for place in documents
            if place == right or number(place[1]) not in answering | {number(e.query)}
        ]
        total += math.log(sum(terms)) - cosine(query, vectors[right]) / 0.05
    return total / len(examples)


def vectors_of(
    encoder: Encoder, objective: ContrastObjective, examples: Sequence[RankedExample]
) -> dict[tuple[int, str], Tensor]:
    """Each text's vector, embedded alone."""
    found = {}
    for i, e in enumerate(examples):
        for name, text in [("query", e.query), *((t, t) for t in (*e.positives, *e.negatives))]:
            framed = ToyTexts().texts([text])
            with torch.no_grad():
                found[i, name] = objective.vectors(encoder, PackedBatch.pack([framed.ids_T.tolist()]))[0]
    return found


# --- the loss --------------------------------------------------------------------------------------------------------
few_words = st.lists(st.sampled_from(["a", "b", "c", "A", "one"]), min_size=1, max_size=2).map(" ".join)
some_examples = st.lists(
    st.builds(lambda q, p, n: example(q, [p], n), few_words, few_words, st.lists(few_words, max_size=2)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=12)
@given(examples=some_examples, size=st.sampled_from([8, 32]))
def test_the_loss_is_the_formula_written_out(examples: list[RankedExample], size: int) -> None:
    """With negatives that other records know for answers, equal texts, and documents that are the query itself."""
    examples = [
        replace(e, negatives=tuple(n for n in e.negatives if number(n) not in known_answers(examples)[number(e.query)]))
        for e in examples
    ]
    task = replace(WHOLE, dimensions=(8,)) if size == 8 else WHOLE
    encoder, objective = network(task)
    losses = objective(encoder, batch_of(examples))
    vectors = vectors_of(encoder, objective, examples)
    wanted = np.mean([by_hand(vectors, examples, s) for s in {size, 32}])
    assert losses["contrast"].count == len(examples)
    assert float(losses["contrast"].total.detach()) / len(examples) == pytest.approx(wanted, rel=2e-4, abs=2e-4)


def test_a_passage_that_several_queries_share_is_no_negative_of_theirs() -> None:
    """sentence-transformers#3189, #608, #1525: 8 pairs of which 3 share their answer, spelled differently at that."""
    shared = ["same text: a", "Same  text: a", "same text: A"]
    examples = [example(f"q{i} w{i}", [shared[i] if i < 3 else f"d{i} w{i}"]) for i in range(8)]
    asked = module._Asked.of(batch_of(examples))
    assert asked.allowed_QC.shape == (8, 8)
    assert sorted(asked.allowed_QC.sum(1).tolist()) == [6] * 3 + [8] * 5
    encoder, objective = network()
    loss, _ = stepped(encoder, objective, batch_of(examples))
    assert loss == pytest.approx(by_hand(vectors_of(encoder, objective, examples), examples, 32), rel=1e-4)


def test_an_answer_that_another_record_knows_is_no_negative() -> None:
    """The query's second answer comes into the batch as another query's document."""
    examples = [example("q1", ["d1 a", "d1 b"]), example("q2", ["d1 b"]), example("q2", ["d2"], ["D1  a"])]
    batch = batch_of(examples)
    asked, texts = module._Asked.of(batch), batch.labels["text"].value
    for query, allowed, right in zip(asked.query_Q, asked.allowed_QC, asked.right_Q, strict=True):
        known = known_answers(examples)[int(texts[query])]
        for column, document in enumerate(asked.document_C):
            assert bool(allowed[column]) == (column == int(right) or int(texts[document]) not in known)


def test_the_query_itself_is_no_negative() -> None:
    batch = batch_of([example("a b", ["d1"]), example("q2", ["A b"])])
    assert sorted(module._Asked.of(batch).allowed_QC.sum(1).tolist()) == [1, 2]


def test_matryoshka_is_the_mean_over_the_dimensions() -> None:
    examples, single = topic_examples(6), []
    for size in (4, 16, 32):
        encoder, objective = network()
        objective.dimensions = (size,)
        single.append(stepped(encoder, objective, batch_of(examples))[0])
    encoder, objective = network(replace(WHOLE, dimensions=(16, 4, 16)))
    assert objective.dimensions == (4, 16, 32)
    assert stepped(encoder, objective, batch_of(examples))[0] == pytest.approx(np.mean(single), rel=1e-5)


@pytest.mark.parametrize("size", [0, 32, 33, -1])
def test_dimensions_that_the_model_does_not_have_are_refused(size: int) -> None:
    with pytest.raises(UnmaskError, match="but the vectors have 32"):
        network(replace(WHOLE, dimensions=(size,)))


def test_twins_differ_by_dropout_alone() -> None:
    """SimCSE: a record without answers is its own, and equal texts of a batch are no negatives."""
    encoder, objective = network(config=DROPPING)
    batch = batch_of([example("a b c", []), example("a B  c", []), example("one two", [])])
    vectors = F.normalize(objective.vectors(encoder.train(), batch), dim=-1)
    twins = [0, 1] if batch.layout.lengths[0] == 4 else [4, 5]
    assert not torch.allclose(vectors[twins[0]], vectors[twins[1]], atol=1e-3)
    assert sorted(module._Asked.of(batch).allowed_QC.sum(1).tolist()) == [2, 2, 3]
    encoder.eval()
    assert float(objective(encoder, batch)["contrast"].total.detach()) >= 0
    same = objective.vectors(encoder, batch)[twins]
    assert torch.allclose(same[0], same[1], atol=1e-6)


def test_a_teacher_is_followed_by_its_divergence() -> None:
    scores = [(2.0, 0.5, -1.0), (0.0, 3.0)]
    examples = [example("q1", ["d1"], ["d2", "d3"], scores[0]), example("q2", ["d4"], ["d5"], scores[1])]
    encoder, objective = network()
    batch = batch_of(examples)
    losses = objective(encoder, batch)
    vectors, total = vectors_of(encoder, objective, examples), 0.0
    for i, e in enumerate(examples):
        cosines = [F.cosine_similarity(vectors[i, "query"], vectors[i, t], dim=0) for t in (*e.positives, *e.negatives)]
        wanted = torch.tensor(scores[i]).softmax(0)
        total += float((wanted * (wanted.log() - (torch.stack(cosines) / 0.05).log_softmax(0))).sum())
    assert float(losses["distill"].total.detach()) == pytest.approx(total, rel=1e-4)
    assert (losses["contrast"].weight, losses["distill"].weight) == (BESIDE_TEACHER, 1.0)
    assert objective.counts(batch) == {"contrast": 2, "distill": 2}


def test_cosines_stay_exact_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 knows some 60 cosines between 0.8 and 1: near texts would be equal."""
    encoder, objective = network()
    batch = batch_of(topic_examples(4))
    exact = objective.vectors(encoder, batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert objective.vectors(encoder, batch).dtype == torch.float32
        monkeypatch.setattr(objective, "vectors", lambda encoder, batch: exact)
        half = objective(encoder, batch)["contrast"].total
    assert torch.equal(half, objective(encoder, batch)["contrast"].total)


def test_right_answers_are_counted_in_evaluation_only() -> None:
    encoder, objective = network()
    batch = batch_of(topic_examples(6))
    assert objective(encoder, batch)["contrast"].correct is None
    objective.eval()
    with torch.inference_mode():
        found = objective(encoder, batch)["contrast"]
    assert found.correct is not None and 0 <= int(found.correct) <= found.count == 6


@pytest.mark.slow  # importing their library takes seconds
@pytest.mark.filterwarnings("default")
def test_the_loss_is_sentence_transformers_where_no_text_comes_twice() -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    examples = [example(f"q{i} w{i}", [f"d{i} w{i}"], [f"d{i} w{i + 1}"]) for i in range(8)]
    encoder, objective = network()
    found = vectors_of(encoder, objective, examples)
    columns = [[found[i, name] for i, name in enumerate(names)] for names in (
        ["query"] * 8, [e.positives[0] for e in examples], [e.negatives[0] for e in examples],
    )]  # fmt: skip
    theirs = losses.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=20.0)
    wanted = theirs.compute_loss_from_embeddings([torch.stack(column) for column in columns], None)
    assert stepped(encoder, objective, batch_of(examples))[0] == pytest.approx(float(wanted), rel=1e-5)


# --- gradient caching ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pooling", ["mean", "cls", "weighted"])
@pytest.mark.parametrize("tokens", [9, 75])
def test_chunks_give_loss_and_gradient_of_the_whole_batch(pooling: Any, tokens: int) -> None:
    examples = topic_examples(8, negatives=2)
    encoder, whole = network(replace(WHOLE, pooling=pooling, dimensions=(8,)))
    chunked = ContrastObjective(CONFIG, replace(whole.task, chunk_tokens=tokens))
    assert len(module._chunks(batch_of(examples), tokens)) > 2
    loss, gradient = stepped(encoder, whole, batch_of(examples))
    cached_loss, cached = stepped(encoder, chunked, batch_of(examples))
    assert cached_loss == pytest.approx(loss, rel=1e-6)
    assert float((cached - gradient).norm() / gradient.norm()) < 1e-6


def test_dropout_is_the_same_when_a_chunk_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = topic_examples(8)
    encoder, objective = network(replace(WHOLE, chunk_tokens=20), DROPPING)
    encoder.train()
    torch.manual_seed(3)
    loss, cached = stepped(encoder, objective, batch_of(examples))
    after = torch.rand(3)
    monkeypatch.setattr(module, "checkpoint", lambda function, ids, use_reentrant: function(ids))
    torch.manual_seed(3)
    plain_loss, plain = stepped(encoder, objective, batch_of(examples))
    assert loss == plain_loss
    assert float((cached - plain).abs().max() / plain.abs().max()) < 1e-6
    torch.testing.assert_close(after, torch.rand(3), rtol=0, atol=0)


def test_chunks_keep_nothing_of_how_vectors_came_about() -> None:
    kept: list[int] = []
    for tokens in (0, 20):
        encoder, objective = network(replace(WHOLE, chunk_tokens=tokens))
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t):
            objective.begin(encoder, batch_of(topic_examples(12)))
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 10


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12), tokens=st.integers(0, 30))
def test_chunks_are_all_sequences_in_order(lengths: list[int], tokens: int) -> None:
    batch = PackedBatch.pack([[at] * size for at, size in enumerate(lengths)])
    parts = module._chunks(batch, tokens)
    assert torch.cat([part.input_ids for part in parts]).tolist() == batch.input_ids.tolist()
    assert [n for part in parts for n in part.layout.lengths] == lengths
    assert all(len(p.input_ids) <= tokens or p.num_sequences == 1 for p in parts) or tokens == 0
    assert all(
        torch.equal(p.layout.position_ids, PackedBatch(p.input_ids, p.starts).layout.position_ids) for p in parts
    )


def test_parts_of_an_accumulated_step_share_no_negatives_but_chunks_do() -> None:
    """sentence-transformers#2916, #1752."""
    examples = topic_examples(8, negatives=0)
    encoder, objective = network(replace(WHOLE, chunk_tokens=20))
    whole, _ = stepped(encoder, objective, batch_of(examples))
    halves = [stepped(encoder, objective, batch_of(part))[0] for part in (examples[:4], examples[4:])]
    assert np.mean(halves) < whole - 0.1


# --- answers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pooling", ["mean", "cls", "weighted"])
def test_vectors_have_length_1_and_do_not_depend_on_their_batch(pooling: Any) -> None:
    """sentence-transformers#2312, #1839, #3197: batches of 1, 8 and 64 texts rank alike."""
    encoder, objective = network(replace(WHOLE, pooling=pooling))
    encoder.eval()
    made, _ = sequences(topic_examples(22, negatives=1), ToyTexts(), objective.task)  # type: ignore[arg-type]
    found = {}
    with torch.inference_mode():
        for size in (1, 8, 64):
            rows = torch.zeros(64, 32)
            for first in range(0, 64, size):
                batch = pack(made, np.arange(first, first + size))
                rows[batch.examples] = objective.predict(encoder, batch)["vectors"]
            found[size] = rows
    assert (found[64].norm(dim=1) - 1).abs().max() < 1e-6
    for size in (1, 8):
        assert (found[size] - found[64]).abs().max() < 1e-6
        first, second = ((r @ r.T).fill_diagonal_(-2) for r in (found[size], found[64]))
        best = second.topk(5).values
        assert (best - second.gather(1, first.topk(5).indices)).abs().max() < 1e-6


def test_pooling_is_that_of_sentence_models() -> None:
    batch = batch_of(topic_examples(3))
    for name, mode in (("mean", "mean"), ("cls", "cls"), ("weighted", "weightedmean")):
        encoder, objective = network(replace(WHOLE, pooling=name))  # type: ignore[arg-type]
        wanted = pool(encoder(batch), batch.starts.diff().long(), Pooling((mode,)))  # type: ignore[arg-type]
        assert torch.allclose(objective.vectors(encoder, batch), wanted, atol=1e-6)


# --- learning --------------------------------------------------------------------------------------------------------
def test_a_tiny_model_learns_toy_retrieval() -> None:
    """Queries and documents have no word for their topic in common."""
    task = replace(WHOLE, chunk_tokens=200, dimensions=(8,))
    encoder, objective = Encoder(CONFIG), ContrastObjective(CONFIG, task)
    initialise(encoder, CONFIG, torch.Generator().manual_seed(0))
    made, _ = sequences(topic_examples(256, fillers=2), ToyTexts(), task)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(encoder.parameters(), 3e-3)
    for step in range(40):
        first = 48 * (step % 16)
        batch = pack(made, np.arange(first, first + 48))
        loss = combine(objective(encoder, batch), objective.counts(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dev = topic_examples(24, seed=1, negatives=3, fillers=2)
    held_out, _ = sequences(dev, ToyTexts(), task)  # type: ignore[arg-type]
    batch = pack(held_out, np.arange(len(held_out)))
    vectors = np.zeros((len(held_out), 32), np.float32)
    with torch.inference_mode():
        vectors[batch.examples] = objective.predict(encoder.eval(), batch)["vectors"].numpy()
    query, right, wrong = (vectors[at::5] for at in (0, 1, 2))
    assert ((query * right).sum(1) > (query * wrong).sum(1)).mean() > 0.9
    assert score(vectors, held_out, dev)["recall@10"] > 0.5
