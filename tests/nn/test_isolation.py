"""A sequence never sees its neighbours, whatever the network is made of; what does not fit is refused in words."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL, VARIANTS, alone, goals_of, our_network, sequences
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import Absolute, EncoderConfig
from unmask.nn.encoder import Encoder

LENGTHS = st.lists(st.integers(1, 40), min_size=2, max_size=7)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=8, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99))
@torch.no_grad()
def test_B107_packed_equals_alone_in_every_layer(name: str, lengths: list[int], seed: int) -> None:
    config = VARIANTS[name]
    encoder, _ = our_network(config, ())
    batch = sequences(lengths, config, seed)
    together = encoder.layers(batch)
    assert len(together) == config.num_hidden_layers + 1
    assert torch.equal(together[-1], encoder(batch))
    for row, one in enumerate(alone(batch)):
        start, end = int(batch.starts[row]), int(batch.starts[row + 1])
        for packed, single in zip(together, encoder.layers(one), strict=True):
            torch.testing.assert_close(packed[start:end], single, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=8, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99), data=st.data())
def test_B107_B108_a_sequence_never_sees_its_neighbours(
    name: str, lengths: list[int], seed: int, data: st.DataObject
) -> None:
    """Other tokens and other segments in one sequence: every bit of the others stays, hidden states and gradients alike."""
    config = VARIANTS[name]
    encoder, _ = our_network(config, ())
    batch, other = sequences(lengths, config, seed), sequences(lengths, config, seed + 1000)
    inside = batch.layout.rows == data.draw(st.integers(0, len(lengths) - 1))
    types = batch.token_type_ids
    changed = batch.with_(
        input_ids=torch.where(inside, other.input_ids, batch.input_ids),
        token_type_ids=None if types is None else torch.where(inside, other.token_type_ids, types),
    )
    before, after = (_hidden_and_gradients(encoder, one, ~inside) for one in (batch, changed))
    assert torch.equal(before[0], after[0])
    for key, gradient in before[1].items():
        assert torch.equal(gradient, after[1][key]), key


def _hidden_and_gradients(encoder: Encoder, batch: PackedBatch, where: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states at `where`, and the gradient of a loss over these in every parameter."""
    encoder.zero_grad()
    hidden = encoder(batch)[where]
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return hidden.detach(), {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


def _influence(encoder: Encoder, batch: PackedBatch, at: int) -> list[int]:
    """The tokens on whose embedding the output at `at` depends: those with a gradient that is not exactly 0."""
    seen = []
    encoder.embeddings.register_forward_hook(lambda _, __, out: seen.append(out.retain_grad() or out))
    encoder(batch)[at].square().sum().backward()
    return (seen[-1].grad.abs().sum(1) > 0).nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("lengths", [[64], [64, 9, 50]])
@pytest.mark.parametrize("local_layers", [1, 2, 3])
def test_B109_local_layers_reach_as_far_as_their_windows_and_padding_changes_nothing(
    lengths: list[int], local_layers: int
) -> None:
    """Layers of 4 tokens to each side reach 4 a layer, and token 40 is nothing to token 0: its gradient is exactly 0."""
    layers = local_layers + 1
    config = replace(VARIANTS["modernbert"], num_hidden_layers=layers, global_attn_every_n_layers=layers)
    encoder, _ = our_network(config, ())
    encoder.blocks[0].attention.out.weight.data.zero_()  # the one layer that sees all says nothing
    batch, reach = sequences(lengths, config), 4 * local_layers
    assert _influence(encoder, batch, 0) == list(range(reach + 1))
    assert _influence(encoder, batch, 30) == list(range(30 - reach, 31 + reach))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_token_of_its_sequence_reaches_an_output_unless_it_stands_behind_a_causal_one(name: str) -> None:
    config = VARIANTS[name]
    encoder, _ = our_network(config, ())
    batch = sequences([9, 20, 30], config)
    assert _influence(encoder, batch, 9 + 7) == list(range(9, 9 + 8 if config.causal else 9 + 20))


def test_B108_no_argument_of_the_network_can_turn_the_isolation_off() -> None:
    """Elsewhere a mask of ones does. Here borders are part of the batch, and a batch without them can't be made."""
    assert list(inspect.signature(Encoder.forward).parameters) == ["self", "batch", "added"]
    with pytest.raises(TypeError):
        PackedBatch(torch.tensor([5, 6]))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "t5"])
