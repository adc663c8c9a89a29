"""The enhanced mask decoder against a slow, literal reading of the paper: no complete reference exists elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from made_up import VOCABULARY
from small_goals import CONFIG
from small_models import randomise
from torch import Tensor

from unmask.batch import PackedBatch, Targets
from unmask.config import Disentangled, EncoderConfig, MaskedTokens
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.objectives.masked import MaskedTokenObjective
from unmask.objectives.pair import SentencePairObjective

V1 = replace(
    CONFIG,
    key_bias=False,
    num_hidden_layers=3,
    positions=Disentangled(
        position_buckets=0, max_relative_positions=6, normed=False, shared_projections=False, content_to_position=True
    ),
)
V3 = replace(CONFIG, layer_norm_eps=1e-7, positions=Disentangled(position_buckets=8, max_relative_positions=32))
CONFIGS = {"v1": V1, "v3": V3, "absolute": CONFIG}
GOAL = MaskedTokens(enhanced_decoder=True)


def deberta(config: EncoderConfig) -> tuple[Encoder, MaskedTokenObjective, PackedBatch]:
    """All numbers random; sequences of 1 to 40 tokens, longer than every table of relative places."""
    encoder, mlm = Encoder(config), MaskedTokenObjective(config, GOAL, VOCABULARY)
    randomise(encoder, 1)
    randomise(mlm, 2)
    draw = torch.Generator().manual_seed(3)
    batch = PackedBatch.pack([torch.randint(5, 64, (n,), generator=draw).tolist() for n in (40, 1, 13, 2)])
    return encoder.eval(), mlm.eval(), batch


def row_of(i: int, j: int, places: Disentangled) -> int:
    """δ(i, j), DeBERTa equation 3; with buckets, those beyond the middle are logarithmic (the v2 code's formula)."""
    distance, span = i - j, places.position_buckets or places.max_relative_positions
    middle = places.position_buckets // 2
    if middle and abs(distance) > middle:
        share = math.log(abs(distance) / middle) / math.log((places.max_relative_positions - 1) / middle)
        distance = int(math.copysign(math.ceil(share * (middle - 1)) + middle, distance))
    return min(max(distance + span, 0), 2 * span - 1)


def normed(x: Tensor, weights: dict[str, Tensor], name: str, eps: float) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + eps).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def last_layer(query: Tensor, keys: Tensor, weights: dict[str, Tensor], config: EncoderConfig) -> Tensor:
    """One sequence through the last layer, pair by pair: `query` [n, D] asks and is added to, `keys` [n, D] answer."""
    n, d = query.shape
    heads, size = config.num_attention_heads, d // config.num_attention_heads
    block = f"blocks.{config.num_hidden_layers - 1}."
    w_q, w_k, w_v = weights[f"{block}attention.qkv.weight"].split(d)
    if config.key_bias:
        b_q, b_k, b_v = weights[f"{block}attention.qkv.bias"].split(d)
    else:
        b_q, b_v = weights[f"{block}attention.query_bias"], weights[f"{block}attention.value_bias"]
        b_k = torch.zeros(d)
    places = config.positions if isinstance(config.positions, Disentangled) else None
    if places is not None:
        table = weights["places.table.weight"]
        if places.normed:
            table = torch.stack([normed(row, weights, "places.norm", config.layer_norm_eps) for row in table])
        if places.shared_projections:
            place_q, place_k = table @ w_q.T + b_q, table @ w_k.T + b_k
        else:
            place_k = table @ weights[f"{block}attention.position_key.weight"].T
            place_q = table @ weights[f"{block}attention.position_query.weight"].T
            place_q = place_q + weights[f"{block}attention.position_query.bias"]
    mixed = torch.zeros(n, d)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(n):
            q_i = w_q[part] @ query[i] + b_q[part]
            scores = []
            for j in range(n):
                k_j = w_k[part] @ keys[j] + b_k[part]
                score = q_i @ k_j
                if places is not None:  # content to place, place to content
                    row = row_of(
                        i, j, places
                    )  # for both: equation 4 writes δ(j, i) for the latter, the released code this
                    score = score + q_i @ place_k[row, part] + k_j @ place_q[row, part]
                scores.append(score / math.sqrt(size * (3 if places else 1)))
            for j, share in enumerate(torch.stack(scores).softmax(0)):
                mixed[i, part] += share * (w_v[part] @ keys[j] + b_v[part])
    out = []
    for i in range(n):
        x = query[i] + weights[f"{block}attention.out.weight"] @ mixed[i] + weights[f"{block}attention.out.bias"]
        x = normed(x, weights, f"{block}attention_norm", config.layer_norm_eps)
        inner = weights[f"{block}feed_forward.up.weight"] @ x + weights[f"{block}feed_forward.up.bias"]
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
        x = x + weights[f"{block}feed_forward.down.weight"] @ inner + weights[f"{block}feed_forward.down.bias"]
        out.append(normed(x, weights, f"{block}feed_forward_norm", config.layer_norm_eps))
    return torch.stack(out)


