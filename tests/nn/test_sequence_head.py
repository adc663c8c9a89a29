"""The head of a task: what is between states and outputs, and how a sequence becomes one vector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL, alone, randomise, sequences
from torch import Tensor

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.nn.heads import SequenceHead, TaskHead

SHAPES = {
    "bert": HeadShape(),
    "electra": HeadShape(act="gelu"),
    "modernbert": HeadShape(act="gelu", normed=True, bias=False),
    "modernbert-mean": HeadShape(pooling="mean", act="gelu_tanh", normed=True),
    "gpt2": HeadShape(pooling="last", act=None, out_bias=False),
    "mean-alone": HeadShape(pooling="mean", act=None),
    "norm-alone": HeadShape(pooling="first", act=None, normed=True),
}
ACTS: dict[Any, Any] = {"tanh": torch.tanh, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


def _head(shape: HeadShape, outputs: int = 3, config: EncoderConfig = SMALL) -> SequenceHead:
    head = SequenceHead(config, outputs, shape).eval()
    randomise(head, 4)
    return head


def _by_hand(head: SequenceHead, states_LD: Tensor) -> Tensor:
    """One sequence, in double precision, by the words of HeadShape."""
    p, shape = {name: x.double() for name, x in head.state_dict().items()}, head.shape
    x = {"first": states_LD[0], "last": states_LD[-1], "mean": states_LD.mean(0)}[shape.pooling]
    if shape.act is not None:
        x = ACTS[shape.act](p["dense.weight"] @ x + p.get("dense.bias", 0.0))
    if shape.normed:
        x = (x - x.mean()) / (x.var(unbiased=False) + SMALL.layer_norm_eps).sqrt() * p["norm.weight"] + p["norm.bias"]
    return p["out.weight"] @ x + p.get("out.bias", 0.0)


@pytest.mark.parametrize("name", SHAPES)
def test_a_sequence_gives_what_its_shape_says_in_words(name: str) -> None:
    head, batch = _head(SHAPES[name]), sequences([1, 2, 7, 7, 20])
    hidden = torch.randn(37, SMALL.hidden_size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = head(hidden, batch)
        wanted = torch.stack([_by_hand(head, part.double()) for part in hidden.split([1, 2, 7, 7, 20])])
    torch.testing.assert_close(found, wanted.float(), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_its_parameters_are_named_dense_norm_and_out_and_there_are_no_others(name: str) -> None:
    shape = SHAPES[name]
    wanted = {"out.weight"} | ({"out.bias"} if shape.out_bias else set())
    wanted |= {"dense.weight"} if shape.act is not None else set()
    wanted |= {"dense.bias"} if shape.act is not None and shape.bias else set()
    wanted |= {"norm.weight", "norm.bias"} if shape.normed else set()
    assert set(_head(shape).state_dict()) == wanted


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), name=st.sampled_from(list(SHAPES)))
def test_no_answer_depends_on_batch_mates(lengths: list[int], name: str) -> None:
    head, batch = _head(SHAPES[name]), sequences(lengths)
    hidden = torch.randn(sum(lengths), SMALL.hidden_size, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        together = head(hidden, batch)
        single = [head(part, one) for part, one in zip(hidden.split(lengths), alone(batch), strict=True)]
    torch.testing.assert_close(together, torch.cat(single), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_only_the_tokens_it_names_are_looked_at(name: str) -> None:
    head, batch = _head(SHAPES[name]), sequences([3, 1, 5])
    hidden = torch.randn(9, SMALL.hidden_size, requires_grad=True)
    head(hidden, batch).sum().backward()
    assert hidden.grad is not None
    looked = hidden.grad.abs().sum(1).nonzero().squeeze(1)
    reads = head.reads(batch)
    assert looked.tolist() == (list(range(9)) if reads is None else reads.tolist())


def test_the_mean_has_the_gradient_of_a_mean() -> None:
    head, batch = _head(HeadShape(pooling="mean", act=None)), sequences([1, 4, 2])
    hidden = torch.randn(7, SMALL.hidden_size, requires_grad=True)
    head(hidden, batch)[:, 0].sum().backward()
    share = torch.tensor([1.0, *[0.25] * 4, *[0.5] * 2])
    torch.testing.assert_close(hidden.grad, share[:, None] * head.out.weight[0])


def test_dropout_stands_where_the_shape_says_and_rests_in_evaluation() -> None:
    """Half of the states dropped before the dense layer, or half of its outputs behind it."""
    config = replace(SMALL, hidden_dropout_prob=0.5)
    for shape, before, behind in (
        (HeadShape(), 0.0, 0.5),
        (HeadShape(dropout=0.25, input_dropout=-1.0), 0.5, 0.25),
        (HeadShape(dropout=0.0), 0.0, 0.0),
    ):
        head = SequenceHead(config, 3, shape)
        assert (head.input_dropout.p, head.dropout.p) == (before, behind)
        hidden, batch = torch.randn(9, 48), sequences([4, 5])
        same = torch.equal(head(hidden, batch), head(hidden, batch))
        assert same == (before == behind == 0.0)
        head.eval()
        assert torch.equal(head(hidden, batch), head(hidden, batch))


def test_a_token_task_takes_every_state_as_it_is() -> None:
    shape = SHAPES["modernbert"]
    head = TaskHead(SMALL, 2, shape).eval()
    randomise(head, 4)
    hidden = torch.randn(6, 48)
    whole = _head(shape, 2)
    with torch.no_grad():
        torch.testing.assert_close(head.answer(hidden), whole(hidden, sequences([1] * 6)))


def test_a_dropout_above_1_is_refused() -> None:
    with pytest.raises(ValueError, match="dropout must not be above 1"):
        HeadShape(dropout=1.5)