def test_the_gradient_reaches_every_parameter_and_stays_in_its_sequence(name: str) -> None:
    config = VARIANTS[name]
    encoder, objective = our_network(config, goals_of(name))
    batch = sequences([1, 7, 7, 20, 40], config)
    seen = []
    encoder.embeddings.register_forward_hook(lambda _, __, out: seen.append(out.retain_grad() or out))
    hidden = encoder(batch)
    inside = batch.layout.rows == 4
    loss = hidden.new_zeros(())
    for kind, part in objective.members().items():
        logits = (
            part.head(hidden[batch.starts[4].long()][None])
            if kind in ("nsp", "sop")
            else part.head(hidden[inside], encoder.token_table()).dense()
        )
        loss = loss + logits.square().sum()
    loss.backward()
    for key, parameter in [*encoder.named_parameters(), *objective.named_parameters()]:
        assert parameter.grad is not None and parameter.grad.any(), key
    assert not seen[0].grad[~inside].any()


def test_without_token_type_ids_all_is_segment_a() -> None:
    encoder, _ = our_network(VARIANTS["bert"], ())
    batch = sequences([7, 20], VARIANTS["bert"])
    with torch.no_grad():
        zeros = encoder(batch.with_(token_type_ids=torch.zeros_like(batch.input_ids)))
        assert torch.equal(encoder(batch.with_(token_type_ids=None)), zeros)
        assert not torch.equal(encoder(batch), zeros)


@pytest.mark.parametrize("pad_token_id", [0, 3])
@pytest.mark.parametrize("after_padding", [False, True])
def test_B112_B113_the_usable_length_is_what_the_table_has_places_for_whatever_the_pad_id(
    pad_token_id: int, after_padding: bool
) -> None:
    places = Absolute(after_padding=after_padding)
    config = replace(SMALL, max_position_embeddings=16, pad_token_id=pad_token_id, positions=places)
    encoder, _ = our_network(config, ())
    assert encoder(sequences([16])).shape == (16, 48)
    with pytest.raises(ValueError, match="17 tokens, but this model has 16 positions; shorten it"):
        encoder(sequences([3, 17]))


@pytest.mark.parametrize(("segments", "largest"), [(2, 2), (2, 7), (3, 3)])
def test_B114_segment_ids_the_model_does_not_have_are_refused_in_words(segments: int, largest: int) -> None:
    encoder, _ = our_network(replace(SMALL, type_vocab_size=segments), ())
    batch = PackedBatch.pack([[5, 6, 7]], [[0, 0, largest]])
    with pytest.raises(ValueError, match=f"token_type_ids holds {largest}, but this model has {segments}"):
        encoder(batch)
    encoder(PackedBatch.pack([[5, 6, 7]], [[0, 0, segments - 1]]))
    encoder(PackedBatch.pack([[5, 6, 7]]))


@pytest.mark.parametrize("segments", [0, 1])
def test_a_model_without_segments_passes_over_them(segments: int) -> None:
    """RoBERTa's tokenizers mark pairs, and its models have one segment or none: there is nothing to tell apart."""
    encoder, _ = our_network(replace(SMALL, type_vocab_size=segments), ())
    with torch.no_grad():
        assert torch.equal(encoder(PackedBatch.pack([[5, 6, 7]], [[0, 1, 1]])), encoder(PackedBatch.pack([[5, 6, 7]])))


@pytest.mark.parametrize("bad", [97, 30521, -1])
@pytest.mark.parametrize(
    "config", [SMALL, VARIANTS["gpt2"], VARIANTS["modernbert"]], ids=["bert", "gpt2", "modernbert"]
)
def test_ids_outside_the_vocabulary_are_refused_in_words(config: EncoderConfig, bad: int) -> None:
    encoder, _ = our_network(config, ())
    with pytest.raises(ValueError, match=f"input_ids holds {bad}, but this model has 97"):
        encoder(PackedBatch.pack([[5, bad]]))
