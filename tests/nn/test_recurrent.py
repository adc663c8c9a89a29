"""An ELMo's two directions: neither sees the other, nor a neighbour in the batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from elmo_models import ELMO, elmo, packed, sentences
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from unmask.batch import PackedBatch
from unmask.config import Recurrent
from unmask.nn.cost import encoder_flops, recurrent_matrices
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.nn.recurrent import RecurrentBlock, step_by_step

HALF = ELMO.hidden_size // 2


def states(encoder: Encoder, batch: PackedBatch) -> list[Tensor]:
    with torch.no_grad():
        return encoder.layers(batch)


def test_forward_never_sees_the_right_and_backward_never_the_left() -> None:
    """Another character in the middle of the text, and all halves that may not know of it stay as they were, bit for bit."""
    encoder, (text,) = elmo(), sentences(9)
    words = [len(word) for word in text]
    for changed in range(1, len(text) - 1):
        other = [list(word) for word in text]
        other[changed][-1] = (
            5 + (other[changed][-1] - 4) % 25 if len(other[changed]) == 1 else 30 + (other[changed][-1] - 29) % 30
        )
        begin, end = sum(words[:changed]), sum(words[: changed + 1])
        before, after = states(encoder, packed([text])), states(encoder, packed([other]))
        for layer in range(1, ELMO.num_hidden_layers + 1):
            moved = (before[layer] != after[layer]).unflatten(1, (2, HALF)).any(-1)  # [T, 2]
            assert not moved[:begin, 0].any() and not moved[end:, 1].any()
            assert moved[begin:end].all() and moved[end:, 0].any() and moved[:begin, 1].any()


def test_a_sequence_never_sees_its_neighbours_their_number_or_their_order() -> None:
    encoder, texts = elmo(), sentences(7, 1, 12, 3)
    alone = [states(encoder, packed([text])) for text in texts]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0]):
        batch = packed([texts[i] for i in order])
        together = states(encoder, batch)
        for place, i in enumerate(order):
            begin, end = batch.starts[place : place + 2].tolist()
            for one, all_ in zip(alone[i], together, strict=True):
                torch.testing.assert_close(all_[begin:end], one, rtol=0, atol=2e-5)


def test_nothing_is_kept_from_batch_to_batch() -> None:
    encoder, (first, second) = elmo(), sentences(5, 6)
    once = states(encoder, packed([first]))
    states(encoder, packed([second]))
    assert all(torch.equal(a, b) for a, b in zip(once, states(encoder, packed([first])), strict=True))


def lstm_by_hand(lstm: nn.LSTM, x_WP: Tensor) -> Tensor:
    """Input, forget, cell and output gates, and what comes out projected (Sak et al. 2014, equations 1 to 7)."""
    w = {name.removesuffix("_l0"): parameter for name, parameter in lstm.named_parameters()}
    told, cell, out = x_WP.new_zeros(lstm.proj_size), x_WP.new_zeros(lstm.hidden_size), []
    for x in x_WP:
        i, f, g, o = (w["weight_ih"] @ x + w["bias_ih"] + w["weight_hh"] @ told + w["bias_hh"]).chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        told = w["weight_hr"] @ (o.sigmoid() * cell.tanh())
        out.append(told)
    return torch.stack(out)


def test_a_layer_is_an_lstm_in_both_directions_by_hand_with_a_residual_from_the_second_on() -> None:
    encoder, (text,) = elmo(), sentences(6)
    found, firsts = states(encoder, packed([text])), torch.tensor([sum(map(len, text[:i])) for i in range(len(text))])
    for layer, block in enumerate(encoder.blocks):
        assert isinstance(block, RecurrentBlock)
        left, right = found[layer][firsts].chunk(2, -1)
        with torch.no_grad():
            read = [lstm_by_hand(block.from_left, left), lstm_by_hand(block.from_right, right.flip(0)).flip(0)]
        wanted = torch.cat(read, 1) + (found[layer][firsts] if layer else 0)
        torch.testing.assert_close(found[layer + 1][firsts], wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("words", [(1,), (1, 1, 1), (4, 4, 2, 1), (3,)])
def test_step_by_step_is_torch_s_lstm_forth_and_back(words: tuple[int, ...]) -> None:
    """The twin is the LSTM itself on a `PackedSequence`, which is what a GPU gets."""
    torch.manual_seed(0)
    lstm, x_WP = nn.LSTM(5, 9, proj_size=5), torch.randn(sum(words), 5)
    found = []
    for read in (
        lambda x: lstm(PackedSequence(x, torch.tensor(words)))[0].data,
        lambda x: step_by_step(lstm, x, words),
    ):
        lstm.zero_grad()
        own = x_WP.clone().requires_grad_()
        out = read(own)
        out.sin().sum().backward()
        found.append([out, own.grad, *(parameter.grad for parameter in lstm.parameters())])
    for ours, theirs in zip(*found[::-1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_cells_are_fp32_under_autocast() -> None:
    torch.manual_seed(0)
    lstm, words = nn.LSTM(8, 32, proj_size=8), [3] * 60
    x_WP = torch.randn(sum(words), 8)
    with torch.no_grad():
        wanted = step_by_step(lstm, x_WP, words)
        with torch.autocast("cpu", torch.bfloat16):
            found = step_by_step(lstm, x_WP, words)
    assert (found - wanted).abs().max() < 0.02 * wanted.abs().max()


def test_every_token_of_a_word_has_its_vector() -> None:
    encoder, (text,) = elmo(), sentences(6)
    at = 0
    found = states(encoder, packed([text]))
    for word in text:
        for state in found:
            assert (state[at : at + len(word)] == state[at]).all()
        at += len(word)


def test_the_last_state_is_the_mean_of_all_until_a_task_learns_the_mix() -> None:
    encoder, texts = elmo(), sentences(6, 2)
    assert encoder.mix is not None
    nn.init.zeros_(encoder.mix.weights), nn.init.ones_(encoder.mix.scale)
    *layers, out = states(encoder, packed(texts))
    assert len(layers) == ELMO.num_hidden_layers + 1
    torch.testing.assert_close(out, torch.stack(layers).mean(0))
    with torch.no_grad():
        assert torch.equal(encoder(packed(texts)), out)
    assert not any(parameter.requires_grad for parameter in Encoder(ELMO).mix.parameters())  # type: ignore[union-attr]


def test_the_mix_is_gamma_times_the_softmax_of_its_weights() -> None:
    encoder, texts = elmo(seed=3), sentences(6)
    assert encoder.mix is not None
    *layers, out = states(encoder, packed(texts))
    shares = encoder.mix.weights.detach().softmax(0)
    wanted = encoder.mix.scale.detach() * sum(share * state for share, state in zip(shares, layers, strict=True))
    torch.testing.assert_close(out, wanted)


def test_cells_begin_by_remembering_and_highways_by_letting_through() -> None:
    encoder = Encoder(ELMO)
    initialise(encoder, ELMO, torch.Generator().manual_seed(0))
    assert encoder.words is not None
    cells = 20
    for block in encoder.blocks:
        assert isinstance(block, RecurrentBlock)
        assert bool((block.from_left.get_parameter("bias_ih_l0")[cells : 2 * cells] == 1).all())
        assert not block.from_right.get_parameter("bias_hh_l0").any()
    for highway in encoder.words.highways:
        new, gate = highway.get_submodule("both").get_parameter("bias").chunk(2)
        assert not new.any() and bool((gate == -2).all())


def test_the_arithmetic_told_for_a_word_is_that_of_its_matrices() -> None:
    """Each once a word; filters at each of its five characters and two marks."""
    encoder, layer = Encoder(ELMO), ELMO.layer
    assert isinstance(layer, Recurrent) and encoder.words is not None
    words = encoder.words
    once = sum(
        p.numel() for part in (encoder.blocks, words.highways, words.project) for p in part.parameters() if p.dim() == 2
    )
    along = sum(p.numel() for p in words.filters.parameters() if p.dim() == 2)
    assert recurrent_matrices(ELMO, layer) == once + 7 * along
    assert encoder_flops(ELMO, [20, 30]) == 2 * 10 * (once + 7 * along)


@pytest.mark.parametrize("mix", [True, False])
def test_the_state_goes_to_another_network_and_gives_the_same(mix: bool) -> None:
    config, batch = replace(ELMO, layer_mix=mix), packed(sentences(5, 3))
    encoder = elmo()
    other = Encoder(config)
    other.load_state_dict({name: t for name, t in encoder.state_dict().items() if mix or not name.startswith("mix.")})
    assert all(torch.equal(a, b) for a, b in zip(states(encoder, batch), states(other.eval(), batch), strict=mix))
