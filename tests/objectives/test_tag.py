"""One tag for each word: losses by hand, words without a tag, no influence of batch mates, three decoders that learn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from small_models import SMALL
from torch import Tensor

from unmask.batch import Layout, PackedBatch, Targets
from unmask.config import Tagging
from unmask.config.tasks import HeadShape
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.base import Joint, combine
from unmask.objectives.tag import UNKNOWN, TagObjective

LABELS = ("O", "B-a", "I-a", "B-b", "I-b")
DECODERS = ("linear", "crf", "bilstm_crf")
PLAIN = HeadShape(act=None)
DENSE = HeadShape(act="gelu", normed=True)  # ModernBERT's class
ROWS = [[2, 7, 8, 9, 3], [2, 9, 3], [2, 5, 6, 11, 12, 13, 3]]
PLACES = [[1, 2, 3], [1], [1, 2, 4, 5]]  # of words; the second word of the last row has two pieces
TAGS = [[1, 2, 0], [3], [0, 1, 2, 3]]


def batch_of(rows: Sequence[int] = (0, 1, 2), tags: Sequence[Sequence[int]] = TAGS) -> PackedBatch:
    batch = PackedBatch.pack([ROWS[row] for row in rows])
    where = [place + int(batch.starts[at]) for at, row in enumerate(rows) for place in PLACES[row]]
    value = [tag for row in rows for tag in tags[row]]
    edges = Targets(batch.starts[:-1].long(), torch.ones(len(rows), 2, dtype=torch.bool))
    return batch.with_(labels={"tag": Targets(torch.tensor(where), torch.tensor(value)), "tag_edges": edges})


def made(decoder: str, shape: HeadShape = PLAIN, seed: int = 0) -> tuple[Encoder, TagObjective]:
    torch.manual_seed(seed)
    encoder, objective = Encoder(SMALL), TagObjective(SMALL, Tagging(labels=LABELS, decoder=decoder), shape)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.normal_(0, 0.3)
    return encoder.eval(), objective.eval()


def path_probability(objective: TagObjective, scores: Tensor, tags: Sequence[int]) -> Tensor:
    """Of one sequence, all paths written out."""
    crf = objective.crf
    start, steps, end = crf._chain(None, Layout.of(torch.tensor([0, len(tags)])))

    def score(path: Sequence[int]) -> Tensor:
        inner = sum(steps[i, j] for i, j in itertools.pairwise(path))
        return start[0, path[0]] + end[0, path[-1]] + inner + sum(scores[at, tag] for at, tag in enumerate(path))

    paths = itertools.product(range(len(LABELS)), repeat=len(tags))
    return score(tags) - torch.stack([score(path) for path in paths]).logsumexp(0)


@pytest.mark.parametrize("shape", [PLAIN, DENSE], ids=["linear head", "dense head"])
def test_the_linear_decoder_is_cross_entropy_over_words(shape: HeadShape) -> None:
    encoder, objective = made("linear", shape)
    batch = objective.prepare(batch_of(), 0)
    said = objective.predict(encoder, batch)
    truth = torch.tensor([tag for row in TAGS for tag in row])
    found = objective(encoder, batch)["tag"]
    expected = -said["scores"].log_softmax(-1)[torch.arange(8), truth].sum()
    torch.testing.assert_close(found.total, expected)
    assert found.count == 8 == objective.counts(batch)["tag"]
    assert torch.equal(said["tags"], said["scores"].argmax(-1))
    assert int(found.correct) == int((said["tags"] == truth).sum())
    torch.testing.assert_close(said["confidence"], said["scores"].softmax(-1).amax(-1))


@pytest.mark.parametrize("decoder", ["crf", "bilstm_crf"])
def test_a_crf_learns_whole_paths_and_counts_words(decoder: str) -> None:
    encoder, objective = made(decoder)
    batch = objective.prepare(batch_of(), 0)
    scores = objective.predict(encoder, batch)["scores"].split([3, 1, 4])
    found = objective(encoder, batch)["tag"]
    expected = -sum(path_probability(objective, s, tags) for s, tags in zip(scores, TAGS, strict=True))
    torch.testing.assert_close(found.total, expected, atol=2e-5, rtol=0)
    assert found.count == 8 == objective.counts(batch)["tag"]


@pytest.mark.parametrize("known", list(itertools.product([True, False], repeat=4)), ids=str)
def test_B162_B163_words_without_a_tag_are_not_in_the_path_whatever_their_places(known: tuple[bool, ...]) -> None:
    """pytorch-crf wants the first word known, and -100 is an index to it; here what is left is a path of its own."""
    encoder, objective = made("crf")
    tags = [1 if at % 2 == 0 else 0 for at in range(4)]
    some = [tag if is_known else UNKNOWN for tag, is_known in zip(tags, known, strict=True)]
    batch = objective.prepare(batch_of((2, 1), [[], [0], some]), 0)
    said = objective.predict(encoder, batch)
    found = objective(encoder, batch)["tag"]
    assert len(said["tags"]) == 5 and found.count == 1 + sum(known)
    chosen = torch.tensor([at for at in range(4) if known[at]], dtype=torch.int64)
    expected = path_probability(objective, said["scores"][4:], [0])
    if any(known):
        expected = expected + path_probability(objective, said["scores"][chosen], [tags[at] for at in chosen.tolist()])
    torch.testing.assert_close(found.total, -expected, atol=2e-5, rtol=0)


def test_a_window_that_begins_inside_an_entity_can_be_learned() -> None:
    encoder, objective = made("crf")
    batch = batch_of((2,), [[], [], [2, 2, 0, 1]])
    with pytest.raises(ValueError, match="break their scheme"):
        objective(encoder, objective.prepare(batch, 0))
    edges = Targets(torch.zeros(1, dtype=torch.int64), torch.tensor([[False, True]]))
    piece = objective.prepare(batch.with_(labels={**batch.labels, "tag_edges": edges}), 0)
    assert 0 < float(objective(encoder, piece)["tag"].total.detach()) < 100


def test_a_sequence_without_known_tags_leaves_the_edges_of_the_others_alone() -> None:
    encoder, objective = made("crf")
    batch = batch_of((0, 2), [[UNKNOWN] * 3, [], [2, 2, 0, 1]])
    edges = Targets(batch.starts[:-1].long(), torch.tensor([[True, True], [False, True]]))
    batch = objective.prepare(batch.with_(labels={**batch.labels, "tag_edges": edges}), 0)
    assert 0 < float(objective(encoder, batch)["tag"].total.detach()) < 100


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_answer_does_not_depend_on_batch_mates_or_their_order(decoder: str) -> None:
    encoder, objective = made(decoder)
    with torch.no_grad():
        whole = objective.predict(encoder, batch_of())
        parts = {name: tensor.split([3, 1, 4]) for name, tensor in whole.items()}
        for rows in [(0,), (1,), (2,), (2, 0), (1, 2, 0, 1)]:
            said = objective.predict(encoder, batch_of(rows))
            for name, tensor in said.items():
                expected = torch.cat([parts[name][row] for row in rows])
                torch.testing.assert_close(tensor, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("decoder", DECODERS)
def test_micro_batches_give_the_same_gradient(decoder: str) -> None:
    encoder, objective = made(decoder)

    def gradient(*parts: Sequence[int]) -> Tensor:
        batches = [objective.prepare(batch_of(part), 0) for part in parts]
        counts = {"tag": sum(objective.counts(batch)["tag"] for batch in batches)}
        objective.zero_grad()
        for batch in batches:
            combine(objective(encoder, batch), counts).backward()
        return torch.cat([p.grad.flatten() for p in objective.parameters()])

    torch.testing.assert_close(gradient((0, 1, 2)), gradient((2,), (0, 1)), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_loss_asks_the_last_layer_for_its_words_alone(decoder: str) -> None:
    encoder, objective = made(decoder)
    batch = objective.prepare(batch_of(), 0)
    asked = Joint({"tag": objective}).with_reads(batch)
    assert asked.read is not None and set(batch.labels["tag"].where.tolist()) <= set(asked.read.tolist())
    torch.testing.assert_close(objective(encoder, asked)["tag"].total, objective(encoder, batch)["tag"].total)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_batch_without_any_word_is_no_loss_and_no_answer(decoder: str) -> None:
    encoder, objective = made(decoder)
    nothing = Targets(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    batch = batch_of((1,))
    batch = objective.prepare(batch.with_(labels={**batch.labels, "tag": nothing}), 0)
    assert {name: len(tensor) for name, tensor in objective.predict(encoder, batch).items()} == {
        "scores": 0, "tags": 0, "confidence": 0,
    }  # fmt: skip
    found = objective(encoder, batch)
    combine(found, objective.counts(batch)).backward()
    assert float(found["tag"].total.detach()) == 0 and found["tag"].count == 0


@pytest.mark.parametrize("decoder", DECODERS)
def test_scores_are_in_single_precision_under_autocast(decoder: str) -> None:
    encoder, objective = made(decoder)
    batch = objective.prepare(batch_of(), 0)
    with torch.no_grad():
        layers = encoder.layers(batch)
        exact = objective.loss(encoder, layers, batch)["tag"].total
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(objective.loss(encoder, layers, batch)["tag"].total, exact)


def test_arithmetic_is_counted_by_its_matrices() -> None:
    width, tags = SMALL.hidden_size, len(LABELS)
    lstm = 2 * 4 * (width // 2) * (width + width // 2)
    expected = {"linear": width * tags, "crf": width * tags + tags**2, "bilstm_crf": width * tags + tags**2 + lstm}
    for decoder in DECODERS:
        assert made(decoder)[1].flops(SMALL, batch_of()) == 2 * 8 * expected[decoder]


def toy(count: int, seed: int) -> PackedBatch:
    """5 to 8 are O; 10 and 11 begin an entity a or b, which each 12 behind it goes on with; a 12 behind an O is one too."""
    draw = torch.Generator().manual_seed(seed)
    rows, values = [], []
    for _ in range(count):
        words = torch.tensor([5, 6, 7, 10, 11, 12, 12])[torch.randint(7, (8,), generator=draw)].tolist()
        tags, open_ = [], 0
        for word in words:
            open_ = {10: 1, 11: 3}.get(word, open_ if word == 12 else 0)
            tags.append(open_ + (word == 12 and open_ > 0))
        rows.append([2, *words, 3])
        values.append(tags)
    batch = PackedBatch.pack(rows)
    where = torch.cat([torch.arange(1, 9) + 10 * row for row in range(count)])
    edges = Targets(batch.starts[:-1].long(), torch.ones(count, 2, dtype=torch.bool))
    return batch.with_(labels={"tag": Targets(where, torch.tensor(values).flatten()), "tag_edges": edges})


def train(decoder: str, steps: int) -> tuple[Encoder, TagObjective, list[float]]:
    config = replace(SMALL, num_hidden_layers=1)
    torch.manual_seed(0)
    encoder, objective = Encoder(config), TagObjective(config, Tagging(labels=LABELS, decoder=decoder), PLAIN)
    for module in (encoder, objective):
        initialise(module, replace(config, initializer_range=0.1), torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW([*encoder.parameters(), *objective.parameters()], lr=1e-2)
    losses = []
    for step in range(steps):
        batch = objective.prepare(toy(16, step), step)
        loss = combine(objective(encoder, batch), objective.counts(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return encoder.eval(), objective.eval(), losses


@pytest.mark.parametrize("decoder", DECODERS)
def test_learns(decoder: str) -> None:
    encoder, objective, losses = train(decoder, 60)
    batch = toy(32, 1000)
    with torch.no_grad():
        said = objective.predict(encoder, batch)
    assert float((said["tags"] == batch.labels["tag"].value).float().mean()) > 0.95
    assert losses[-1] < losses[0] / 4
    assert train(decoder, 3)[2] == losses[:3], "the same run gives the same bits"
