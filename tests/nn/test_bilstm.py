"""A bidirectional LSTM over words end to end."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import Layout
from unmask.nn.bilstm import BiLSTM


def made(seed: int = 0) -> BiLSTM:
    torch.manual_seed(seed)
    return BiLSTM(8)


def ragged(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor([0, *lengths]).cumsum(0).int())


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 2**31))
def test_each_sequence_is_read_as_if_it_were_alone(lengths: list[int], seed: int) -> None:
    lstm, layout = made(), ragged(lengths)
    words = torch.randn(sum(lengths), 8, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        together = lstm(words, layout)
        for begin, end in itertools.pairwise(layout.starts.tolist()):
            torch.testing.assert_close(together[begin:end], lstm(words[begin:end], ragged([end - begin])))


def test_it_is_the_recurrence_of_its_equations_in_both_directions() -> None:
    """Hochreiter and Schmidhuber 1997 with a forget gate, written out; torch orders the gates input, forget, cell, output."""
    lstm, words = made(), torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    sides = []
    for suffix, order in (("", range(5)), ("_reverse", reversed(range(5)))):
        into, over, bias_in, bias_over = (
            getattr(lstm, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        hidden, cell, rows = torch.zeros(4), torch.zeros(4), {}
        for place in order:
            i, f, g, o = (into @ words[place] + bias_in + over @ hidden + bias_over).chunk(4)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            rows[place] = hidden = o.sigmoid() * cell.tanh()
        sides.append(torch.stack([rows[place] for place in range(5)]))
    torch.testing.assert_close(lstm(words, ragged([5])), torch.cat(sides, 1))


def test_no_gradient_crosses_a_border() -> None:
    words = torch.randn(7, 8, requires_grad=True)
    made()(words, ragged([3, 4]))[:3].sum().backward()
    assert words.grad is not None and not words.grad[3:].any() and words.grad[:3].all()


def test_no_words_are_no_vectors() -> None:
    assert made()(torch.zeros(0, 8), ragged([])).shape == (0, 8)


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even hidden_size"):
        BiLSTM(7)
