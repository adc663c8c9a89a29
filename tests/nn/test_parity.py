"""The network computes what transformers' BERT computes: same weights, all of them random, same answer."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL, our_answers, our_model, padded, randomise, sequences
from transformers import BertConfig, BertForPreTraining

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.hub import configs, names
from unmask.nn.attend import attend
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint

LENGTHS = [1, 7, 7, 8, 20, 32]


def _twins(config: EncoderConfig = SMALL) -> tuple[Encoder, Joint, BertForPreTraining]:
    """Random weights made on transformers' side and read by our tables."""
    settings = {key: value for key, value in configs.to_hf(config, "BertForPreTraining").items() if key != "dtype"}
    theirs = BertForPreTraining._from_config(BertConfig(**settings), attn_implementation="eager").eval()
    randomise(theirs, 3)
    state = {names.canonical(name): tensor for name, tensor in theirs.state_dict().items()}
    encoder, objective = our_model(config)
    encoder.load_state_dict(names.from_hf(names.ENCODER, state, config.num_hidden_layers))
    for kind in ("mlm", "nsp"):
        objective.parts[kind].head.load_state_dict(names.from_hf(names.TABLES[kind], state, 0))
    return encoder, objective, theirs


def _worst_difference(encoder: Encoder, objective: Joint, theirs: BertForPreTraining, batch: PackedBatch) -> float:
    hidden, mlm, nsp = our_answers(encoder, objective, batch)
    with torch.no_grad():
        out = theirs(**padded(batch), output_hidden_states=True)
    unpad = batch.layout.unpad
    pairs = (
        (hidden, unpad(out.hidden_states[-1])),
        (mlm, unpad(out.prediction_logits)),
        (nsp, out.seq_relationship_logits),
    )
    return max(float((one - other).abs().max()) for one, other in pairs)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_tanh", "relu"])
def test_hidden_states_mlm_and_nsp_logits_equal_transformers(hidden_act: str) -> None:
    config = dataclasses.replace(SMALL, hidden_act=hidden_act)
    assert _worst_difference(*_twins(config), sequences(LENGTHS)) < 2e-5


@pytest.mark.parametrize("length", [1, 2, 19, 32])
def test_one_sequence_alone_equals_transformers(length: int) -> None:
    assert _worst_difference(*_twins(), sequences([length])) < 2e-5


def test_without_token_type_ids_all_is_segment_a() -> None:
    assert _worst_difference(*_twins(), sequences(LENGTHS).with_(token_type_ids=None)) < 2e-5


def test_a_wide_layer_norm_eps_is_used_everywhere() -> None:
    config = dataclasses.replace(SMALL, layer_norm_eps=0.5)
    assert _worst_difference(*_twins(config), sequences(LENGTHS)) < 2e-5


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 32), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_packed_equals_alone(lengths: list[int], seed: int) -> None:
    encoder, objective = our_model()
    batch = sequences(lengths, seed=seed)
    together = our_answers(encoder, objective, batch)
    for row, (start, end) in enumerate(zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)):
        part = PackedBatch.pack([batch.input_ids[start:end].tolist()], [batch.token_type_ids[start:end].tolist()])
        hidden, mlm, nsp = our_answers(encoder, objective, part)
        assert torch.allclose(together[0][start:end], hidden, rtol=0, atol=1e-5)
        assert torch.allclose(together[1][start:end], mlm, rtol=0, atol=1e-5)
        assert torch.allclose(together[2][row], nsp[0], rtol=0, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 32), min_size=2, max_size=8), seed=st.integers(0, 99), data=st.data())
def test_B107_B108_a_sequence_never_sees_its_neighbours(lengths: list[int], seed: int, data: st.DataObject) -> None:
    """Other tokens and other segments in one sequence: every bit of the others stays, hidden states and gradients alike."""
    encoder, objective = our_model()
    batch, other = sequences(lengths, seed=seed), sequences(lengths, seed=seed + 1000)
    inside = batch.layout.rows == data.draw(st.integers(0, len(lengths) - 1))
    changed = batch.with_(
        input_ids=torch.where(inside, other.input_ids, batch.input_ids),
        token_type_ids=torch.where(inside, other.token_type_ids, batch.token_type_ids),
    )
    before, after = (_hidden_and_gradients(encoder, one, ~inside) for one in (batch, changed))
    assert torch.equal(before[0], after[0])
    for name, gradient in before[1].items():
        assert torch.equal(gradient, after[1][name]), name


def _hidden_and_gradients(
    encoder: Encoder, batch: PackedBatch, where: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Hidden states at `where`, and the gradient of a loss over these in every parameter."""
    encoder.zero_grad()
    hidden = encoder(batch)[where]
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return hidden.detach(), {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


def test_B108_no_argument_of_the_network_can_turn_the_isolation_off() -> None:
    """Elsewhere a mask of ones does. Here borders are part of the batch, and a batch without them can't be made."""
    assert list(inspect.signature(Encoder.forward).parameters) == ["self", "batch"]
    assert list(inspect.signature(attend).parameters) == ["qkv_T3HK", "layout", "dropout"]
    with pytest.raises(TypeError):
        PackedBatch(torch.tensor([5, 6]))  # type: ignore[call-arg]


def test_the_gradient_reaches_every_parameter_and_stays_in_its_sequence() -> None:
    encoder, objective = our_model()
    batch = sequences(LENGTHS)
    seen = []
    encoder.embeddings.register_forward_hook(lambda _, __, out: seen.append(out.retain_grad() or out))
    hidden = encoder(batch)
    inside = batch.layout.rows == 3
    mlm = objective.parts["mlm"].head(hidden[inside], encoder.embeddings.tokens.weight)
    nsp = objective.parts["nsp"].head(hidden[batch.starts[3].long()][None])
    (mlm.square().sum() + nsp.square().sum()).backward()
    for name, parameter in [*encoder.named_parameters(), *objective.named_parameters()]:
        assert parameter.grad is not None and parameter.grad.any(), name
    assert not seen[0].grad[~inside].any()


@pytest.mark.parametrize("pad_token_id", [0, 3])
def test_B112_B113_the_usable_length_is_the_position_table_whatever_the_pad_id(pad_token_id: int) -> None:
    config = dataclasses.replace(SMALL, max_position_embeddings=16, pad_token_id=pad_token_id)
    encoder, _ = our_model(config)
    assert encoder(sequences([16])).shape == (16, 48)
    with pytest.raises(ValueError, match="17 tokens, but this model has 16 positions; shorten it"):
        encoder(sequences([3, 17]))


@pytest.mark.parametrize(("segments", "largest"), [(1, 1), (2, 2), (2, 7)])
def test_B114_segment_ids_the_model_does_not_have_are_refused_in_words(segments: int, largest: int) -> None:
    encoder, _ = our_model(dataclasses.replace(SMALL, type_vocab_size=segments))
    batch = PackedBatch.pack([[5, 6, 7]], [[0, 0, largest]])
    with pytest.raises(ValueError, match=f"token_type_ids holds {largest}, but this model has {segments}"):
        encoder(batch)
    encoder(PackedBatch.pack([[5, 6, 7]], [[0, 0, segments - 1]]))
    encoder(PackedBatch.pack([[5, 6, 7]]))


@pytest.mark.parametrize("bad", [97, 30521, -1])
def test_ids_outside_the_vocabulary_are_refused_in_words(bad: int) -> None:
    encoder, _ = our_model()
    with pytest.raises(ValueError, match=f"input_ids holds {bad}, but this model has 97"):
        encoder(PackedBatch.pack([[5, bad]]))