def literal_logits(hidden: Tensor, encoder: Encoder, mlm: MaskedTokenObjective) -> Tensor:
    """[n, V] for one sequence: H and I + H of section 3.2, the last layer twice, the language model's head."""
    weights, head = dict(encoder.state_dict()), dict(mlm.head.state_dict())
    query = torch.stack([state + head["positions.weight"][place] for place, state in enumerate(hidden)])
    for _ in range(2):
        query = last_layer(query, hidden, weights, encoder.config)
    x = query @ head["transform.dense.weight"].T + head["transform.dense.bias"]
    x = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    x = torch.stack([normed(row, head, "transform.norm", encoder.config.layer_norm_eps) for row in x])
    return x @ weights["embeddings.tokens.weight"].T + head["bias"]


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_the_enhanced_decoder_is_the_papers(name: str) -> None:
    encoder, mlm, batch = deberta(CONFIGS[name])
    layers = encoder.layers(batch)
    expected = [
        literal_logits(layers[-2][begin:end], encoder, mlm)
        for begin, end in zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)
    ]
    found = mlm.logits(encoder, layers, batch, torch.arange(batch.num_tokens))
    torch.testing.assert_close(found, torch.cat(expected), rtol=2e-4, atol=2e-5)


@torch.no_grad()
def test_logits_are_made_at_the_places_asked_for_only() -> None:
    encoder, mlm, batch = deberta(V3)
    layers = encoder.layers(batch)
    everywhere = mlm.logits(encoder, layers, batch, torch.arange(batch.num_tokens))
    where = torch.tensor([3, 40, 41, 50])
    torch.testing.assert_close(mlm.logits(encoder, layers, batch, where), everywhere[where], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_absolute_places_reach_the_guess_but_not_the_encoder() -> None:
    encoder, mlm, batch = deberta(V3)
    assert encoder.embeddings.positions is None
    layers = encoder.layers(batch)
    before = mlm.logits(encoder, layers, batch, torch.tensor([7]))
    mlm.head.get_parameter("positions.weight")[7] *= -3.0
    assert not torch.allclose(mlm.logits(encoder, layers, batch, torch.tensor([7])), before, atol=1e-2)
    torch.testing.assert_close(
        mlm.logits(encoder, layers, batch, torch.tensor([6])),
        deberta(V3)[1].logits(encoder, layers, batch, torch.tensor([6])),
        rtol=1e-5,
        atol=1e-5,
    )


def test_the_decoder_trains_its_table_and_the_last_block() -> None:
    encoder, mlm, batch = deberta(V3)
    where = torch.tensor([1, 45])
    batch = batch.with_(labels={"mlm": Targets(where, batch.input_ids[where])})
    mlm(encoder, batch)["mlm"].total.backward()
    assert all(p.grad is not None for p in encoder.parameters())
    used = mlm.head.get_parameter("positions.weight").grad
    assert used is not None and used[[1, 4]].any(1).all() and not used[40:].any()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_last_layer_is_run_by_the_decoder_only_and_nothing_changes(name: str) -> None:
    """Its own output is read by no one: without it, loss and gradients are the same to the last bit."""
    encoder, mlm, batch = deberta(CONFIGS[name])
    where = torch.tensor([1, 30, 45])
    batch = batch.with_(labels={"mlm": Targets(where, batch.input_ids[where])})
    runs = []
    encoder.blocks[-1].register_forward_hook(lambda *_: runs.append(1))
    found = []
    for layers in (mlm.states(encoder, batch), encoder.layers(batch)):
        loss = mlm.loss(encoder, layers, batch)["mlm"].total
        found.append([loss, *torch.autograd.grad(loss, [*encoder.parameters(), *mlm.parameters()])])
    assert len(runs) == 1  # by all layers; the decoder asks the block in a way of its own
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_token_is_answered_alike_whoever_asks_besides(name: str) -> None:
    encoder, mlm, batch = deberta(CONFIGS[name])
    layers = mlm.states(encoder, batch)
    everywhere = mlm.logits(encoder, layers, batch, torch.arange(len(batch.input_ids)))
    where = torch.tensor([0, 1, 30, 45])
    torch.testing.assert_close(mlm.logits(encoder, layers, batch, where), everywhere[where], rtol=1e-5, atol=1e-5)


def test_another_goal_beside_the_decoder_gets_all_layers() -> None:
    encoder, mlm, batch = deberta(V3)
    pair = SentencePairObjective(V3, "sop")
    assert mlm.depth(V3) == 1 and Joint({"mlm": mlm, "sop": pair}).depth(V3) == 2
    assert len(Joint({"mlm": mlm, "sop": pair}).states(encoder, batch)) == 3 and len(mlm.states(encoder, batch)) == 2


def test_a_sequence_beyond_the_decoders_table_is_refused_in_words() -> None:
    encoder, mlm, _ = deberta(V3)
    batch = PackedBatch.pack([[5] * 65])
    with pytest.raises(ValueError, match="65 tokens, but this mask decoder has 64"):
        mlm.logits(encoder, encoder.layers(batch), batch, torch.tensor([0]))
